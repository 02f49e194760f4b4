//! Weights for a self-test: made up, in the storage types that published files have.

use super::super::shape::Shape;
use super::super::tensors::{self, Expected, Role};
use ds4_gpu::{Memory, layout as split};
use ds4_import::{Tensor, Weights};
use ds4_units::{Layout, TensorType};
use half::f16;
use rayon::prelude::*;

/// Rows of a matrix before the first comes again: making all of them would keep a worker waiting. Whole panels of the split
/// layout, of a number that no heads, groups or experts have in common: a kernel that reads the wrong ones reads others.
const DISTINCT_ROWS: usize = 13 * split::PANEL_ROWS;

/// All tensors of the shape, the same in every process: as a file has them, or as a GPU reads them.
pub(super) fn weights(shape: &Shape, layout: Layout) -> Weights {
    let expected = tensors::expected(shape);
    let made = expected.par_iter().enumerate().map(|(index, expected)| {
        let random = &mut Random::new(index as u64);
        match published_type(expected) {
            TensorType::I32 => tensor(expected, TensorType::I32, Layout::Gguf, ids(shape)),
            TensorType::F32 => tensor(expected, TensorType::F32, Layout::Gguf, vector(expected, random)),
            kind => matrix(expected, kind, layout, random),
        }
    });
    Weights::from_tensors(made.collect::<Vec<_>>()).expect("names are unique")
}

fn tensor(expected: &Expected, kind: TensorType, layout: Layout, bytes: Vec<u8>) -> Tensor {
    let dims = expected.dims.iter().map(|&dim| dim as u64).collect();
    let len = bytes.len();
    let tensor = Tensor::new(expected.name.clone(), kind, dims, layout, Memory::host(bytes), 0..len);
    tensor.expect("the bytes are as many as type and dimensions say")
}

/// A matrix, or a stack of them, that begins again every so many rows.
fn matrix(expected: &Expected, kind: TensorType, layout: Layout, random: &mut Random) -> Tensor {
    let (columns, rows) = (expected.dims[0], expected.dims[1..].iter().product::<usize>());
    let distinct = rows.min(DISTINCT_ROWS);
    let bytes = values(kind, distinct * columns, (3.0 / columns as f32).sqrt(), random);
    let is_split = layout == Layout::Split && split::is_split(kind);
    let (own, bytes, len) = match is_split {
        true => (layout, split::split(kind, distinct, columns, &bytes), split::split_len(kind, rows, columns)),
        false => (Layout::Gguf, bytes, kind.byte_len((rows * columns) as u64)),
    };
    let len = len.expect("whole blocks").index();
    let mut all = Vec::with_capacity(len);
    while all.len() < len {
        all.extend_from_slice(&bytes[..bytes.len().min(len - all.len())]);
    }
    tensor(expected, kind, own, all)
}

/// The type that published files store a tensor in.
pub(in super::super) fn published_type(expected: &Expected) -> TensorType {
    let is_any_of = |parts: &[&str]| parts.iter().any(|part| expected.name.contains(part));
    match expected.role {
        Role::Ids => TensorType::I32,
        Role::Vector => TensorType::F32,
        Role::Matrix if is_any_of(&["down_exps"]) => TensorType::Q2_K,
        Role::Matrix if is_any_of(&["_exps"]) => TensorType::IQ2_XXS,
        Role::Matrix if is_any_of(&["hc_", "compressor", "indexer", "ffn_gate_inp", "embd"]) => TensorType::F16,
        Role::Matrix => TensorType::Q8_0,
    }
}

/// Experts of every token.
fn ids(shape: &Shape) -> Vec<u8> {
    let experts = shape.experts as u32;
    let per_token = |token: u32| (0..6).map(move |rank| (token * 5 + rank) % experts);
    (0..shape.vocabulary as u32).flat_map(per_token).flat_map(u32::to_le_bytes).collect()
}

fn vector(expected: &Expected, random: &mut Random) -> Vec<u8> {
    let around = if expected.name.contains("norm") { 1.0 } else { 0.0 };
    let values = (0..expected.dims.iter().product()).map(|_: usize| around + 0.3 * random.number());
    values.flat_map(f32::to_le_bytes).collect()
}

/// Made-up values of a size that keeps activations near one.
fn values(kind: TensorType, elements: usize, size: f32, random: &mut Random) -> Vec<u8> {
    match kind {
        TensorType::Q2_K => q2_k(elements, size, random),
        TensorType::IQ2_XXS => iq2_xxs(elements, size, random),
        TensorType::F16 => {
            let values = (0..elements).map(|_| f16::from_f32(size * random.number()));
            values.flat_map(f16::to_le_bytes).collect()
        }
        _ => q8_0(elements, size, random),
    }
}

/// Blocks of a half-float scale and 32 codes.
fn q8_0(elements: usize, size: f32, random: &mut Random) -> Vec<u8> {
    let block = |random: &mut Random| {
        let mut block = half_bytes(size / 127.0).to_vec();
        block.extend(random.bytes::<32>());
        block
    };
    (0..elements / 32).flat_map(|_| block(random)).collect()
}

/// Blocks of 16 scales, 64 bytes of codes and two half-float factors.
fn q2_k(elements: usize, size: f32, random: &mut Random) -> Vec<u8> {
    let block = |random: &mut Random| {
        let mut block = random.bytes::<80>().to_vec();
        block.extend(half_bytes(size / 16.0));
        block.extend(half_bytes(size / 12.0));
        block
    };
    (0..elements / 256).flat_map(|_| block(random)).collect()
}

/// Blocks of a half-float factor and 64 bytes of grid indices, signs and scales.
fn iq2_xxs(elements: usize, size: f32, random: &mut Random) -> Vec<u8> {
    let block = |random: &mut Random| {
        let mut block = half_bytes(size / 40.0).to_vec();
        block.extend(random.bytes::<64>());
        block
    };
    (0..elements / 256).flat_map(|_| block(random)).collect()
}

fn half_bytes(value: f32) -> [u8; 2] {
    f16::from_f32(value).to_le_bytes()
}

/// A xorshift generator: the same numbers in every process.
struct Random(u64);

impl Random {
    /// Every number is a seed: its bits are spread first.
    fn new(seed: u64) -> Random {
        Random((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Between -1 and 1.
    fn number(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for eight in bytes.chunks_mut(8) {
            eight.copy_from_slice(&self.next().to_le_bytes()[..eight.len()]);
        }
        bytes
    }
}
