//! Latent attention.

use super::arena::Scratch;
use super::bank::DeviceBank;
use super::device::Device;
use super::layout::ArrayArgument;
use super::loader::Loader;
use super::rotate::RopeArgument;
use super::rows::DeviceRows;
use super::select::DeviceSelection;
use super::vector::DeviceVector;
use crate::bank::{BlockPlace, WINDOW, WindowPlace};
use crate::kv_rows::KvFormat;
use crate::rope::Rope;
use crate::step::Step;
use bytemuck::NoUninit;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Gpu, Launch};
use ds4_units::Bytes;

/// Heads of a block.
const HEADS: usize = 16;
/// Rows of a tile.
const KEYS: usize = 32;
/// Channels of a warp.
const SLICE: usize = 64;
/// Values from one row of a tile's scores to the next.
const SCORE_STRIDE: usize = 40;
/// The widest head: what a block's threads and shared memory are good for.
pub(crate) const WIDTH_MAX: usize = 512;
const COMBINE_THREADS: u32 = 128;
/// Shares of a query's rows at most.
const SHARES_MAX: usize = 128;
/// Parts of a block of threads that take a share each, where they are added up by a cluster; blocks of a cluster on every
/// architecture, and on Hopper.
const PARTS_MAX: usize = 2;
const CLUSTER_MAX: usize = 8;
const LARGE_CLUSTER_MAX: usize = 16;
/// Shared memory that the kernels for raw queries have of their own.
const RAW_OWN: u32 = 10 << 10;

pub(crate) struct Kernels {
    packed: Function,
    plain: Function,
    combine: Function,
    raw_packed: Function,
    raw_plain: Function,
    /// Blocks of a cluster at most.
    cluster: usize,
}

impl Kernels {
    pub(crate) fn load(gpu: &Gpu, loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| loader.function("attend", name);
        let is_large = gpu.compute_capability().0 == 9;
        let kernels = Kernels {
            packed: function("attend_packed")?,
            plain: function("attend_plain")?,
            combine: function("attend_combine")?,
            raw_packed: function("attend_raw_packed")?,
            raw_plain: function("attend_raw_plain")?,
            cluster: if is_large { LARGE_CLUSTER_MAX } else { CLUSTER_MAX },
        };
        for (kernel, planes) in [(&kernels.raw_packed, 1), (&kernels.raw_plain, 2)] {
            let parts = parts_max(gpu, shared_bytes(WIDTH_MAX, planes));
            kernel.allow_shared(parts as u32 * shared_bytes(WIDTH_MAX, planes))?;
            if is_large {
                kernel.allow_large_clusters()?;
            }
        }
        kernels.packed.allow_shared(shared_bytes(WIDTH_MAX, 1))?;
        kernels.plain.allow_shared(shared_bytes(WIDTH_MAX, 2))?;
        Ok(kernels)
    }
}

/// What a block needs: `planes` tiles of rows, every warp's part of the scores, weights in two halves, three values a
/// head.
fn shared_bytes(width: usize, planes: usize) -> u32 {
    let rows = planes * KEYS * (width * 2 + 16);
    let scores = width / SLICE * HEADS * SCORE_STRIDE * 4;
    (rows + scores + 2 * HEADS * SCORE_STRIDE * 2 + 3 * HEADS * 4) as u32
}

/// Attention as its kernels take it. `cu/attend.cu` has the same structure.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct AttentionArgument {
    queries: DevicePtr,
    new_rows: DevicePtr,
    sinks: DevicePtr,
    chosen: DevicePtr,
    out: DevicePtr,
    partial: DevicePtr,
    shares: DevicePtr,
    heads: u32,
    width: u32,
    window_offset: u32,
    rows_offset: u32,
    ratio: u32,
    top: u32,
    array: ArrayArgument,
    rope: RopeArgument,
    epsilon: f32,
    oldest: u32,
}

// SAFETY: `repr(C)`, seven 8-byte fields, eight 4-byte ones, doubles, two 4-byte ones: no padding.
unsafe impl NoUninit for AttentionArgument {}

impl AttentionArgument {
    /// Everything but where results go.
    pub(super) fn new(
        window: WindowPlace,
        compressed: Option<(BlockPlace, &DeviceSelection)>,
        [queries, new_rows]: [&DeviceRows; 2],
        sinks: &DeviceVector,
    ) -> AttentionArgument {
        let address = |scratch: Option<&Scratch>| scratch.map_or(DevicePtr(0), Scratch::address);
        let chosen = match compressed {
            Some((_, DeviceSelection::Chosen(chosen))) => Some(chosen),
            _ => None,
        };
        AttentionArgument {
            queries: queries.address(),
            new_rows: new_rows.address(),
            sinks: sinks.address(),
            chosen: address(chosen.map(|chosen| &chosen.rows)),
            out: DevicePtr(0),
            partial: DevicePtr(0),
            shares: DevicePtr(0),
            heads: sinks.len() as u32,
            width: new_rows.width() as u32,
            window_offset: window.offset as u32,
            rows_offset: compressed.map_or(0, |(place, _)| place.offset as u32),
            ratio: compressed.map_or(0, |(place, _)| place.ratio() as u32),
            top: chosen.map_or(0, |chosen| chosen.top as u32),
            array: compressed.map_or(ArrayArgument::default(), |(place, _)| ArrayArgument::new(place.array)),
            rope: RopeArgument::default(),
            epsilon: 0.0,
            oldest: window.oldest as u32,
        }
    }
}

