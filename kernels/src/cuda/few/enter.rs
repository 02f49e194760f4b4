//! The beginning of a hyper-connection site whose mixes were begun where the streams were merged.

use super::SITE_ROWS_MAX;
use crate::cuda::device::Device;
use crate::cuda::hyper_connection::Site;
use crate::cuda::loader::Loader;
use crate::cuda::matrix::DeviceMatrix;
use crate::cuda::rows::DeviceRows;
use crate::hyper_connection::{HyperConstants, MIX_WIDTH, Mixed, STREAMS};
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};

const THREADS: u32 = 1024;
/// Channels that a block of threads holds at most.
const WIDTH_MAX: usize = 2 * 1024 * 4;

pub(crate) struct Kernels {
    enter: Function,
}

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        Ok(Kernels { enter: loader.function("few_enter", "few_enter")? })
    }
}

/// `Enter` of `cu/few_enter.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Enter {
    streams: DevicePtr,
    partials: DevicePtr,
    base: DevicePtr,
    scale: DevicePtr,
    norm: DevicePtr,
    input: DevicePtr,
    merge: DevicePtr,
    width: u32,
    panels: u32,
    iterations: u32,
    norm_epsilon: f32,
    mix_epsilon: f32,
    reserved: u32,
}

// SAFETY: seven addresses and six words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for Enter {}

/// Input and merge values of every row, if the streams come with this site's mixes.
pub(in crate::cuda) fn mix(
    device: &Device,
    matrix: &DeviceMatrix,
    site: &Site<'_>,
    constants: &HyperConstants,
    streams: &DeviceRows,
) -> Option<Mixed<DeviceRows>> {
    let begun = streams.begun.as_ref().filter(|begun| begun.matrix == matrix.address())?;
    let (len, width) = (streams.len(), streams.width() / STREAMS);
    if len > SITE_ROWS_MAX || width > WIDTH_MAX || !width.is_multiple_of(STREAMS) {
        return None;
    }
    let input = device.rows(len, width);
    let merge = device.rows(len, MIX_WIDTH - STREAMS);
    let enter = Enter {
        streams: streams.address(),
        partials: begun.partials.address(),
        base: site.base.address(),
        scale: site.scale.address(),
        norm: site.norm.address(),
        input: input.address(),
        merge: merge.address(),
        width: width as u32,
        panels: begun.panels as u32,
        iterations: constants.iterations as u32,
        norm_epsilon: constants.norm_epsilon,
        mix_epsilon: constants.mix_epsilon,
        reserved: 0,
    };
    let launch = Launch::new(2, THREADS).grid([2, len as u32, 1]).overlap();
    // SAFETY: two blocks a row; streams have four times `width` values, the partial sums 25 times as many as there are
    // panels, and the site's vectors what its matrix gives.
    unsafe { device.launch(&device.kernels.few.enter.enter, launch, &Args::new().with(enter)) };
    Some(Mixed { input, merge })
}
