//! Whether a GPU computes what the CPU computes: asked when a worker starts, because a compiler or a driver that is
//! wrong for one kernel gives fluent nonsense and no error.
//!
//! A small model of made-up weights in the published storage types runs a prompt of more than 128 tokens and one more
//! token on both. It has a layer of each kind, and the indexer has more rows than it may choose.

use super::Sources;
use super::model::DeepSeek4;
use super::shape::{Compression, Shape};
use super::tensors::{self, Expected, Role};
use ds4_gpu::Memory;
use ds4_import::{ComputeDevice, Tensor, Weights};
use ds4_kernels::Backend;
use ds4_kernels::cuda::Cuda;
use ds4_kernels::kv_rows::{KvFormat, PackedRows, PlainRows};
use ds4_kernels::reference::Cpu;
use ds4_kernels::rope::Stretch;
use ds4_model::{BindOptions, FamilyError, KvRounding, LogitsWanted, Model, Segment, StepBatch, StepError};
use ds4_units::{Layout, TensorType, TokenId, TokenPos, Tokens};
use half::f16;

/// Tokens of the prompt: more than a window, more than a tile of any product.
const PROMPT: usize = 150;

/// Largest difference of a logit, in units of the largest one, with rows as they are computed.
const PLAIN_MOST: f64 = 2e-3;
/// The same with rounded rows, where one code that falls on the other side of a tie is right as well.
const PACKED_MOST: f64 = 5e-2;

/// The model and what the CPU computes with it, for both formats of rows. Needs no GPU.
pub(super) struct Truth {
    shape: Shape,
    weights: Weights,
    plain: Vec<f32>,
    packed: Vec<f32>,
}

impl Truth {
    /// Computes it.
    pub(super) fn compute() -> Result<Truth, FamilyError> {
        let shape = shape();
        let weights = weights(&shape);
        let plain = logits(Cpu::<PlainRows>::new(), &shape, &weights)?;
        let packed = logits(Cpu::<PackedRows>::new(), &shape, &weights)?;
        Ok(Truth { shape, weights, plain, packed })
    }
}

/// Runs the test with both formats of rows.
pub(super) fn run(cuda: &Cuda<PackedRows>, truth: &Truth) -> Result<(), FamilyError> {
    compare::<PlainRows>(&cuda.with_rows(), truth, &truth.plain, PLAIN_MOST)?;
    compare::<PackedRows>(cuda, truth, &truth.packed, PACKED_MOST)
}

fn compare<F: KvFormat>(cuda: &Cuda<F>, truth: &Truth, want: &[f32], most: f64) -> Result<(), FamilyError> {
    let got = logits(cuda.clone(), &truth.shape, &truth.weights)?;
    let top = want.iter().fold(0.0f64, |top, &value| top.max(f64::from(value).abs()));
    let off = want.iter().zip(&got).map(|(&want, &got)| (f64::from(want) - f64::from(got)).abs() / top);
    let worst = off.fold(0.0, |worst: f64, off| if off.is_nan() { f64::INFINITY } else { worst.max(off) });
    if worst <= most {
        return Ok(());
    }
    Err(FamilyError::Device(format!(
        "this GPU does not compute what the CPU computes: {worst:.1e} off with {} rows, {most:.0e} allowed. \
         Update the driver, or build again with scripts/cuda-toolkit",
        F::NAME
    )))
}

/// Logits of every prompt token and of one more.
fn logits<B: Backend>(backend: B, shape: &Shape, weights: &Weights) -> Result<Vec<f32>, FamilyError> {
    let options = BindOptions { context: Tokens(1024), kv_rounding: KvRounding::Exact, device: ComputeDevice::Cpu };
    let mut model = DeepSeek4::new(backend, shape.clone(), Sources { weights, draft: None }, &options)?;
    let tokens: Vec<TokenId> = (0..=PROMPT).map(|i| TokenId((i * 37 % shape.vocabulary) as u32)).collect();
    let bank = model.open_bank();
    let mut all = Vec::new();
    for (start, tokens) in [(0, &tokens[..PROMPT]), (PROMPT, &tokens[PROMPT..])] {
        let segment = Segment { bank, start: TokenPos(start as u32), tokens, logits: LogitsWanted::All, drafted: 0 };
        let step = model.step(&StepBatch { segments: &[segment] }).map_err(failed)?;
        all.extend(step.of_segment(0).flatten());
    }
    Ok(all)
}

