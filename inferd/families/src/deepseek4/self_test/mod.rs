//! Whether a GPU computes what the CPU computes: asked when a worker starts, because a compiler or a driver that is
//! wrong for one kernel gives fluent nonsense and no error.
//!
//! Two small models of made-up weights in the published storage types run a prompt and more, step by step. One has a layer
//! of each kind, more rows for the indexer than it may choose, and matrices that kernels take in f32; the CPU computes
//! it meanwhile. The matrices and heads of the other are so large that the kernels of published models take them, in steps
//! of every size that has kernels of its own; what the CPU computes of it is stored, for it would keep a worker waiting.

mod weights;

use super::Sources;
use super::model::DeepSeek4;
use super::shape::{Compression, Shape};
use ds4_import::{ComputeDevice, Weights};
use ds4_kernels::Backend;
use ds4_kernels::cuda::Cuda;
use ds4_kernels::kv_rows::{KvFormat, PackedRows, PlainRows};
use ds4_kernels::reference::Cpu;
use ds4_kernels::rope::Stretch;
use ds4_model::{BindOptions, FamilyError, KvRounding, LogitsWanted, Model, Segment, StepBatch, StepError};
use ds4_units::{Layout, TokenId, TokenPos, Tokens};
#[cfg(test)]
pub(super) use weights::published_type;

/// Largest difference of a logit, in units of the largest one, with rows as they are computed.
const PLAIN_MOST: f64 = 2e-3;
/// The same with rounded rows, where one code that falls on the other side of a tie is right as well.
const PACKED_MOST: f64 = 5e-2;
/// And where activations are rounded as well, which are multiplied with large matrices. An H200 is 9.4e-3 off; sixteen rows of
/// zeros in one matrix of attention or of the experts are off by 4.2e-2 or more, of most by 1e-1.
const WIDE_MOST: f64 = 3e-2;

/// Steps of the model with small matrices. The first has more tokens than a window, and than a tile of any product.
const NARROW_STEPS: [usize; 3] = [150, 20, 1];
/// Steps of the model with large matrices: a prompt, and rows for every kernel of fewer.
const WIDE_STEPS: [usize; 9] = [150, 70, 65, 40, 20, 12, 5, 3, 1];

/// What the CPU computes of the model with large matrices: f32 numbers, some of every token's logits. The test below holds
/// it, and writes it anew when it is another.
static WIDE_TRUTH: &[u8] = include_bytes!("wide.f32");

/// A model and what is computed with it.
pub(super) struct Case {
    shape: Shape,
    weights: Weights,
    pub(super) steps: &'static [usize],
    /// From a token's logit that is looked at to the next.
    stride: usize,
}

/// The models and what the CPU computes with them, of the first for both formats of rows. Needs no GPU.
pub(super) struct Truth {
    narrow: Case,
    plain: Vec<f32>,
    packed: Vec<f32>,
    wide: Case,
    wide_packed: Vec<f32>,
}

/// How far a GPU was off, in units of the largest logit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Off {
    pub(super) plain: f64,
    pub(super) packed: f64,
    pub(super) wide: f64,
}

