//! Weights and rows that look random and are the same every time.

use ds4_gpu::Memory;
use ds4_kernels::{Matrix, Rows};
use ds4_units::{Layout, TensorType};
use half::{bf16, f16};
use std::sync::Arc;

/// A generator of numbers that look random.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn word(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// Between -1 and 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.word() >> 8) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// Bytes of `rows` rows with codes of every value and scales that keep products near one.
pub(crate) fn raw(kind: TensorType, rows: usize, columns: usize, seed: u64) -> Vec<u8> {
    let mut numbers = Numbers::new(seed);
    let spread = 1.0 / (columns as f32).sqrt();
    let len = kind.byte_len((rows * columns) as u64).expect("whole blocks").index();
    let mut half = |size: f32| f16::from_f32(spread * size * (1.0 + numbers.unit() / 2.0)).to_le_bytes();
    match kind {
        TensorType::F32 => (0..rows * columns).flat_map(|_| (spread * numbers.unit()).to_le_bytes()).collect(),
        TensorType::BF16 => {
            (0..rows * columns).flat_map(|_| bf16::from_f32(spread * numbers.unit()).to_le_bytes()).collect()
        }
        TensorType::F16 => {
            (0..rows * columns).flat_map(|_| f16::from_f32(spread * numbers.unit()).to_le_bytes()).collect()
        }
        _ => {
            let scales: &[(usize, f32)] = match kind {
                TensorType::Q8_0 => &[(0, 1.0 / 64.0)],
                TensorType::IQ2_XXS => &[(0, 1.0 / 64.0)],
                TensorType::Q2_K => &[(80, 1.0 / 12.0), (82, 1.0 / 8.0)],
                TensorType::Q4_K => &[(0, 1.0 / 300.0), (2, 1.0 / 32.0)],
                other => panic!("{other} is not computed with"),
            };
            let scales: Vec<Vec<(usize, [u8; 2])>> = (0..len / kind.block_bytes() as usize)
                .map(|_| scales.iter().map(|&(at, size)| (at, half(size))).collect())
                .collect();
            let mut bytes: Vec<u8> = (0..len.div_ceil(4)).flat_map(|_| numbers.word().to_le_bytes()).collect();
            bytes.truncate(len);
            for (block, scales) in bytes.chunks_exact_mut(kind.block_bytes() as usize).zip(scales) {
                scales.into_iter().for_each(|(at, scale)| block[at..at + 2].copy_from_slice(&scale));
            }
            bytes
        }
    }
}

/// A stack of matrices in host memory, as a file stores them.
pub(crate) fn matrix(kind: TensorType, [stack, rows, columns]: [usize; 3], seed: u64) -> Matrix {
    let bytes = raw(kind, stack * rows, columns, seed);
    let place = 0..bytes.len();
    Matrix::new(kind, Layout::Gguf, [stack, rows, columns], Memory::Host(Arc::new(bytes)), place).expect("a matrix")
}

/// Rows of values between -1 and 1.
pub(crate) fn rows(len: usize, width: usize, seed: u64) -> Rows {
    let mut numbers = Numbers::new(seed ^ 0x5eed);
    Rows::from_values(width, (0..len * width).map(|_| numbers.unit()).collect())
}

/// The rows from `first` on.
pub(crate) fn part(rows: &Rows, first: usize, len: usize) -> Rows {
    let width = rows.width();
    Rows::from_values(width, rows.values()[first * width..(first + len) * width].to_vec())
}

/// The largest difference as a share of the largest value.
pub(crate) fn distance(got: &Rows, want: &Rows) -> f32 {
    assert_eq!((got.len(), got.width()), (want.len(), want.width()));
    let largest = want.values().iter().fold(0.0f32, |most, value| most.max(value.abs()));
    let differences = got.values().iter().zip(want.values()).map(|(got, want)| (got - want).abs());
    differences.fold(0.0, |most, difference| if difference <= most { most } else { difference }) / largest
}

pub(crate) fn assert_same_bits(got: &Rows, want: &Rows, what: &str) {
    assert_eq!((got.len(), got.width()), (want.len(), want.width()), "{what}");
    for (index, (got, want)) in got.values().iter().zip(want.values()).enumerate() {
        assert_eq!(got.to_bits(), want.to_bits(), "{what}: value {index} is {got}, not {want}");
    }
}