fn failed(error: StepError) -> FamilyError {
    FamilyError::Device(format!("the self-test of the GPU failed: {error}"))
}

fn shape() -> Shape {
    Shape {
        hidden: 256,
        vocabulary: 192,
        trained_context: 1024,
        heads: 8,
        head_width: 128,
        query_rank: 256,
        output_groups: 2,
        output_rank: 128,
        experts: 12,
        expert_width: 256,
        hash_layers: 1,
        index_heads: 8,
        index_top: 16,
        sinkhorn_iterations: 20,
        norm_epsilon: 1e-6,
        mix_epsilon: 1e-6,
        expert_scale: 1.5,
        rope_base: 10_000.0,
        compressed_rope_base: 160_000.0,
        stretch: Stretch { factor: 16.0, original_context: 65_536.0, beta_fast: 32.0, beta_slow: 1.0 },
        compression: vec![Compression::None, Compression::Indexed, Compression::Dense],
        clamps: vec![10.0; 3],
    }
}

fn weights(shape: &Shape) -> Weights {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let tensors = tensors::expected(shape).into_iter().map(|expected| tensor(&expected, shape, &mut random));
    Weights::from_tensors(tensors.collect::<Vec<_>>()).expect("names are unique")
}

/// The type that published files store a tensor in.
pub(super) fn published_type(expected: &Expected) -> TensorType {
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

/// Made-up values of a size that keeps activations near one, in the type that published files use.
fn tensor(expected: &Expected, shape: &Shape, random: &mut Random) -> Tensor {
    let elements: usize = expected.dims.iter().product();
    let size = (3.0 / expected.dims[0] as f32).sqrt();
    let kind = published_type(expected);
    let bytes: Vec<u8> = match kind {
        TensorType::I32 => {
            let experts = shape.experts as u32;
            let per_token = |token: u32| (0..6).map(move |rank| (token * 5 + rank) % experts);
            let ids = (0..shape.vocabulary as u32).flat_map(per_token);
            ids.flat_map(u32::to_le_bytes).collect()
        }
        TensorType::F32 => {
            let around = if expected.name.contains("norm") { 1.0 } else { 0.0 };
            let values = (0..elements).map(|_| around + 0.3 * random.number());
            values.flat_map(f32::to_le_bytes).collect()
        }
        TensorType::Q2_K => q2_k(elements, size, random),
        TensorType::IQ2_XXS => iq2_xxs(elements, size, random),
        TensorType::F16 => {
            let values = (0..elements).map(|_| f16::from_f32(size * random.number()));
            values.flat_map(f16::to_le_bytes).collect()
        }
        _ => q8_0(elements, size, random),
    };
    let dims = expected.dims.iter().map(|&dim| dim as u64).collect();
    let len = bytes.len();
    let tensor = Tensor::new(expected.name.clone(), kind, dims, Layout::Gguf, Memory::host(bytes), 0..len);
    tensor.expect("the bytes are as many as type and dimensions say")
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
        std::array::from_fn(|_| (self.next() >> 32) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_made_up_model_tells_tokens_apart() {
        let shape = shape();
        let logits = logits(Cpu::<PackedRows>::new(), &shape, &weights(&shape)).unwrap();
        assert_eq!(logits.len(), (PROMPT + 1) * shape.vocabulary);
        assert!(logits.iter().all(|logit| logit.is_finite()));
        let top = logits.iter().fold(0.0f32, |top, logit| top.max(logit.abs()));
        assert!((0.1..1e4).contains(&top), "the largest logit is {top}");
        let rows: Vec<&[f32]> = logits.chunks_exact(shape.vocabulary).collect();
        assert!(rows.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
