//! Rotary position embedding.

use super::device::Device;
use super::loader::Loader;
use super::rows::DeviceRows;
use crate::rope::Rope;
use bytemuck::NoUninit;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};

const THREADS: u32 = 256;

pub(crate) struct Kernels {
    rotate: Function,
}

impl Kernels {
    pub(crate) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        Ok(Kernels { rotate: loader.function("rotate", "rotate")? })
    }
}

/// A rope as kernels take it. `cu/rope.cuh` has the same structure.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct RopeArgument([f64; 32]);

// SAFETY: `repr(C)`, doubles only: no padding.
unsafe impl NoUninit for RopeArgument {}

impl RopeArgument {
    pub(crate) fn new(rope: &Rope) -> RopeArgument {
        RopeArgument(*rope.frequencies())
    }
}

/// Rotates the end of every head of `width` channels at its row's position: forwards, or backwards.
pub(crate) fn rotate(device: &Device, rows: &mut DeviceRows, width: usize, rope: &Rope, forwards: bool) {
    let (len, heads) = (rows.len() as u32, rows.width() / width);
    let direction: f32 = if forwards { 1.0 } else { -1.0 };
    let args = Args::new()
        .with(rows.changed())
        .with(device.step())
        .with(RopeArgument::new(rope))
        .with(width as u32)
        .with(heads as u32)
        .with(direction);
    // SAFETY: a block per row of the step; a row has `heads` heads of `width` channels, at least the 64 that turn.
    unsafe { device.launch(&device.kernels.rotate.rotate, Launch::new(len, THREADS), &args) };
}
