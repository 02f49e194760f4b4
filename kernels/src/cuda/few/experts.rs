//! The feed-forward site for few rows, in two launches.

use super::enter::{self, DueMixes};
use super::merge::{self, MergeArgument};
use super::route::{self, STACK_MAX};
use super::{PANEL, PLANE, ROW_PLANES, ROWS_FEW, ROWS_MAX, SHARED_MAX, THREADS, WARPS, blocks, panels};
use crate::backend::{Backend, Experts, HyperSite, Mlp};
use crate::cuda::device::Device;
use crate::cuda::loader::Loader;
use crate::cuda::matrix::DeviceMatrix;
use crate::cuda::route::{DeviceRoutes, ExpertTable};
use crate::cuda::rows::DeviceRows;
use crate::cuda::vector::DeviceVector;
use crate::experts::{EXPERTS_USED, ExpertConstants};
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_units::TensorType;

/// Where the tables of IQ2_XXS lie in shared memory, which have a copy a bank, and where they end.
const TABLES: usize = 32 << 10;
const UP_SHARED: usize = TABLES + 384 * 32 * 4;
/// Shared memory below the tables that is not for a row: the kernel's own and the driver's.
const UP_OWN: usize = 13 << 10;
const UP_THREADS: u32 = 512;
/// A plane of zeros.
const ZEROS: usize = PLANE + 32;
/// Bytes that a warp of `few_down` has for each routed row, and beside the shared expert's.
const DOWN_ONE: usize = ROW_PLANES + 64;
const DOWN_SCALES: usize = 64;
/// Blocks of threads of the router that are still there when `few_up` begins.
const ROUTER_BLOCKS: usize = 1;
/// Blocks of threads of `few_down` for every multiprocessor.
const DOWN_BLOCKS: usize = 2;

pub(crate) struct Kernels {
    up: Function,
    down: [Function; 2],
}

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| -> Result<Function, CudaError> {
            let function = loader.function("few_experts", name)?;
            function.allow_shared(SHARED_MAX as u32)?;
            Ok(function)
        };
        Ok(Kernels { up: function("few_up")?, down: [function("few_down_1")?, function("few_down_2")?] })
    }
}

/// `Up` of `cu/few_experts.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Up {
    input: DevicePtr,
    routed: [DevicePtr; 2],
    shared: [DevicePtr; 2],
    hidden: DevicePtr,
    shared_hidden: DevicePtr,
    experts: DevicePtr,
    weights: DevicePtr,
    mixes: DueMixes,
    columns: u32,
    outputs: u32,
    rows: u32,
    stack: u32,
    clamp: f32,
    reserved: u32,
}

/// `Down` of the same.
#[repr(C)]
#[derive(Clone, Copy)]
struct Down {
    merge: MergeArgument,
    hidden: DevicePtr,
    shared_hidden: DevicePtr,
    down: DevicePtr,
    shared_down: DevicePtr,
    out: DevicePtr,
    experts: DevicePtr,
    columns: u32,
    outputs: u32,
    rows: u32,
    stack: u32,
}

// SAFETY: addresses, a structure without gaps whose size is a multiple of 8, and six words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for Up {}
// SAFETY: a structure without gaps whose size is a multiple of 8, six addresses and four words.
unsafe impl bytemuck::NoUninit for Down {}

/// `shared(x) + sum of weight * expert(x)` for every row, if these kernels take the experts.
pub(in crate::cuda) fn routed<B: Backend<Matrix = DeviceMatrix>>(
    device: &Device,
    [routed, shared]: [&Mlp<B>; 2],
    constants: &ExpertConstants,
    routes: &DeviceRoutes,
    rows: &DeviceRows,
) -> Option<DeviceRows> {
    let site = Site::of([routed, shared], constants, rows)?;
    let out = device.rows(rows.len(), site.hidden);
    let between = Between::room(device, rows.len(), site.width);
    // Rows and routes may be the last launch's.
    site.up(device, routes, rows, &between, DueMixes::default(), |launch| launch);
    site.down(device, routes, &between, (MergeArgument::default(), out.address()));
    Some(out)
}

/// The router's product, its routes and their experts, merged into the streams, if these kernels take all of it.
pub(in crate::cuda) fn feed_forward_and_merge<B>(
    device: &Device,
    experts: &Experts<'_, B>,
    rows: &DeviceRows,
    into: [&mut DeviceRows; 2],
    next: Option<&HyperSite<B>>,
) -> bool
where
    B: Backend<Matrix = DeviceMatrix, Vector = DeviceVector, ExpertTable = ExpertTable>,
{
    let site = Site::of([experts.routed, experts.shared], experts.constants, rows);
    let Some(site) = site.filter(|site| merge::takes(into[0], site.hidden)) else {
        return false;
    };
    // Written before the router's launch is waited for, so taken before it: see `arena.rs`.
    let between = Between::room(device, rows.len(), site.width);
    let Some(routes) = route::route(device, experts.router, experts.routing, experts.constants, rows) else {
        return false;
    };
    // The mixes that merge values are made of are given back with the streams that were. Rows and mixes were there before
    // the launch of the router, which was waited for.
    site.up(device, &routes, rows, &between, enter::due(into[1]), Launch::overlap);
    let merging = merge::merging(device, into, next);
    site.down(device, &routes, &between, (merging, DevicePtr(0)));
    true
}

