//! Products of matrices with many rows: `cu/gemm.cuh` says how they are computed.

use super::arena::Scratch;
use super::device::Device;
use super::experts::Slots;
use super::gemm_operand::{GemmOperand, Order, OwnGemmOperand, Precision};
use super::gemm_plan::{Limits, TileRows, bands};
use super::loader::Loader;
use super::matrix::DeviceMatrix;
use super::rows::DeviceRows;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Gpu, Launch};
use ds4_units::TensorType;

/// Threads of a block.
const THREADS: u32 = 512;
/// Channels of a small matrix of half floats at most.
const PRECISE_COLUMNS: usize = 8192;
/// Matrices of a launch at most.
const JOBS: usize = 8;
/// What a hidden value is scaled to at most.
const HIDDEN_MOST: f32 = 32_768.0;

/// A format that has kernels.
struct Known {
    kind: TensorType,
    /// In its kernels.
    name: &'static str,
    order: Order,
    /// The widest tile that it has a kernel for.
    widest: TileRows,
    has_tables: bool,
    /// Whether there are kernels for one matrix, and for a gate and its linear part.
    is_plain: bool,
    is_gated: bool,
}

/// The formats of published models: gates and linear parts of experts in some, their last matrices in others.
const KNOWN: [Known; 5] = [
    known(TensorType::Q8_0, "q8_0", Order::Near, TileRows::Many, [true, true]),
    known(TensorType::F16, "f16", Order::Near, TileRows::Some, [true, false]),
    known(TensorType::Q2_K, "q2_k", Order::Near, TileRows::Many, [true, false]),
    known(TensorType::Q4_K, "q4_k", Order::Far, TileRows::Some, [true, true]),
    Known { has_tables: true, ..known(TensorType::IQ2_XXS, "iq2_xxs", Order::Far, TileRows::Many, [false, true]) },
];

const fn known(
    kind: TensorType,
    name: &'static str,
    order: Order,
    widest: TileRows,
    [is_plain, is_gated]: [bool; 2],
) -> Known {
    Known { kind, name, order, widest, has_tables: false, is_plain, is_gated }
}

/// The kernels of this file's `.cu`.
pub(crate) struct Kernels {
    formats: Vec<Format>,
}

struct Format {
    kind: TensorType,
    order: Order,
    limits: Limits,
    /// By rows of a tile.
    plain: Vec<Function>,
    gated: Vec<Function>,
}

/// What [`gated`] does with a gate's and its linear part's results.
#[derive(Clone, Copy)]
pub(super) struct Gating<'a> {
    /// Bounds both.
    pub(super) clamp: f32,
    /// One weight per row, and the largest there can be; none: 1.
    pub(super) weights: Option<(&'a Scratch, f32)>,
    /// The matrix that the result is multiplied with.
    pub(super) next: &'a DeviceMatrix,
}

/// `GemmJob` of `cu/gemm.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Job {
    weights: DevicePtr,
    out: DevicePtr,
    outputs: u32,
    first_band: u32,
}

/// `Gemm` of `cu/gemm.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Argument {
    jobs: [Job; JOBS],
    second_weights: DevicePtr,
    operand: DevicePtr,
    rest: DevicePtr,
    scales: DevicePtr,
    groups: DevicePtr,
    hidden: DevicePtr,
    row_weights: DevicePtr,
    job_count: u32,
    columns: u32,
    parts: u32,
    rows: u32,
    tiles: u32,
    bands: u32,
    stages: u32,
    hidden_order: u32,
    groups_of_eight: u32,
    scale: f32,
    clamp: f32,
    hidden_scale: f32,
}

// SAFETY: two addresses and two words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for Job {}
// SAFETY: jobs, seven addresses and twelve words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for Argument {}

impl Kernels {
    pub(super) fn load(gpu: &Gpu, loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let limits = Limits {
            multiprocessors: gpu.multiprocessors() as usize,
            shared: gpu.max_shared_per_block() as usize,
            has_warpgroups: gpu.compute_capability().0 == 9,
            widest: TileRows::Few,
            has_tables: false,
            is_split: false,
        };
        let of = |file: &str, prefix: &str, known: &Known, limits: &Limits| -> Result<Vec<Function>, CudaError> {
            let each = limits.tiles().map(|rows| {
                let function = loader.function(file, &format!("gemm_{}_{prefix}{}", rows.count(), known.name))?;
                function.allow_shared(limits.stages(rows).1 as u32)?;
                Ok(function)
            });
            each.collect()
        };
        let format = |known: &Known| -> Result<Format, CudaError> {
            let is_split = precision(known.kind) == Precision::Two;
            let limits = Limits { widest: known.widest, has_tables: known.has_tables, is_split, ..limits };
            let plain = if known.is_plain { of("gemm", "", known, &limits)? } else { Vec::new() };
            let gated = if known.is_gated { of("gemm_gated", "gated_", known, &limits)? } else { Vec::new() };
            Ok(Format { kind: known.kind, order: known.order, limits, plain, gated })
        };
        Ok(Kernels { formats: KNOWN.iter().map(format).collect::<Result<_, _>>()? })
    }

