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
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Gpu, Launch};
use ds4_units::Bytes;
use std::ops::Range;

/// Channels of an index row.
pub(super) const WIDTH: usize = 128;
/// Scores of a launch take at most so much memory, which is that of 4,096 rows at 32k; more are taken launch by launch.
pub(super) const SCORE_BYTES_MAX: usize = 160 << 20;
const PREPARE_THREADS: usize = 256;
const SCORE_WARPS: usize = 4;
const KEYS_PER_WARP: usize = 16;
const BEST_THREADS: u32 = 1024;

/// Rows of a step from which on they are scored many at a time, and heads that a query has at most there.
const MANY_ROWS: usize = 65;
const MANY_HEADS: usize = 64;
/// Keys of a block of threads there, and its threads.
const TILE_KEYS: usize = 256;
const MANY_THREADS: u32 = 512;
/// Queries in shared memory there: at most; and what it needs besides.
const QUERIES_MAX: usize = 12;
const MANY_FIXED: usize = 6 << 10;
const QUERY_BYTES: usize = MANY_HEADS * WIDTH * 2;

pub(crate) struct Kernels {
    prepare: [Function; 2],
    score: [Function; 2],
    best: Function,
    many: Many,
}

/// The kernels for many rows, and how many queries they keep in shared memory.
struct Many {
    prepare: Function,
    score: Function,
    queries: usize,
}