/// What is done to queries and results beside attention.
#[derive(Clone, Copy)]
pub(crate) enum Queries<'a> {
    /// Nothing.
    Ready,
    /// Each head is normalised and turned before, and turned back after.
    Raw { rope: &'a Rope, epsilon: f32 },
}

/// `[rows][heads * width]`.
pub(crate) fn attend<F: KvFormat>(
    device: &Device,
    step: &Step<'_, DeviceBank>,
    window: WindowPlace,
    compressed: Option<(BlockPlace, &DeviceSelection)>,
    [queries, new_rows]: [&DeviceRows; 2],
    sinks: &DeviceVector,
    are: Queries<'_>,
) -> DeviceRows {
    let (len, width, heads) = (step.len(), new_rows.width(), sinks.len());
    assert!(width <= WIDTH_MAX && width.is_multiple_of(SLICE), "a head of {width} channels");
    let out = device.rows(len, heads * width);
    let shares = shares(device, step, compressed, heads);
    let argument = AttentionArgument {
        out: out.address(),
        ..AttentionArgument::new(window, compressed, [queries, new_rows], sinks)
    };
    let planes = if F::NAME == "plain" { 2 } else { 1 };
    let part = Launch::new(0, (width / SLICE * 32) as u32).shared(shared_bytes(width, planes));
    let grid = |shares| [len as u32, heads.div_ceil(HEADS) as u32, shares as u32];
    match are {
        Queries::Ready => ready::<F>(device, argument, part.grid(grid(shares)), (len, heads, width)),
        Queries::Raw { rope, epsilon } => {
            let argument = AttentionArgument { rope: RopeArgument::new(rope), epsilon, ..argument };
            let kernels = &device.kernels.attend;
            // Shares of a query's rows are added up by the blocks of a cluster.
            let parts = shares.div_ceil(kernels.cluster).min(parts_max(&device.gpu, part.shared));
            let cluster = shares.div_ceil(parts).min(kernels.cluster);
            let launch = Launch { block: [parts as u32 * part.block[0], 1, 1], ..part.grid(grid(cluster)) };
            let launch = launch.shared(parts as u32 * part.shared).cluster([1, 1, cluster as u32]).overlap();
            let args = Args::new().with(device.step()).with(argument).with(part.shared);
            let kernel = super::of_format::<F>(&kernels.raw_packed, &kernels.raw_plain);
            // SAFETY: a cluster per row and sixteen heads, whose blocks have the shared memory that their parts need; the
            // step's banks have their windows and the blocks of every finished row, of which the selection names only such.
            unsafe { device.launch(kernel, launch, &args) };
        }
    }
    out
}

/// Attention of queries that nothing is done to beside it.
fn ready<F: KvFormat>(
    device: &Device,
    argument: AttentionArgument,
    launch: Launch,
    (len, heads, width): (usize, usize, usize),
) {
    let shares = launch.grid[2];
    let partial = (shares > 1).then(|| Partial::take(device, len * heads * shares as usize, width));
    let address = |scratch: Option<&Scratch>| scratch.map_or(DevicePtr(0), Scratch::address);
    let argument = AttentionArgument {
        partial: address(partial.as_ref().map(|partial| &partial.sums)),
        shares: address(partial.as_ref().map(|partial| &partial.shares)),
        ..argument
    };
    let kernels = &device.kernels.attend;
    let args = Args::new().with(device.step()).with(argument);
    // SAFETY: a block per row, sixteen heads and share; the step's banks have their windows and the blocks of every
    // finished row, of which the selection names only such; sums of shares have their memory.
    unsafe { device.launch(super::of_format::<F>(&kernels.packed, &kernels.plain), launch, &args) };
    if shares > 1 {
        let launch = Launch::new(0, COMBINE_THREADS).grid([len as u32, heads as u32, 1]);
        // SAFETY: a block per row and head; the kernel before it has written every share.
        unsafe { device.launch(&kernels.combine, launch, &Args::new().with(argument).with(shares)) };
    }
}

/// Parts of a block of threads for which there is shared memory.
fn parts_max(gpu: &Gpu, bytes: u32) -> usize {
    ((gpu.max_shared_per_block() - RAW_OWN) / bytes).clamp(1, PARTS_MAX as u32) as usize
}

/// What shares of the rows leave for their sum.
struct Partial {
    sums: Scratch,
    shares: Scratch,
}

impl Partial {
    fn take(device: &Device, count: usize, width: usize) -> Partial {
        Partial {
            sums: device.scratch(Bytes((count * width * 4) as u64)),
            shares: device.scratch(Bytes((count * 8) as u64)),
        }
    }
}

/// Into how many shares a query's rows are cut: as many as keep the device busy when there are few queries.
fn shares(
    device: &Device,
    step: &Step<'_, DeviceBank>,
    compressed: Option<(BlockPlace, &DeviceSelection)>,
    heads: usize,
) -> usize {
    let blocks = step.len() * heads.div_ceil(HEADS);
    let longest = step.reach();
    let seen = WINDOW.min(longest)
        + compressed.map_or(0, |(place, selection)| match selection {
            DeviceSelection::All => longest / place.ratio(),
            DeviceSelection::Chosen(chosen) => chosen.top.min(longest / place.ratio()),
        });
    let wanted = (2 * device.gpu.multiprocessors() as usize).div_ceil(blocks.max(1));
    wanted.clamp(1, seen.div_ceil(KEYS).clamp(1, SHARES_MAX))
}
