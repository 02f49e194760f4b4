//! Root-mean-square normalisation.

use super::device::Device;
use super::loader::Loader;
use super::rows::DeviceRows;
use super::vector::DeviceVector;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};

const THREADS: u32 = 256;
/// Heads of one block: a warp each.
const HEADS: usize = THREADS as usize / 32;

pub(crate) struct Kernels {
    normalize: Function,
    normalize_heads: Function,
}

impl Kernels {
    pub(crate) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| loader.function("normalize", name);
        Ok(Kernels { normalize: function("normalize")?, normalize_heads: function("normalize_heads")? })
    }
}

pub(crate) fn normalize(device: &Device, rows: &mut DeviceRows, weight: &DeviceVector, epsilon: f32) {
    let (len, width) = (rows.len() as u32, rows.width() as u32);
    assert_eq!(weight.len(), rows.width(), "a weight per channel");
    let args = Args::new().with(rows.changed()).with(weight.address()).with(width).with(epsilon);
    // SAFETY: the grid has a block per row; rows and weight have `width` values each.
    unsafe { device.launch(&device.kernels.normalize.normalize, Launch::new(len, THREADS), &args) };
}

pub(crate) fn normalize_heads(device: &Device, rows: &mut DeviceRows, width: usize, epsilon: f32) {
    let heads = rows.len() * rows.width() / width;
    let args = Args::new().with(rows.changed()).with(heads as u32).with(width as u32).with(epsilon);
    let launch = Launch::new(heads.div_ceil(HEADS) as u32, THREADS);
    // SAFETY: the rows are `heads` heads of `width` values; warps beyond them do nothing.
    unsafe { device.launch(&device.kernels.normalize.normalize_heads, launch, &args) };
}