    fn format(&self, matrix: &DeviceMatrix) -> &Format {
        let format = self.formats.iter().find(|format| format.kind == matrix.kind());
        format.expect("only matrices that `takes` said yes to are multiplied here")
    }
}

/// Whether this matrix is multiplied here: it has a format with kernels, its rows fill 16-byte loads, and it is not small
/// where activations are rounded.
pub(super) fn takes(matrix: &DeviceMatrix) -> bool {
    is_known(matrix, |known| known.is_plain)
}

/// Whether this gate, or linear part, is.
pub(super) fn takes_gate(matrix: &DeviceMatrix) -> bool {
    is_known(matrix, |known| known.is_gated)
}

fn is_known(matrix: &DeviceMatrix, has: impl Fn(&Known) -> bool) -> bool {
    let whole_loads = matrix.kind() != TensorType::F16 || matrix.columns().is_multiple_of(8);
    // The units add up without rounding to nearest, which shows in long sums.
    let precise = precision(matrix.kind()) == Precision::Two && matrix.columns() <= PRECISE_COLUMNS;
    whole_loads
        && (precise || !matrix.is_small())
        && KNOWN.iter().any(|known| known.kind == matrix.kind() && has(known))
}

/// In which order a matrix takes activations.
pub(super) fn order(device: &Device, matrix: &DeviceMatrix) -> Order {
    device.kernels.gemm.format(matrix).order
}

/// Half floats of an activation that a matrix of this type is multiplied with. Those that are half floats themselves are the
/// matrices whose results choose (routers, indexers, compressors), and are multiplied as if rows were f32.
pub(super) fn precision(kind: TensorType) -> Precision {
    if kind == TensorType::F16 { Precision::Two } else { Precision::One }
}

/// The products of a matrix with `rows` rows: `operand` has them part by part, in the matrix's order and precision.
#[track_caller]
pub(super) fn product(
    device: &Device,
    matrix: &DeviceMatrix,
    parts: usize,
    rows: usize,
    operand: &GemmOperand,
) -> DeviceRows {
    let out = device.rows(rows, matrix.rows());
    few_products(device, &[(matrix, &out)], parts, operand);
    out
}

/// The same of several matrices of one type, each to where its results go, in one launch for every eight of them.
pub(super) fn products(device: &Device, jobs: &[(&DeviceMatrix, &DeviceRows)], operand: &GemmOperand) {
    jobs.chunks(JOBS).for_each(|jobs| few_products(device, jobs, 1, operand));
}

fn few_products(device: &Device, all_jobs: &[(&DeviceMatrix, &DeviceRows)], parts: usize, operand: &GemmOperand) {
    let (first_matrix, rows) = (all_jobs[0].0, all_jobs[0].1.len());
    let Format { limits, plain, .. } = device.kernels.gemm.format(first_matrix);
    let (mut jobs, mut all) = ([Job::default(); JOBS], 0);
    for (job, (matrix, out)) in jobs.iter_mut().zip(all_jobs) {
        assert_eq!(matrix.kind(), first_matrix.kind(), "matrices of one type");
        assert_eq!((out.len(), out.width()), (rows, matrix.rows()), "results of {matrix:?}");
        let outputs = matrix.rows() / parts;
        let (first_band, outputs_word) = (all as u32, outputs as u32);
        *job = Job { weights: matrix.address(), out: out.address(), outputs: outputs_word, first_band };
        all += bands(outputs, false);
    }
    let tile = limits.for_rows(rows, parts, all);
    let work = Work { tile, tiles: rows.div_ceil(tile.count()) * parts, bands: all };
    let argument = Argument { jobs, job_count: all_jobs.len() as u32, ..describe([first_matrix; 2], operand) };
    let argument = Argument { parts: parts as u32, rows: rows as u32, ..argument };
    launch(device, &plain[tile as usize], limits, work, argument);
}

