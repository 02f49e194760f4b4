//! Choosing the compressed rows that a query sees.

use super::arena::Scratch;
use super::bank::DeviceBank;
use super::device::Device;
use super::layout::ArrayArgument;
use super::loader::Loader;
use super::rows::DeviceRows;
use crate::BackendError;
use crate::bank::BlockPlace;
use crate::compression::Selection;
use crate::kv_rows::KvFormat;
use crate::step::Step;
use bytemuck::NoUninit;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_units::Bytes;

/// Channels of an index row.
const WIDTH: usize = 128;
/// Scores of a launch take at most so much memory; more rows are taken launch by launch.
const SCORE_BYTES_MAX: usize = 256 << 20;
const PREPARE_THREADS: usize = 256;
const SCORE_WARPS: usize = 4;
const KEYS_PER_WARP: usize = 16;
const BEST_THREADS: u32 = 1024;

pub(crate) struct Kernels {
    prepare: [Function; 2],
    score: [Function; 2],
    best: Function,
}

impl Kernels {
    pub(crate) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| loader.function("select", name);
        Ok(Kernels {
            prepare: [function("select_prepare_packed")?, function("select_prepare_plain")?],
            score: [function("select_score_packed")?, function("select_score_plain")?],
            best: function("select_best")?,
        })
    }
}

/// The compressed rows that each query of a step sees, on the device.
pub enum DeviceSelection {
    /// Every finished row.
    All,
    /// The chosen ones.
    Chosen(Chosen),
}

/// Chosen rows, ascending: `top` for each query, or as many as `counts` says; all finished rows where it says so.
pub struct Chosen {
    pub(crate) rows: Scratch,
    pub(crate) counts: Scratch,
    pub(crate) top: usize,
}

/// The indexer as its kernels take it. `cu/select.cu` has the same structure.
#[derive(Clone, Copy)]
#[repr(C)]
struct IndexerArgument {
    rows_offset: u32,
    ratio: u32,
    top: u32,
    heads: u32,
    array: ArrayArgument,
    first_row: u32,
    rows: u32,
    stride: u32,
    reserved: u32,
}

// SAFETY: `repr(C)`, ten 4-byte fields: no padding.
unsafe impl NoUninit for IndexerArgument {}

/// The `top` best finished rows of every query.
pub(crate) fn select<F: KvFormat>(
    device: &Device,
    step: &Step<'_, DeviceBank>,
    place: BlockPlace,
    top: usize,
    queries: &DeviceRows,
    weights: &DeviceRows,
) -> DeviceSelection {
    let (len, heads) = (step.len(), weights.width());
    assert_eq!((queries.width(), place.array.width), (heads * WIDTH, WIDTH), "index rows are 128 wide");
    let chosen = Chosen {
        rows: device.scratch(Bytes((len * top * 4) as u64)),
        counts: device.scratch(Bytes((len * 4) as u64)),
        top,
    };
    let most = step.reach() / place.ratio();
    let stride = most.next_multiple_of(4);
    let rows_at_once = (SCORE_BYTES_MAX / (stride * 4).max(1)).clamp(1, len);
    let scores = device.scratch(Bytes((rows_at_once * stride * 4) as u64));
    let prepared_heads = heads.next_multiple_of(8);
    let prepared = device.scratch(Bytes((rows_at_once * prepared_heads * WIDTH * 4) as u64));
    for first_row in (0..len).step_by(rows_at_once) {
        let rows = rows_at_once.min(len - first_row);
        let argument = IndexerArgument {
            rows_offset: place.offset as u32,
            ratio: place.ratio() as u32,
            top: top as u32,
            heads: heads as u32,
            array: ArrayArgument::new(place.array),
            first_row: first_row as u32,
            rows: rows as u32,
            stride: stride as u32,
            reserved: 0,
        };
        launch::<F>(device, &argument, [queries, weights], [&prepared, &scores], &chosen);
    }
    DeviceSelection::Chosen(chosen)
}

fn launch<F: KvFormat>(
    device: &Device,
    argument: &IndexerArgument,
    [queries, weights]: [&DeviceRows; 2],
    [prepared, scores]: [&Scratch; 2],
    chosen: &Chosen,
) {
    let kernels = &device.kernels.select;
    let (view, rows) = (device.step(), argument.rows);
    let heads = rows as usize * (argument.heads as usize).next_multiple_of(8);
    let args = Args::new().with(view).with(queries.address()).with(prepared.address()).with(*argument);
    let prepare = Launch::new((heads * 32).div_ceil(PREPARE_THREADS) as u32, PREPARE_THREADS as u32);
    // SAFETY: a warp per head of the launch's rows, `prepared` has room for them; warps beyond them do nothing.
    unsafe { device.launch(super::of_format::<F>(&kernels.prepare[0], &kernels.prepare[1]), prepare, &args) };
    let args =
        Args::new().with(view).with(prepared.address()).with(weights.address()).with(scores.address()).with(*argument);
    // Enough blocks to fill the device however few the rows are; a warp then goes on from key to key.
    let blocks = (argument.stride as usize).div_ceil(SCORE_WARPS * KEYS_PER_WARP);
    let fill = (8 * device.gpu.multiprocessors()).div_ceil(rows).max(1);
    let across = (blocks as u32).clamp(1, fill);
    let score = Launch::new(across, 32 * SCORE_WARPS as u32).grid([across, rows, 1]);
    // SAFETY: a block row per row of the launch; `scores` has `stride` floats for each, at least as many as the row
    // sees; the banks have the blocks of every finished row.
    unsafe { device.launch(super::of_format::<F>(&kernels.score[0], &kernels.score[1]), score, &args) };
    let args = Args::new()
        .with(view)
        .with(scores.address())
        .with(chosen.rows.address())
        .with(chosen.counts.address())
        .with(*argument);
    // SAFETY: a block per row of the launch; `chosen` has `top` places and a count for every row of the step.
    unsafe { device.launch(&kernels.best, Launch::new(rows, BEST_THREADS), &args) };
}

/// A selection for the host. Blocks.
pub(crate) fn download(
    device: &Device,
    selection: &DeviceSelection,
    queries: usize,
) -> Result<Selection, BackendError> {
    let DeviceSelection::Chosen(chosen) = selection else { return Ok(Selection::all(queries)) };
    let counts = device.read::<u32>(&chosen.counts, queries)?;
    let rows = device.read::<u32>(&chosen.rows, queries * chosen.top)?;
    let each = counts.iter().zip(rows.chunks_exact(chosen.top));
    Ok(Selection { chosen: each.map(|(&count, rows)| rows.get(..count as usize).map(<[u32]>::to_vec)).collect() })
}
