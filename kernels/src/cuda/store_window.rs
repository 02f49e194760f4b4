//! Rounding new raw rows and storing them in their banks' windows.

use super::device::Device;
use super::layout::ArrayArgument;
use super::loader::Loader;
use super::rows::DeviceRows;
use crate::bank::WindowPlace;
use crate::kv_rows::KvFormat;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};

pub(crate) struct Kernels {
    packed: Function,
    plain: Function,
}

impl Kernels {
    pub(crate) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| loader.function("store_window", name);
        Ok(Kernels { packed: function("store_window_packed")?, plain: function("store_window_plain")? })
    }
}

pub(crate) fn store_window<F: KvFormat>(device: &Device, place: WindowPlace, rows: &mut DeviceRows) {
    let kernels = &device.kernels.store_window;
    let args = Args::new()
        .with(device.step())
        .with(rows.changed())
        .with(place.offset as u32)
        .with(ArrayArgument::new(place.array));
    let launch = Launch::new(rows.len() as u32, rows.width() as u32 / 2);
    // SAFETY: a block per row of the step and a warp per 64 channels; the step's banks have their recurrent parts, in
    // which the window lies.
    unsafe { device.launch(super::of_format::<F>(&kernels.packed, &kernels.plain), launch, &args) };
}
