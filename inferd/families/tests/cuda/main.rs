//! The whole graph on a GPU, against independent references and against the CPU. Needs a GPU: without one these tests
//! fail. References that are not in the repository are looked for where `DS4_ORACLE_DIR` says.

mod company;
mod conversations;
mod drafts;
mod graph;
#[path = "../deepseek4/kit.rs"]
mod kit;
mod steps;
#[path = "../deepseek4/transcripts.rs"]
mod transcripts;

use ds4_gpu::cuda::Gpu;
use ds4_import::ComputeDevice;
use ds4_model::{KvRounding, Model};
use ds4_units::Tokens;
use std::path::Path;

/// The first GPU.
fn gpu() -> ComputeDevice {
    ComputeDevice::Gpu(Gpu::open(0).expect("these tests need a GPU"))
}

/// Binds the model in a GGUF file on the GPU.
fn load(path: &Path, kv_rounding: KvRounding) -> Box<dyn Model> {
    kit::load_on(gpu(), path, kv_rounding, Tokens(1 << 16))
}

/// The largest value's place and by how much it exceeds every other.
fn best(row: &[f32]) -> (usize, f32) {
    let best = kit::argmax(row).index();
    let second = row.iter().enumerate().filter(|(index, _)| *index != best).map(|(_, &value)| value);
    (best, row[best] - second.fold(f32::NEG_INFINITY, f32::max))
}

/// The largest magnitude.
fn top(rows: &[Vec<f32>]) -> f32 {
    rows.iter().flatten().fold(0.0, |top: f32, value| top.max(value.abs()))
}

/// The largest difference of a row's values.
fn off(got: &[f32], want: &[f32]) -> f32 {
    got.iter().zip(want).map(|(got, want)| (got - want).abs()).fold(0.0, f32::max)
}
