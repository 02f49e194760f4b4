//! How fast matrix products are on the GPU: microseconds, weight bytes a second and multiplications a second.
//!
//!     cargo bench -p ds4-kernels --features cuda --bench products
//!
//! Every product is timed as the median of graph replays, over matrices that together exceed the GPU's cache.

use ds4_gpu::cuda::{DeviceBuffer, Gpu};
use ds4_gpu::{Memory, layout};
use ds4_kernels::backend::{Mlp, Routing};
use ds4_kernels::cuda::{Cuda, CudaOptions, DeviceMatrix};
use ds4_kernels::experts::ExpertConstants;
use ds4_kernels::kv_rows::PlainRows;
use ds4_kernels::step::Step;
use ds4_kernels::{Backend, Matrix, Rows};
use ds4_units::TensorType::{self, F16, IQ2_XXS, Q2_K, Q4_K, Q8_0};
use ds4_units::{Layout, TokenId, Tokens};
use std::error::Error;
use std::sync::Arc;

/// Weights that one measurement reads at least, several times the cache.
const READ_AT_LEAST: u64 = 400 << 20;
/// Bytes that are made on the host and repeated on the device.
const PATTERN_ROWS: usize = 512;

type Result<T> = std::result::Result<T, Box<dyn Error>>;
type Backends = Cuda<PlainRows>;

fn main() -> Result<()> {
    let gpu = Gpu::open(0)?;
    println!("{}, driver {}", gpu.name(), gpu.driver_version());
    let cuda = Backends::new(&gpu, CudaOptions { context: Tokens(4096) })?;
    // An argument restricts the run to products whose line contains it.
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    println!("{:<32} {:>6} {:>10} {:>8} {:>8}", "product", "rows", "us", "GB/s", "TFLOP/s");
    let dense = [
        (Q8_0, 1024, 4096, 1),
        (Q8_0, 512, 4096, 1),
        (Q8_0, 32768, 1024, 1),
        (Q8_0, 8192, 4096, 8),
        (Q8_0, 4096, 8192, 1),
        (Q8_0, 2048, 4096, 1),
        (Q8_0, 4096, 2048, 1),
        (Q8_0, 129_280, 4096, 1),
        (Q4_K, 4096, 4096, 1),
        (F16, 1024, 4096, 1),
        (F16, 256, 4096, 1),
        (F16, 8192, 1024, 1),
        (F16, 24, 16384, 1),
    ];
    for (kind, outputs, columns, parts) in dense {
        if format!("{kind} {columns} -> {outputs}").contains(&wanted) {
            product(&gpu, &cuda, kind, [outputs, columns], parts)?;
        }
    }
    for types in [[IQ2_XXS, Q2_K], [Q4_K, Q4_K]] {
        if format!("experts {} {}", types[0], types[1]).contains(&wanted) {
            experts(&gpu, &cuda, types, &[1, 4, 16, 64, 256, 512, 1024, 2048, 4096, 8192])?;
        }
    }
    Ok(())
}

fn line(name: &str, rows: usize, micros: f32, bytes: f64, operations: f64) {
    let per_micro = 1.0 / f64::from(micros);
    let (rate, speed) = (bytes * per_micro * 1e-3, operations * per_micro * 1e-6);
    println!("{name:<32} {rows:>6} {micros:>10.1} {rate:>8.0} {speed:>8.1}");
}

fn product(gpu: &Gpu, cuda: &Backends, kind: TensorType, [outputs, columns]: [usize; 2], parts: usize) -> Result<()> {
    let bytes = kind.byte_len((outputs * columns) as u64).expect("whole blocks").0;
    let copies = (READ_AT_LEAST / bytes).clamp(1, 96) as usize;
    let pattern = pattern(kind, outputs, columns);
    let matrices =
        (0..copies).map(|_| matrix(gpu, cuda, kind, [1, outputs, columns], &pattern)).collect::<Result<Vec<_>>>()?;
    for rows in [1, 8, 32, 64, 512, 2048, 4096] {
        let input = cuda.upload(&Rows::from_values(parts * columns, values(rows * parts * columns)))?;
        let (micros, _) = cuda.measure(|| {
            for matrix in &matrices {
                match parts {
                    1 => cuda.multiply(matrix, &input),
                    parts => cuda.multiply_groups(matrix, parts, &input),
                };
            }
        })?;
        let name = format!("{kind} {columns} -> {outputs}");
        line(&name, rows, micros / copies as f32, bytes as f64, 2.0 * (rows * outputs * columns) as f64);
    }
    Ok(())
}

