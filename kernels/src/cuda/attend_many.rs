//! Latent attention of many queries, from the product that makes heads to the one that takes their results.

use super::Cuda;
use super::attend::AttentionArgument;
use super::bank::DeviceBank;
use super::device::Device;
use super::gemm;
use super::gemm_operand::{Order, OwnGemmOperand, Precision};
use super::loader::Loader;
use super::multiply_plan::FEW_ROWS;
use super::rotate::RopeArgument;
use super::rows::DeviceRows;
use super::select::DeviceSelection;
use crate::backend::HeadPath;
use crate::bank::{BlockPlace, WindowPlace};
use crate::kv_rows::{KvFormat, ROTARY};
use crate::step::Step;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Gpu, Launch};
use ds4_units::Bytes;

/// Heads of a block of threads, the width that it is made for, and rows of a tile.
const HEADS: usize = 64;
const WIDTH: usize = 512;
const KEYS: usize = 64;
const THREADS: u32 = 384;
/// Shared memory of a block: a query's heads and two tiles of rows as halves, weights, two values per head, the turn of every
/// pair of channels, and what aligns it.
const SHARED: u32 = ((HEADS + 2 * KEYS) * WIDTH * 2 + HEADS * KEYS * 2 + 2 * HEADS * 4 + ROTARY / 2 * 8 + 1024) as u32;
const CONVERT_THREADS: usize = 256;

/// The kernels of this file's `.cu`, where the GPU has warpgroups.
pub(crate) struct Kernels(Option<Many>);

pub(super) struct Many {
    rows: Function,
    attend: Function,
}

/// `HeadPath` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct PathArgument {
    rope: RopeArgument,
    halves: DevicePtr,
    scales: DevicePtr,
    rows: u32,
    part_heads: u32,
    epsilon: f32,
    groups_of_eight: u32,
}

// SAFETY: `repr(C)`, doubles and addresses, then four 4-byte fields: no padding.
unsafe impl bytemuck::NoUninit for PathArgument {}

impl Kernels {
    pub(crate) fn load(gpu: &Gpu, loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        if gpu.compute_capability().0 != 9 {
            return Ok(Kernels(None));
        }
        let function = |name| loader.function("attend_many", name);
        let many = Many { rows: function("attend_many_rows")?, attend: function("attend_many")? };
        many.attend.allow_shared(SHARED)?;
        Ok(Kernels(Some(many)))
    }
}

/// The kernels, if they take a step of so many rows and these heads: there are enough rows to fill the GPU with one block for
/// 64 heads of each, and the product that follows takes halves.
pub(super) fn takes<'a, F: KvFormat>(
    device: &'a Device,
    rows: usize,
    path: &HeadPath<'_, Cuda<F>>,
) -> Option<&'a Many> {
    let heads = path.sinks.len();
    let blocks = rows * heads.div_ceil(HEADS);
    let enough = rows > FEW_ROWS && 2 * blocks >= device.gpu.multiprocessors() as usize;
    let parts = heads.is_multiple_of(path.groups) && HEADS.is_multiple_of(heads / path.groups);
    let shape = F::NAME == "packed" && path.width == WIDTH && parts;
    let follows = || {
        gemm::takes(path.output)
            && gemm::order(device, path.output) == Order::Near
            && gemm::precision(path.output.kind()) == Precision::One
    };
    device.kernels.attend_many.0.as_ref().filter(|_| enough && shape && follows())
}

/// The results of every row's heads, multiplied by `path.output`. Queries are given back before that.
pub(super) fn attend_heads<F: KvFormat>(
    device: &Device,
    kernels: &Many,
    step: &Step<'_, DeviceBank>,
    window: WindowPlace,
    compressed: Option<(BlockPlace, &DeviceSelection)>,
    (queries, new_rows): (DeviceRows, &DeviceRows),
    path: &HeadPath<'_, Cuda<F>>,
) -> DeviceRows {
    let (rows, heads) = (step.len(), path.sinks.len());
    assert_eq!((queries.width(), new_rows.width()), (heads * WIDTH, WIDTH), "heads of {WIDTH} channels");
    let values = rows * WIDTH;
    let own = device.scratch(Bytes((values * 2) as u64));
    let args = Args::new().with(new_rows.address()).with(own.address()).with((values / 2) as u32);
    let start = Launch::new((values / 2).div_ceil(CONVERT_THREADS) as u32, CONVERT_THREADS as u32);
    // SAFETY: a thread per pair of values; `own` has room for as many halves.
    unsafe { device.launch(&kernels.rows, start, &args) };

    let part_heads = heads / path.groups;
    let results = OwnGemmOperand::of_parts(device, rows, path.groups, part_heads * WIDTH, Order::Near);
    let argument = PathArgument {
        rope: RopeArgument::new(path.rope),
        halves: results.operand.halves,
        scales: results.operand.scales,
        rows: rows as u32,
        part_heads: part_heads as u32,
        epsilon: path.epsilon,
        groups_of_eight: results.operand.groups() as u32,
    };
    let attention = AttentionArgument::new(window, compressed, [&queries, new_rows], path.sinks);
    let args = Args::new().with(device.step()).with(attention).with(own.address()).with(argument);
    let start = Launch::new(0, THREADS).grid([rows as u32, heads.div_ceil(HEADS) as u32, 1]).shared(SHARED);
    // SAFETY: a block per row and 64 heads, in which parts do not end; the step's banks have their windows and the blocks of
    // every finished row, of which the selection names only such; `own` has the step's rows, and `results` room for all parts.
    unsafe { device.launch(&kernels.attend, start, &args) };
    drop((queries, own));
    gemm::product(device, path.output, path.groups, rows, &results.operand)
}
