//! What attention does with the products of its input, in one launch.

use super::SITE_ROWS_MAX;
use crate::backend::{Backend, Feed, Settling};
use crate::cuda::bank::DeviceBank;
use crate::cuda::compress::CompressorArgument;
use crate::cuda::device::Device;
use crate::cuda::layout::ArrayArgument;
use crate::cuda::loader::Loader;
use crate::cuda::rotate::RopeArgument;
use crate::cuda::rows::DeviceRows;
use crate::cuda::vector::DeviceVector;
use crate::kv_rows::KvFormat;
use crate::step::Step;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};

const THREADS: u32 = 512;
/// Compressors of a layer at most.
const COMPRESSORS: usize = 2;

pub(crate) struct Kernels {
    packed: Function,
    plain: Function,
}

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| loader.function("few_settle", name);
        Ok(Kernels { packed: function("few_settle_packed")?, plain: function("few_settle_plain")? })
    }
}

/// `Settle` of `cu/few_settle.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Settle {
    compressors: [CompressorArgument; COMPRESSORS],
    rope: RopeArgument,
    low: DevicePtr,
    rows: DevicePtr,
    low_norm: DevicePtr,
    row_norm: DevicePtr,
    low_width: u32,
    row_width: u32,
    window_offset: u32,
    windows: u32,
    window: ArrayArgument,
    compressor_count: u32,
    epsilon: f32,
}

// SAFETY: structures without gaps whose sizes are multiples of 8, four addresses and eight words.
unsafe impl bytemuck::NoUninit for Settle {}

/// Whether these kernels take the step.
pub(in crate::cuda) fn settle<F, B>(
    device: &Device,
    step: &Step<'_, DeviceBank>,
    settling: &Settling<'_, B>,
    [low, rows]: [&mut DeviceRows; 2],
    feeds: &[Feed<'_, B>],
) -> bool
where
    F: KvFormat,
    B: Backend<Vector = DeviceVector, Rows = DeviceRows>,
{
    let fits = |feed: &Feed<'_, B>| feed.0.channels <= THREADS as usize;
    if rows.len() > SITE_ROWS_MAX || feeds.len() > COMPRESSORS || !feeds.iter().all(fits) {
        return false;
    }
    // A segment of `n` rows touches at most so many windows, wherever it starts.
    let windows = feeds.iter().map(|feed| step.longest().div_ceil(feed.0.ratio) + 1).max().unwrap_or(0);
    let mut compressors = [CompressorArgument::default(); COMPRESSORS];
    for (argument, (compressor, values, gates)) in compressors.iter_mut().zip(feeds) {
        *argument = CompressorArgument::new(compressor, values, gates);
    }
    let (len, channels) = (rows.len(), feeds.iter().map(|feed| feed.0.channels).max().unwrap_or(0));
    let settle = Settle {
        compressors,
        rope: RopeArgument::new(settling.rope),
        low: low.changed(),
        rows: rows.changed(),
        low_norm: settling.low_norm.address(),
        row_norm: settling.row_norm.address(),
        low_width: low.width() as u32,
        row_width: rows.width() as u32,
        window_offset: settling.window.offset as u32,
        windows: windows as u32,
        window: ArrayArgument::new(settling.window.array),
        compressor_count: feeds.len() as u32,
        epsilon: settling.epsilon,
    };
    let blocks = 2 * len + feeds.len() * windows * step.segments.len();
    let launch = Launch::new(blocks as u32, THREADS).shared(channels as u32 * 4).overlap();
    let kernels = &device.kernels.few.settle;
    let kernel = crate::cuda::of_format::<F>(&kernels.packed, &kernels.plain);
    // SAFETY: two blocks for every row of the step and one for every window that its segments touch, in each compressor;
    // a thread for every channel; the step's banks have their recurrent parts and the blocks of finished rows.
    unsafe { device.launch(kernel, launch, &Args::new().with(device.step()).with(settle)) };
    true
}
