//! Scores of compressed rows for few queries, rotation and preparation of the queries included, in one launch.

use super::ROWS_MAX;
use crate::bank::BlockPlace;
use crate::cuda::device::Device;
use crate::cuda::loader::Loader;
use crate::cuda::rotate::RopeArgument;
use crate::cuda::rows::DeviceRows;
use crate::cuda::select::{self, Chosen, DeviceSelection, IndexerArgument, SCORE_BYTES_MAX, WIDTH};
use crate::kv_rows::KvFormat;
use crate::rope::Rope;
use crate::step::Step;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_units::Bytes;

const WARPS: usize = 16;
const KEYS_PER_WARP: usize = 16;
/// Shared memory that the kernels may have: 64 heads in two halves, and their weights.
const SHARED_MAX: usize = 40 << 10;

pub(crate) struct Kernels {
    packed: Function,
    plain: Function,
}

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| loader.function("few_select", name);
        Ok(Kernels { packed: function("few_score_packed")?, plain: function("few_score_plain")? })
    }
}

/// `Scoring` of `cu/few_select.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Scoring {
    rope: RopeArgument,
    queries: DevicePtr,
    weights: DevicePtr,
    scores: DevicePtr,
    indexer: IndexerArgument,
}

// SAFETY: doubles, three addresses and a structure without gaps whose size is a multiple of 8.
unsafe impl bytemuck::NoUninit for Scoring {}

/// The `top` best finished rows of every query, if these kernels take the step.
pub(in crate::cuda) fn select<F: KvFormat, Bank>(
    device: &Device,
    step: &Step<'_, Bank>,
    place: BlockPlace,
    top: usize,
    rope: &Rope,
    [queries, weights]: [&DeviceRows; 2],
) -> Option<DeviceSelection> {
    let (len, heads) = (step.len(), weights.width());
    let prepared = heads.next_multiple_of(8) * (WIDTH * 2 * if F::NAME == "plain" { 2 } else { 1 } + size_of::<f32>());
    let most = step.reach() / place.ratio();
    let stride = most.next_multiple_of(4).max(4);
    if len > ROWS_MAX || prepared > SHARED_MAX || len * stride * size_of::<f32>() > SCORE_BYTES_MAX {
        return None;
    }
    let scores = device.scratch(Bytes((len * stride * size_of::<f32>()) as u64));
    let indexer = IndexerArgument::new(place, top, heads, 0..len, stride);
    let scoring = Scoring {
        rope: RopeArgument::new(rope),
        queries: queries.address(),
        weights: weights.address(),
        scores: scores.address(),
        indexer,
    };
    // A block for as many rows as its warps take at a time, at most what fills the device; a warp then goes on.
    let fill = (2 * device.gpu.multiprocessors() as usize).div_ceil(len);
    let across = most.div_ceil(WARPS * KEYS_PER_WARP).clamp(1, fill) as u32;
    let launch = Launch::new(across, 32 * WARPS as u32).grid([across, len as u32, 1]).shared(prepared as u32).overlap();
    let kernels = &device.kernels.few.select;
    let kernel = crate::cuda::of_format::<F>(&kernels.packed, &kernels.plain);
    // SAFETY: a row of blocks per row of the step; `scores` has `stride` floats for each, at least as many as the row sees;
    // the banks have the blocks of every finished row.
    unsafe { device.launch(kernel, launch, &Args::new().with(device.step()).with(scoring)) };
    let chosen = Chosen::take(device, len, top);
    select::best(device, &indexer, &scores, &chosen);
    Some(DeviceSelection::Chosen(chosen))
}