/// What gates and linear parts make: of every route, and of the shared expert.
struct Between {
    hidden: DeviceRows,
    shared: DeviceRows,
}

impl Between {
    fn room(device: &Device, len: usize, width: usize) -> Between {
        Between { hidden: device.rows(len, EXPERTS_USED * width), shared: device.rows(len, width) }
    }
}

/// A site's experts, and what its launches need.
struct Site<'a, B: Backend> {
    routed: &'a Mlp<B>,
    shared: &'a Mlp<B>,
    clamp: f32,
    hidden: usize,
    width: usize,
    down_shared: usize,
}

impl<'a, B: Backend<Matrix = DeviceMatrix>> Site<'a, B> {
    /// Nothing where these kernels do not take the experts.
    fn of([routed, shared]: [&'a Mlp<B>; 2], constants: &ExpertConstants, rows: &DeviceRows) -> Option<Site<'a, B>> {
        let (hidden, width) = (routed.gate.columns(), routed.gate.rows());
        let up_row = ZEROS + blocks(hidden) * (ROW_PLANES + size_of::<f32>());
        let down_shared = ZEROS + WARPS * (2 * DOWN_ONE + rows.len() * ROW_PLANES + DOWN_SCALES);
        let is = |matrices: &[&DeviceMatrix], kind| matrices.iter().all(|matrix| matrix.kind() == kind);
        let takes = rows.len() <= ROWS_MAX
            && !routed.gate.is_small()
            && routed.gate.stack() <= STACK_MAX
            && is(&[&routed.gate, &routed.up], TensorType::IQ2_XXS)
            && is(&[&routed.down], TensorType::Q2_K)
            && is(&[&shared.gate, &shared.up, &shared.down], TensorType::Q8_0)
            && shared.gate.rows() == width
            && width.is_multiple_of(PANEL)
            && hidden.is_multiple_of(PANEL)
            && UP_OWN + up_row <= TABLES
            && down_shared <= SHARED_MAX;
        takes.then_some(Site { routed, shared, clamp: constants.clamp, hidden, width, down_shared })
    }

    /// Starts the first kernel. `mixes`: merge values that it makes as well. `overlap`: whether it may begin beside the launch
    /// in front of it, which then has to be that of the routes, and to have waited for the one that made the rows.
    fn up(
        &self,
        device: &Device,
        routes: &DeviceRoutes,
        rows: &DeviceRows,
        between: &Between,
        mixes: DueMixes,
        overlap: impl FnOnce(Launch) -> Launch,
    ) {
        let (routed, shared) = (self.routed, self.shared);
        let up = Up {
            input: rows.address(),
            routed: [routed.gate.address(), routed.up.address()],
            shared: [shared.gate.address(), shared.up.address()],
            hidden: between.hidden.address(),
            shared_hidden: between.shared.address(),
            experts: routes.experts(),
            weights: routes.weights(),
            mixes,
            columns: self.hidden as u32,
            outputs: self.width as u32,
            rows: rows.len() as u32,
            stack: routed.gate.stack() as u32,
            clamp: self.clamp,
            reserved: 0,
        };
        // A block of threads a multiprocessor: those that make merge values are some of them, and one multiprocessor is left to
        // the router's last block, which chooses while these begin. A block that waited for its place ended 5 us after the rest.
        let most = (device.gpu.multiprocessors() as usize).saturating_sub(mixes.blocks() + ROUTER_BLOCKS).max(1);
        let blocks = most.min(rows.len() * EXPERTS_USED * panels(self.width)) + mixes.blocks();
        let launch = overlap(Launch::new(blocks as u32, UP_THREADS).shared(UP_SHARED as u32));
        // SAFETY: six experts and weights a row, and ids past the stack are taken as its last; the matrices have the shapes
        // that were checked; `between` has six results a row, and the shared expert's. What is read before the launch in
        // front of this one is waited for was there before that one began.
        unsafe { device.launch(&device.kernels.few.experts.up, launch, &Args::new().with(up)) };
    }

    /// Starts the second kernel.
    fn down(
        &self,
        device: &Device,
        routes: &DeviceRoutes,
        between: &Between,
        (merge, out): (MergeArgument, DevicePtr),
    ) {
        let down = Down {
            merge,
            hidden: between.hidden.address(),
            shared_hidden: between.shared.address(),
            down: self.routed.down.address(),
            shared_down: self.shared.down.address(),
            out,
            experts: routes.experts(),
            columns: self.width as u32,
            outputs: self.hidden as u32,
            rows: between.shared.len() as u32,
            stack: self.routed.down.stack() as u32,
        };
        let blocks = panels(self.hidden).min(DOWN_BLOCKS * device.gpu.multiprocessors() as usize);
        let launch = Launch::new(blocks as u32, THREADS).shared(self.down_shared as u32).overlap();
        let kernel = &device.kernels.few.experts.down[usize::from(between.shared.len() > ROWS_FEW)];
        // SAFETY: as above; the launch before it has filled `between`; there is a result for every row, or streams.
        unsafe { device.launch(kernel, launch, &Args::new().with(down)) };
    }
}
