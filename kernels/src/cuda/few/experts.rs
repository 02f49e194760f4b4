//! The feed-forward site for few rows, in two launches.

use super::merge::MergeArgument;
use super::{PANEL, PLANE, ROW_PLANES, ROWS_FEW, ROWS_MAX, SHARED_MAX, THREADS, WARPS, blocks, panels};
use crate::backend::{Backend, Mlp};
use crate::cuda::device::Device;
use crate::cuda::loader::Loader;
use crate::cuda::matrix::DeviceMatrix;
use crate::cuda::route::DeviceRoutes;
use crate::cuda::rows::DeviceRows;
use crate::experts::{EXPERTS_USED, ExpertConstants};
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_units::TensorType;

/// Shared memory of the tables of IQ2_XXS, a copy a bank, and of a plane of zeros.
const TABLES: usize = 384 * 32 * 4;
const ZEROS: usize = PLANE + 32;
/// Bytes that a warp of `few_down` has for each routed row, and beside the shared expert's.
const DOWN_ONE: usize = ROW_PLANES + 64;
const DOWN_SCALES: usize = 64;
/// Blocks of threads for every multiprocessor.
const BLOCKS_EACH: usize = 2;

pub(crate) struct Kernels {
    up: [Function; 2],
    down: [Function; 2],
}

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| -> Result<Function, CudaError> {
            let function = loader.function("few_experts", name)?;
            function.allow_shared(SHARED_MAX as u32)?;
            Ok(function)
        };
        Ok(Kernels {
            up: [function("few_up_1")?, function("few_up_2")?],
            down: [function("few_down_1")?, function("few_down_2")?],
        })
    }
}

/// `Up` of `cu/few_experts.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Up {
    input: DevicePtr,
    routed: [DevicePtr; 2],
    shared: [DevicePtr; 2],
    experts: DevicePtr,
    weights: DevicePtr,
    hidden: DevicePtr,
    columns: u32,
    outputs: u32,
    rows: u32,
    shared_blocks: u32,
    stack: u32,
    clamp: f32,
}

/// `Down` of the same.
#[repr(C)]
#[derive(Clone, Copy)]
struct Down {
    merge: MergeArgument,
    hidden: DevicePtr,
    down: DevicePtr,
    shared_down: DevicePtr,
    experts: DevicePtr,
    out: DevicePtr,
    columns: u32,
    outputs: u32,
    rows: u32,
    stack: u32,
}

// SAFETY: eight addresses and six words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for Up {}
// SAFETY: a structure without gaps whose size is a multiple of 8, five addresses and four words.
unsafe impl bytemuck::NoUninit for Down {}

/// `shared(x) + sum of weight * expert(x)` for every row, if these kernels take the experts.
pub(in crate::cuda) fn feed_forward<B: Backend<Matrix = DeviceMatrix>>(
    device: &Device,
    routed: &Mlp<B>,
    shared: &Mlp<B>,
    constants: &ExpertConstants,
    routes: &DeviceRoutes,
    rows: &DeviceRows,
) -> Option<DeviceRows> {
    let (hidden, width, stack) = (routed.gate.columns(), routed.gate.rows(), routed.gate.stack());
    let up_shared = (TABLES + ZEROS + blocks(hidden) * (ROW_PLANES + 4))
        .max(blocks(hidden) * rows.len() * (ROW_PLANES + size_of::<f32>()));
    let down_shared = ZEROS + WARPS * (2 * DOWN_ONE + rows.len() * ROW_PLANES + DOWN_SCALES);
    let takes = rows.len() <= ROWS_MAX
        && [&routed.gate, &routed.up].iter().all(|matrix| matrix.kind() == TensorType::IQ2_XXS)
        && routed.down.kind() == TensorType::Q2_K
        && [&shared.gate, &shared.up, &shared.down].iter().all(|matrix| matrix.kind() == TensorType::Q8_0)
        && shared.gate.rows() == width
        && width.is_multiple_of(PANEL)
        && hidden.is_multiple_of(PANEL)
        && up_shared.max(down_shared) <= SHARED_MAX;
    if !takes {
        return None;
    }
    let grid = BLOCKS_EACH * device.gpu.multiprocessors() as usize;
    let kernels = &device.kernels.few.experts;
    let variant = usize::from(rows.len() > ROWS_FEW);
    let between = device.rows(rows.len(), (EXPERTS_USED + 1) * width);
    // By the bytes that each reads: 66 for 256 weights of a routed expert, 272 for as many of the shared one.
    let shared_blocks = (grid * 272 / (272 + rows.len() * EXPERTS_USED * 66)).clamp(1, panels(width));
    let up = Up {
        input: rows.address(),
        routed: [routed.gate.address(), routed.up.address()],
        shared: [shared.gate.address(), shared.up.address()],
        experts: routes.experts(),
        weights: routes.weights(),
        hidden: between.address(),
        columns: hidden as u32,
        outputs: width as u32,
        rows: rows.len() as u32,
        shared_blocks: shared_blocks as u32,
        stack: stack as u32,
        clamp: constants.clamp,
    };
    let launch = |shared: usize, blocks: usize| Launch::new(blocks as u32, THREADS).shared(shared as u32).overlap();
    // SAFETY: routes have six experts and weights a row, and ids past the stack are taken as its last; the matrices have
    // the shapes that were checked; `between` has seven results a row.
    unsafe { device.launch(&kernels.up[variant], launch(up_shared, grid), &Args::new().with(up)) };
    let out = device.rows(rows.len(), hidden);
    let down = Down {
        merge: MergeArgument::default(),
        hidden: between.address(),
        down: routed.down.address(),
        shared_down: shared.down.address(),
        experts: routes.experts(),
        out: out.address(),
        columns: width as u32,
        outputs: hidden as u32,
        rows: rows.len() as u32,
        stack: stack as u32,
    };
    let down_blocks = panels(hidden).min(grid);
    // SAFETY: as above; the launch before it has filled `between`.
    unsafe { device.launch(&kernels.down[variant], launch(down_shared, down_blocks), &Args::new().with(down)) };
    Some(out)
}
