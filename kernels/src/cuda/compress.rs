//! Pooling tokens into compressed rows.

use super::bank::DeviceBank;
use super::device::Device;
use super::layout::ArrayArgument;
use super::loader::Loader;
use super::rotate::RopeArgument;
use super::rows::DeviceRows;
use super::vector::DeviceVector;
use crate::compression::{Compressor, RowKind};
use crate::kv_rows::KvFormat;
use crate::step::Step;
use bytemuck::NoUninit;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};

pub(crate) struct Kernels {
    packed: Function,
    plain: Function,
}

impl Kernels {
    pub(crate) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| loader.function("compress", name);
        Ok(Kernels { packed: function("compress_packed")?, plain: function("compress_plain")? })
    }
}

/// A compressor as its kernel takes it. `cu/compress.cu` has the same structure.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct CompressorArgument {
    rope: RopeArgument,
    values: DevicePtr,
    gates: DevicePtr,
    bias: DevicePtr,
    norm: DevicePtr,
    ratio: u32,
    channels: u32,
    overlapped: u32,
    pool_offset: u32,
    rows_offset: u32,
    is_index: u32,
    array: ArrayArgument,
    norm_epsilon: f32,
    reserved: u32,
}

// SAFETY: `repr(C)`, 8-byte fields first, then ten 4-byte ones: no padding.
unsafe impl NoUninit for CompressorArgument {}

impl CompressorArgument {
    pub(super) fn new(
        compressor: &Compressor<DeviceVector>,
        values: &DeviceRows,
        gates: &DeviceRows,
    ) -> CompressorArgument {
        CompressorArgument {
            rope: RopeArgument::new(&compressor.rope),
            values: values.address(),
            gates: gates.address(),
            bias: compressor.position_bias.address(),
            norm: compressor.norm.address(),
            ratio: compressor.ratio as u32,
            channels: compressor.channels as u32,
            overlapped: u32::from(compressor.overlapped),
            pool_offset: compressor.pool.offset as u32,
            rows_offset: compressor.rows.offset as u32,
            is_index: u32::from(compressor.kind == RowKind::Index),
            array: ArrayArgument::new(compressor.rows.array),
            norm_epsilon: compressor.norm_epsilon,
            reserved: 0,
        }
    }
}

pub(crate) fn compress<F: KvFormat>(
    device: &Device,
    step: &Step<'_, DeviceBank>,
    compressor: &Compressor<DeviceVector>,
    values: &DeviceRows,
    gates: &DeviceRows,
) {
    let argument = CompressorArgument::new(compressor, values, gates);
    let args = Args::new().with(device.step()).with(argument);
    // A segment of `n` rows touches at most so many windows, wherever it starts.
    let most = (step.longest().div_ceil(compressor.ratio) + 1) as u32;
    let threads = compressor.channels as u32;
    let launch = Launch::new(most, threads).grid([most, step.segments.len() as u32, 1]).shared(threads * 4);
    let kernels = &device.kernels.compress;
    // SAFETY: a thread per channel of every window that the step touches; blocks beyond them do nothing. The step's
    // banks have their recurrent parts and the blocks of every row that is finished.
    unsafe { device.launch(super::of_format::<F>(&kernels.packed, &kernels.plain), launch, &args) };
}
