//! The likeliest token of every row of logits.

use super::arena::Scratch;
use super::device::Device;
use super::loader::Loader;
use super::rows::DeviceRows;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_units::Bytes;

const THREADS: u32 = 1024;
/// Blocks of threads that share a row.
const PARTS: usize = 32;

pub(crate) struct Kernels {
    part: Function,
    whole: Function,
}

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        Ok(Kernels { part: loader.function("best", "best_part")?, whole: loader.function("best", "best_whole")? })
    }
}

/// A `u32` for every row: the place of its largest value, the first of equal ones, or all ones where a value is not
/// finite.
pub(super) struct BestTokens {
    pub(super) tokens: Scratch,
}

pub(super) fn best(device: &Device, logits: &DeviceRows) -> BestTokens {
    let (rows, width) = (logits.len(), logits.width());
    let parts = device.scratch(Bytes((rows * PARTS * 8) as u64));
    let tokens = device.scratch(Bytes((rows * 4) as u64));
    let args = Args::new().with(logits.address()).with(parts.address()).with(width as u32).with(0u32);
    let launch = Launch::new(PARTS as u32, THREADS).grid([PARTS as u32, rows as u32, 1]);
    let kernels = &device.kernels.best;
    // SAFETY: `PARTS` blocks for each of the rows, which have `width` values; `parts` has a place for every block.
    unsafe { device.launch(&kernels.part, launch, &args) };
    let args = Args::new().with(parts.address()).with(tokens.address());
    // SAFETY: a warp, as wide as there are parts, for every row; `tokens` has a place for each.
    unsafe { device.launch(&kernels.whole, Launch::new(rows as u32, PARTS as u32), &args) };
    BestTokens { tokens }
}