/// The feed-forward site of the Flash shape.
fn experts(gpu: &Gpu, cuda: &Backends, [up, down]: [TensorType; 2], batches: &[usize]) -> Result<()> {
    let (stack, hidden, width) = (256, 4096, 2048);
    let mlp = |[up, down]: [TensorType; 2], stack| -> Result<Mlp<Backends>> {
        let take = |kind, outputs, columns| {
            matrix(gpu, cuda, kind, [stack, outputs, columns], &pattern(kind, stack * outputs, columns))
        };
        Ok(Mlp { gate: take(up, width, hidden)?, up: take(up, width, hidden)?, down: take(down, hidden, width)? })
    };
    let (routed, shared) = (mlp([up, down], stack)?, mlp([Q8_0, Q8_0], 1)?);
    let constants = ExpertConstants { weight_scale: 1.5, clamp: 10.0 };
    let size = |kind: TensorType| kind.byte_len((width * hidden) as u64).expect("whole blocks").0 as f64;
    for &rows in batches {
        let logits = Rows::from_values(stack, values(rows * stack));
        let input = cuda.upload(&Rows::from_values(hidden, values(rows * hidden)))?;
        let logits = cuda.upload(&logits)?;
        let step =
            Step { tokens: vec![TokenId(0); rows], positions: Vec::new(), segments: Vec::new(), wanted: Vec::new() };
        let routes = cuda.route(&step, &logits, &Routing::Best { bias: None }, &constants);
        let mut used: Vec<u32> = cuda.download_routes(&routes)?.experts.into_iter().flatten().collect();
        used.sort_unstable();
        used.dedup();
        let (micros, _) = cuda.measure(|| drop(cuda.feed_forward(&routed, &shared, &constants, &routes, &input)))?;
        let bytes = used.len() as f64 * (2.0 * size(up) + size(down)) + 3.0 * size(Q8_0);
        line(
            &format!("experts {up} {down}, {} used", used.len()),
            rows,
            micros,
            bytes,
            2.0 * 7.0 * 3.0 * (rows * width * hidden) as f64,
        );
    }
    Ok(())
}

/// The bytes of some rows, as they lie on the device.
fn pattern(kind: TensorType, rows: usize, columns: usize) -> Vec<u8> {
    let rows = rows.min(PATTERN_ROWS);
    let raw = raw(kind, rows, columns);
    if layout::is_split(kind) { layout::split(kind, rows, columns, &raw) } else { raw }
}

/// A matrix that repeats these bytes.
fn matrix(gpu: &Gpu, cuda: &Backends, kind: TensorType, shape: [usize; 3], pattern: &[u8]) -> Result<DeviceMatrix> {
    let [stack, outputs, columns] = shape;
    let rows = stack * outputs;
    let (stored, len) = match layout::split_len(kind, rows, columns) {
        Some(len) => (Layout::Split, len),
        None => (Layout::Gguf, kind.byte_len((rows * columns) as u64).expect("whole blocks")),
    };
    let buffer = DeviceBuffer::new(gpu, len)?;
    for offset in (0..len.index()).step_by(pattern.len()) {
        buffer.upload(offset as u64, &pattern[..pattern.len().min(len.index() - offset)])?;
    }
    Ok(cuda.matrix(Matrix::new(kind, stored, shape, Memory::Device(Arc::new(buffer)), 0..len.index())?)?)
}

/// Blocks with codes of every value and small scales.
fn raw(kind: TensorType, rows: usize, columns: usize) -> Vec<u8> {
    let len = kind.byte_len((rows * columns) as u64).expect("whole blocks").index();
    let mut state = 1u32;
    let mut bytes: Vec<u8> = (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect();
    let scales: &[usize] = match kind {
        TensorType::Q2_K => &[80, 82],
        TensorType::Q4_K => &[0, 2],
        _ => &[0],
    };
    if kind == F16 {
        return values(rows * columns).into_iter().flat_map(|value| half::f16::from_f32(value).to_le_bytes()).collect();
    }
    let small = half::f16::from_f32(1e-3).to_le_bytes();
    for block in bytes.chunks_exact_mut(kind.block_bytes() as usize) {
        scales.iter().for_each(|&at| block[at..at + 2].copy_from_slice(&small));
    }
    bytes
}

fn values(len: usize) -> Vec<f32> {
    let mut state = 9u32;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}
