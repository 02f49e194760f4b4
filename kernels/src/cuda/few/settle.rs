//! What attention does with the products of its input, in one launch.

use super::SITE_ROWS_MAX;
use super::enter::{self, DueMixes};
use super::products::multiply_normalized;
use crate::backend::{Backend, Feed, Settling};
use crate::cuda::bank::DeviceBank;
use crate::cuda::compress::CompressorArgument;
use crate::cuda::device::Device;
use crate::cuda::layout::ArrayArgument;
use crate::cuda::loader::Loader;
use crate::cuda::matrix::DeviceMatrix;
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
    mixes: DueMixes,
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
    let fits = fits::<B>(rows, feeds);
    if fits {
        launch::<F, B>(device, step, settling, (Some(low), rows), feeds, DueMixes::default());
    }
    fits
}

/// The same and products of the low rank, whose kernel normalises it, if these kernels take all of it: what is settled is
/// settled while they are multiplied. So are merge values made that are still due.
pub(in crate::cuda) fn settle_and_multiply<F, B>(
    device: &Device,
    step: &Step<'_, DeviceBank>,
    settling: &Settling<'_, B>,
    [low, rows]: [&mut DeviceRows; 2],
    feeds: &[Feed<'_, B>],
    (matrices, merge): (&[&DeviceMatrix], &DeviceRows),
) -> Option<Vec<DeviceRows>>
where
    F: KvFormat,
    B: Backend<Vector = DeviceVector, Rows = DeviceRows>,
{
    if !fits::<B>(rows, feeds) {
        return None;
    }
    let norm = (settling.low_norm, settling.epsilon);
    let spare = blocks::<B>(step, feeds) + 2 * rows.len();
    let products = multiply_normalized(device, matrices, low, norm, spare)?;
    launch::<F, B>(device, step, settling, (None, rows), feeds, enter::due(merge));
    Some(products)
}

fn fits<B: Backend>(rows: &DeviceRows, feeds: &[Feed<'_, B>]) -> bool {
    let is_narrow = |feed: &Feed<'_, B>| feed.0.channels <= THREADS as usize;
    rows.len() <= SITE_ROWS_MAX && feeds.len() <= COMPRESSORS && feeds.iter().all(is_narrow)
}

/// Windows that a segment may touch, wherever it starts.
fn windows<B: Backend>(step: &Step<'_, DeviceBank>, feeds: &[Feed<'_, B>]) -> usize {
    feeds.iter().map(|feed| step.longest().div_ceil(feed.0.ratio) + 1).max().unwrap_or(0)
}

/// Blocks of threads for windows.
fn blocks<B: Backend>(step: &Step<'_, DeviceBank>, feeds: &[Feed<'_, B>]) -> usize {
    feeds.len() * windows::<B>(step, feeds) * step.segments.len()
}

/// Where `low` is not given, the launch in front of this one has to be the product that normalises it.
fn launch<F, B>(
    device: &Device,
    step: &Step<'_, DeviceBank>,
    settling: &Settling<'_, B>,
    (low, rows): (Option<&mut DeviceRows>, &mut DeviceRows),
    feeds: &[Feed<'_, B>],
    mixes: DueMixes,
) where
    F: KvFormat,
    B: Backend<Vector = DeviceVector, Rows = DeviceRows>,
{
    let mut compressors = [CompressorArgument::default(); COMPRESSORS];
    for (argument, (compressor, values, gates)) in compressors.iter_mut().zip(feeds) {
        *argument = CompressorArgument::new(compressor, values, gates);
    }
    let (len, channels) = (rows.len(), feeds.iter().map(|feed| feed.0.channels).max().unwrap_or(0));
    let low_width = low.as_ref().map_or(0, |low| low.width());
    let has_low = usize::from(low.is_some());
    let settle = Settle {
        compressors,
        rope: RopeArgument::new(settling.rope),
        mixes,
        low: low.map_or(DevicePtr(0), DeviceRows::changed),
        rows: rows.changed(),
        low_norm: settling.low_norm.address(),
        row_norm: settling.row_norm.address(),
        low_width: low_width as u32,
        row_width: rows.width() as u32,
        window_offset: settling.window.offset as u32,
        windows: windows::<B>(step, feeds) as u32,
        window: ArrayArgument::new(settling.window.array),
        compressor_count: feeds.len() as u32,
        epsilon: settling.epsilon,
    };
    let blocks = (1 + has_low) * len + mixes.blocks() + blocks::<B>(step, feeds);
    let launch = Launch::new(blocks as u32, THREADS).shared(channels as u32 * 4).overlap();
    let kernels = &device.kernels.few.settle;
    let kernel = crate::cuda::of_format::<F>(&kernels.packed, &kernels.plain);
    // SAFETY: the blocks that the kernel counts: for every row of the step, and one for every window that its segments touch,
    // in each compressor; a thread for every channel; the step's banks have their recurrent parts and the blocks of finished
    // rows. Without `low` what is read was there before the launch in front of this one, which touches none of it.
    unsafe { device.launch(kernel, launch, &Args::new().with(device.step()).with(settle)) };
}