impl Kernels {
    pub(crate) fn load(gpu: &Gpu, loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| loader.function("select", name);
        let many = |name| loader.function("select_many", name);
        let shared = gpu.max_shared_per_block() as usize;
        let queries = ((shared - MANY_FIXED) / QUERY_BYTES).min(QUERIES_MAX);
        let many = Many { prepare: many("select_prepare_many")?, score: many("select_score_many")?, queries };
        many.score.allow_shared(many.shared())?;
        Ok(Kernels {
            prepare: [function("select_prepare_packed")?, function("select_prepare_plain")?],
            score: [function("select_score_packed")?, function("select_score_plain")?],
            best: function("select_best")?,
            many,
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
pub(super) struct IndexerArgument {
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

impl IndexerArgument {
    /// For the step's `rows`, whose scores lie `stride` floats apart.
    pub(super) fn new(
        place: BlockPlace,
        top: usize,
        heads: usize,
        rows: Range<usize>,
        stride: usize,
    ) -> IndexerArgument {
        IndexerArgument {
            rows_offset: place.offset as u32,
            ratio: place.ratio() as u32,
            top: top as u32,
            heads: heads as u32,
            array: ArrayArgument::new(place.array),
            first_row: rows.start as u32,
            rows: rows.len() as u32,
            stride: stride as u32,
            reserved: 0,
        }
    }
}

impl Chosen {
    /// Room for the choices of `len` queries.
    pub(super) fn take(device: &Device, len: usize, top: usize) -> Chosen {
        let rows = device.scratch(Bytes((len * top * 4) as u64));
        Chosen { rows, counts: device.scratch(Bytes((len * 4) as u64)), top }
    }
}

/// The `top` best finished rows of every query. Queries are given back as soon as they are prepared.
pub(crate) fn select<F: KvFormat>(
    device: &Device,
    step: &Step<'_, DeviceBank>,
    place: BlockPlace,
    top: usize,
    queries: DeviceRows,
    weights: &DeviceRows,
) -> DeviceSelection {
    let (len, heads) = (step.len(), weights.width());
    assert_eq!((queries.width(), place.array.width), (heads * WIDTH, WIDTH), "index rows are 128 wide");
    let chosen = Chosen::take(device, len, top);
    // Steps of many rows are never repeated: they take no more memory than they need.
    let is_many = len >= MANY_ROWS;
    let most = if is_many { step.end() } else { step.reach() } / place.ratio();
    let stride = most.next_multiple_of(4).max(4);
    // As many launches as keep within bounds, of as many rows each.
    let launches = (len * stride * size_of::<f32>()).div_ceil(SCORE_BYTES_MAX).clamp(1, len.max(1));
    let rows_at_once = len.div_ceil(launches);
    let of_rows = |rows: Range<usize>| IndexerArgument::new(place, top, heads, rows, stride);
    let prepared = match super::is_packed::<F>() && is_many && heads <= MANY_HEADS {
        true => Prepared::many(device, &of_rows(0..len), [&queries, weights]),
        false => Prepared::few::<F>(device, &of_rows(0..len), &queries),
    };
    drop(queries);
    let scores = device.scratch(Bytes((rows_at_once * stride * size_of::<f32>()) as u64));
    for first_row in (0..len).step_by(rows_at_once) {
        let argument = of_rows(first_row..len.min(first_row + rows_at_once));
        match prepared.weights {
            Some(_) => score_many(device, &argument, &prepared, &scores, most),
            None => score::<F>(device, &argument, (&prepared, weights), &scores),
        }
        best(device, &argument, &scores, &chosen);
    }
    DeviceSelection::Chosen(chosen)
}

/// The step's queries as the kernels that score take them.
struct Prepared {
    queries: Scratch,
    /// Bytes of one.
    each: usize,
    /// What heads are weighed with, for many rows: a float for each of [`MANY_HEADS`].
    weights: Option<Scratch>,
}

impl Prepared {
    fn few<F: KvFormat>(device: &Device, argument: &IndexerArgument, queries: &DeviceRows) -> Prepared {
        let kernels = &device.kernels.select;
        let (rows, heads) = (argument.rows as usize, (argument.heads as usize).next_multiple_of(8));
        let each = heads * WIDTH * 4;
        let prepared = device.scratch(Bytes((rows * each) as u64));
        let args = Args::new().with(device.step()).with(queries.address()).with(prepared.address()).with(*argument);
        let start = Launch::new((rows * heads * 32).div_ceil(PREPARE_THREADS) as u32, PREPARE_THREADS as u32);
        // SAFETY: a warp per head of the step's rows, `prepared` has room for them; warps beyond them do nothing.
        unsafe { device.launch(super::of_format::<F>(&kernels.prepare[0], &kernels.prepare[1]), start, &args) };
        Prepared { queries: prepared, each, weights: None }
    }

    fn many(device: &Device, argument: &IndexerArgument, [queries, weights]: [&DeviceRows; 2]) -> Prepared {
        let rows = argument.rows as usize;
        let prepared = device.scratch(Bytes((rows * QUERY_BYTES) as u64));
        let scaled = device.scratch(Bytes((rows * MANY_HEADS * size_of::<f32>()) as u64));
        let args = Args::new()
            .with(device.step())
            .with(queries.address())
            .with(weights.address())
            .with(prepared.address())
            .with(scaled.address())
            .with(*argument);
        let start = Launch::new((rows * MANY_HEADS * 32).div_ceil(PREPARE_THREADS) as u32, PREPARE_THREADS as u32);
        // SAFETY: a warp per head of the step's rows; `prepared` has room for their queries and `scaled` for their weights.
        unsafe { device.launch(&device.kernels.select.many.prepare, start, &args) };
        Prepared { queries: prepared, each: QUERY_BYTES, weights: Some(scaled) }
    }

    /// Where the query of a launch's first row is.
    fn first(&self, argument: &IndexerArgument) -> DevicePtr {
        self.queries.address().offset(u64::from(argument.first_row) * self.each as u64)
    }
}

fn score<F: KvFormat>(
    device: &Device,
    argument: &IndexerArgument,
    (prepared, weights): (&Prepared, &DeviceRows),
    scores: &Scratch,
) {
    let kernels = &device.kernels.select;
    let rows = argument.rows;
    let args = Args::new()
        .with(device.step())
        .with(prepared.first(argument))
        .with(weights.address())
        .with(scores.address())
        .with(*argument);
    // Enough blocks to fill the device however few the rows are; a warp then goes on from key to key.
    let blocks = (argument.stride as usize).div_ceil(SCORE_WARPS * KEYS_PER_WARP);
    let fill = (8 * device.gpu.multiprocessors()).div_ceil(rows).max(1);
    let across = (blocks as u32).clamp(1, fill);
    let score = Launch::new(across, 32 * SCORE_WARPS as u32).grid([across, rows, 1]);
    // SAFETY: a block row per row of the launch; `scores` has `stride` floats for each, at least as many as the row
    // sees; the banks have the blocks of every finished row.
    unsafe { device.launch(super::of_format::<F>(&kernels.score[0], &kernels.score[1]), score, &args) };
}

/// The same for many rows; `most` keys are seen at most.
fn score_many(device: &Device, argument: &IndexerArgument, prepared: &Prepared, scores: &Scratch, most: usize) {
    let many = &device.kernels.select.many;
    let rows = argument.rows as usize;
    let first_weights = u64::from(argument.first_row) * (MANY_HEADS * size_of::<f32>()) as u64;
    let scaled = prepared.weights.as_ref().map_or(DevicePtr(0), |weights| weights.address().offset(first_weights));
    let tiles = most.div_ceil(TILE_KEYS).max(1);
    // Some blocks for every multiprocessor: later rows see more keys.
    let chunks = (3 * device.gpu.multiprocessors() as usize).div_ceil(tiles).min(rows.div_ceil(16));
    let chunk = rows.div_ceil(chunks);
    let args = Args::new()
        .with(device.step())
        .with(prepared.first(argument))
        .with(scaled)
        .with(scores.address())
        .with(*argument)
        .with(chunk as u32)
        .with(many.queries as u32);
    let grid = [tiles as u32, rows.div_ceil(chunk) as u32, 1];
    let launch = Launch::new(1, MANY_THREADS).grid(grid).shared(many.shared());
    // SAFETY: `scores` has `stride` floats for each of the launch's rows, at least as many as the row sees; the banks have
    // the blocks of every finished row; the ring has room for so many queries.
    unsafe { device.launch(&many.score, launch, &args) };
}

/// Chooses by the scores of a launch's rows.
pub(super) fn best(device: &Device, argument: &IndexerArgument, scores: &Scratch, chosen: &Chosen) {
    let args = Args::new()
        .with(device.step())
        .with(scores.address())
        .with(chosen.rows.address())
        .with(chosen.counts.address())
        .with(*argument);
    // SAFETY: a block per row of the launch; `chosen` has `top` places and a count for every row of the step.
    unsafe { device.launch(&device.kernels.select.best, Launch::new(argument.rows, BEST_THREADS).overlap(), &args) };
}

impl Many {
    /// Shared memory of a block of threads: the queries, and what aligns them.
    fn shared(&self) -> u32 {
        (self.queries * QUERY_BYTES + 1024) as u32
    }
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