/// The products of a stack with the operand's rows, grouped by matrix: a result per slot.
pub(super) fn grouped(device: &Device, stack: &DeviceMatrix, slots: &Slots, operand: &GemmOperand) -> DeviceRows {
    let out = device.rows(slots.len(), stack.rows());
    let format = device.kernels.gemm.format(stack);
    let mut argument = Argument { groups: slots.groups(), ..describe([stack; 2], operand) };
    argument.jobs[0].out = out.address();
    let work = Work { tile: slots.tile(), tiles: slots.groups_most(), bands: bands(stack.rows(), false) };
    launch(device, &format.plain[work.tile as usize], &format.limits, work, argument);
    out
}

/// `silu(gate) * up * weight`, with the published clamps, of the operand's rows: as the operand of `gating.next`. The rows are
/// grouped by matrix where there are slots; otherwise there are `rows`.
pub(super) fn gated(
    device: &Device,
    matrices: [&DeviceMatrix; 2],
    rows: usize,
    slots: Option<&Slots>,
    operand: &GemmOperand,
    gating: &Gating<'_>,
) -> OwnGemmOperand {
    let outputs = matrices[0].rows();
    let (weights, most) = gating.weights.map_or((DevicePtr(0), 1.0), |(weights, most)| (weights.address(), most));
    // silu is nowhere larger than its argument's bound, and nowhere below -0.3.
    let largest = gating.clamp.max(1.0) * gating.clamp * most;
    let scale = (HIDDEN_MOST / largest).log2().floor().clamp(-126.0, 126.0).exp2();
    let order = order(device, gating.next);
    let hidden = OwnGemmOperand::scaled(device, operand.rows, outputs, order, 1.0 / scale);
    let format = device.kernels.gemm.format(matrices[0]);
    let bands = bands(outputs, true);
    let work = match slots {
        Some(slots) => Work { tile: slots.tile(), tiles: slots.groups_most(), bands },
        None => {
            let tile = format.limits.for_rows(rows, 1, bands);
            Work { tile, tiles: rows.div_ceil(tile.count()), bands }
        }
    };
    let argument = Argument {
        hidden: hidden.operand.halves,
        row_weights: weights,
        groups: slots.map_or(DevicePtr(0), Slots::groups),
        rows: rows as u32,
        hidden_order: order.number(),
        clamp: gating.clamp,
        hidden_scale: scale,
        ..describe(matrices, operand)
    };
    launch(device, &format.gated[work.tile as usize], &format.limits, work, argument);
    hidden
}

/// The tile for groups of a stack that have `mean` rows on average.
pub(super) fn tile_of_groups(device: &Device, stacks: [&DeviceMatrix; 2], mean: usize) -> TileRows {
    let tiles = stacks.map(|stack| device.kernels.gemm.format(stack).limits.for_groups(mean));
    tiles[0].min(tiles[1])
}

/// How much there is to do.
#[derive(Clone, Copy)]
struct Work {
    tile: TileRows,
    tiles: usize,
    bands: usize,
}

fn describe([first, second]: [&DeviceMatrix; 2], operand: &GemmOperand) -> Argument {
    assert_eq!((first.kind(), first.rows(), first.columns()), (second.kind(), second.rows(), second.columns()));
    assert_eq!(operand.columns, first.columns(), "rows fit {first:?}");
    assert_eq!(operand.precision(), precision(first.kind()), "{first:?} takes as many halves");
    let mut jobs = [Job::default(); JOBS];
    jobs[0] = Job { weights: first.address(), outputs: first.rows() as u32, ..Job::default() };
    Argument {
        jobs,
        second_weights: second.address(),
        operand: operand.halves,
        rest: operand.rest,
        scales: operand.scales,
        groups_of_eight: operand.groups() as u32,
        job_count: 1,
        columns: first.columns() as u32,
        parts: 1,
        scale: operand.scale,
        ..Argument::default()
    }
}

fn launch(device: &Device, function: &Function, limits: &Limits, work: Work, argument: Argument) {
    let (stages, shared) = limits.stages(work.tile);
    let argument = Argument { tiles: work.tiles as u32, bands: work.bands as u32, stages: stages as u32, ..argument };
    let blocks = limits.multiprocessors.min(work.tiles * work.bands);
    let start = Launch::new(blocks as u32, THREADS).shared(shared as u32).overlap();
    // SAFETY: the callers made the operand and the results of the sizes that the kernel's indices reach: rows of tiles lie
    // within the operand's, which is filled up to whole groups, and outputs past the last are not written, except those that
    // fill up a block of a hidden operand.
    unsafe { device.launch(function, start, &Args::new().with(argument)) };
}