impl Truth {
    /// Computes it.
    pub(super) fn compute() -> Result<Truth, FamilyError> {
        let (narrow, wide) = (Case::narrow(), Case::wide(Layout::Split));
        let plain = narrow.logits(Cpu::<PlainRows>::new())?;
        let packed = narrow.logits(Cpu::<PackedRows>::new())?;
        Ok(Truth { narrow, plain, packed, wide, wide_packed: floats(WIDE_TRUTH) })
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

/// Runs the test with both formats of rows.
pub(super) fn run(cuda: &Cuda<PackedRows>, truth: &Truth) -> Result<Off, FamilyError> {
    let plain = compare::<PlainRows>(&cuda.with_rows(), &truth.narrow, &truth.plain, PLAIN_MOST)?;
    let packed = compare::<PackedRows>(cuda, &truth.narrow, &truth.packed, PACKED_MOST)?;
    let wide = compare::<PackedRows>(cuda, &truth.wide, &truth.wide_packed, WIDE_MOST)?;
    Ok(Off { plain, packed, wide })
}

fn compare<F: KvFormat>(cuda: &Cuda<F>, case: &Case, want: &[f32], most: f64) -> Result<f64, FamilyError> {
    let worst = off(want, &case.logits(cuda.clone())?);
    if worst <= most {
        return Ok(worst);
    }
    Err(FamilyError::Device(format!(
        "this GPU does not compute what the CPU computes: {worst:.1e} off with {} rows and matrices of {} columns, \
         {most:.0e} allowed. Update the driver, or build again with scripts/cuda-toolkit",
        F::NAME,
        case.shape.hidden
    )))
}

/// The largest difference, in units of the largest number that was wanted; infinite where there are not as many numbers.
fn off(want: &[f32], got: &[f32]) -> f64 {
    let top = want.iter().fold(0.0f64, |top, &value| top.max(f64::from(value).abs()));
    let off = want.iter().zip(got).map(|(&want, &got)| (f64::from(want) - f64::from(got)).abs() / top);
    let worst = off.fold(0.0, |worst: f64, off| if off.is_nan() { f64::INFINITY } else { worst.max(off) });
    if want.len() == got.len() { worst } else { f64::INFINITY }
}

impl Case {
    pub(super) fn narrow() -> Case {
        let shape = narrow();
        Case { weights: weights::weights(&shape, Layout::Gguf), shape, steps: &NARROW_STEPS, stride: 1 }
    }

    pub(super) fn wide(layout: Layout) -> Case {
        let shape = wide();
        Case { weights: weights::weights(&shape, layout), shape, steps: &WIDE_STEPS, stride: 32 }
    }

    pub(super) fn bind<B: Backend>(&self, backend: B) -> Result<DeepSeek4<B>, FamilyError> {
        let options = BindOptions { context: Tokens(1024), kv_rounding: KvRounding::Exact, device: ComputeDevice::Cpu };
        DeepSeek4::new(backend, self.shape.clone(), Sources { weights: &self.weights, draft: None }, &options)
    }

    /// Logits of all tokens, of one conversation, as many of each as are looked at.
    fn logits<B: Backend>(&self, backend: B) -> Result<Vec<f32>, FamilyError> {
        let mut model = self.bind(backend)?;
        let bank = model.open_bank();
        let (mut all, mut start) = (Vec::new(), 0);
        for &count in self.steps {
            let token = |i: usize| TokenId((i * 37 % self.shape.vocabulary) as u32);
            let tokens: Vec<TokenId> = (start..start + count).map(token).collect();
            let at = TokenPos(start as u32);
            let segment = Segment { bank, start: at, tokens: &tokens, logits: LogitsWanted::All, drafted: 0 };
            let step = model.step(&StepBatch { segments: &[segment] }).map_err(failed)?;
            all.extend(step.of_segment(0).flat_map(|row| row.iter().copied().step_by(self.stride)));
            start += count;
        }
        Ok(all)
    }
}

fn failed(error: StepError) -> FamilyError {
    FamilyError::Device(format!("the self-test of the GPU failed: {error}"))
}

/// All its matrices are small. What is not a size is published.
pub(super) fn narrow() -> Shape {
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

/// One layer of the published kinds and heads, whose matrices have more than 2^20 elements each. Nothing is chosen, for two
/// that score nearly alike may be taken one for the other: experts are those of a table, and the indexer takes all rows.
fn wide() -> Shape {
    Shape {
        hidden: 2560,
        vocabulary: 512,
        heads: 64,
        head_width: 512,
        query_rank: 512,
        output_groups: 8,
        output_rank: 320,
        experts: 16,
        expert_width: 1024,
        index_heads: 64,
        index_top: 128,
        compression: vec![Compression::Indexed],
        clamps: vec![10.0],
        ..narrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_made_up_model_tells_tokens_apart() {
        let case = Case::narrow();
        let logits = case.logits(Cpu::<PackedRows>::new()).unwrap();
        tells_apart(&case, &logits);
    }

    fn tells_apart(case: &Case, logits: &[f32]) {
        let each = case.shape.vocabulary / case.stride;
        assert_eq!(logits.len(), case.steps.iter().sum::<usize>() * each);
        assert!(logits.iter().all(|logit| logit.is_finite()));
        let top = logits.iter().fold(0.0f32, |top, logit| top.max(logit.abs()));
        assert!((0.1..1e4).contains(&top), "the largest logit is {top}");
        let rows: Vec<&[f32]> = logits.chunks_exact(each).collect();
        assert!(rows.windows(2).all(|pair| pair[0] != pair[1]));
    }

    /// CPUs add up in other orders, and no further apart.
    #[test]
    fn what_is_stored_is_what_the_cpu_computes() {
        let case = Case::wide(Layout::Gguf);
        let logits = case.logits(Cpu::<PackedRows>::new()).unwrap();
        tells_apart(&case, &logits);
        let off = off(&logits, &floats(WIDE_TRUTH));
        if off > 1e-5 {
            let path = std::env::temp_dir().join("wide.f32");
            std::fs::write(&path, logits.iter().flat_map(|logit| logit.to_le_bytes()).collect::<Vec<_>>()).unwrap();
            panic!("{off:.1e} off; what is computed now is in {}", path.display());
        }
    }
}
