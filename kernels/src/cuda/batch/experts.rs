//! The feed-forward site: experts' products over rows grouped by expert.

use super::merge;
use super::operand::{FixedArgument, FixedRows, Order};
use super::products::{Input, multiply_all, multiply_gated};
use super::{CHANNELS, ROWS, blocks};
use crate::backend::{Backend, Experts, HyperSite, Mlp};
use crate::cuda::device::Device;
use crate::cuda::experts::RoutedSlots;
use crate::cuda::feed_forward;
use crate::cuda::loader::Loader;
use crate::cuda::matrix::DeviceMatrix;
use crate::cuda::multiply;
use crate::cuda::route::{self, DeviceRoutes, ExpertTable};
use crate::cuda::rows::DeviceRows;
use crate::cuda::vector::DeviceVector;
use crate::experts::ExpertConstants;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Gpu, Launch};
use ds4_units::TensorType;

/// Rows of a group at most.
const GROUP_ROWS: usize = 2;
/// Rows in shared memory at a time, at most.
const STAGED_MAX: usize = 8;
/// Experts' shared memory beside rows, and of a row's block of channels.
const UP: Shape = Shape { warps: 20, stages: 2, tile: 2 * 1056, fixed: (64 << 10) + 10 * 512, block: 512 + 4 };
const DOWN: Shape = Shape { warps: 16, stages: 4, tile: 1344, fixed: 0, block: 512 + 64 + 4 };
/// A block of zeros, and what kernels have beside the shared memory that a launch asks for.
const ZEROS: usize = 512;
const STATIC: usize = 1 << 10;

/// What a kernel keeps in shared memory.
struct Shape {
    warps: usize,
    /// Places of a warp's ring, and their bytes.
    stages: usize,
    tile: usize,
    fixed: usize,
    block: usize,
}

impl Shape {
    fn threads(&self) -> u32 {
        (self.warps * 32) as u32
    }

    /// Shared memory with so many rows.
    fn shared(&self, rows: usize, columns: usize) -> usize {
        let places = self.warps * self.stages;
        let rest = self.fixed + places * self.tile + ZEROS + (places + 1) * size_of::<u64>();
        rest.next_multiple_of(128) + rows * blocks(columns) * self.block
    }

    /// Rows that find room at a time; those of one group have to.
    fn rows(&self, device: &Device, columns: usize) -> Option<usize> {
        let most = (device.gpu.max_shared_per_block() as usize).saturating_sub(STATIC);
        (GROUP_ROWS..=STAGED_MAX).rev().find(|&rows| self.shared(rows, columns) <= most)
    }
}

pub(crate) struct Kernels {
    up: Function,
    down: Function,
}

impl Kernels {
    pub(super) fn load(gpu: &Gpu, loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| -> Result<Function, CudaError> {
            let function = loader.function("batch_experts", name)?;
            function.allow_shared(gpu.max_shared_per_block().saturating_sub(STATIC as u32))?;
            Ok(function)
        };
        Ok(Kernels { up: function("batch_up")?, down: function("batch_down")? })
    }
}

/// `BatchExperts` of `cu/batch_experts.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Argument {
    rows: FixedArgument,
    stacks: [DevicePtr; 2],
    groups: DevicePtr,
    sources: DevicePtr,
    weights: DevicePtr,
    out: DevicePtr,
    columns: u32,
    outputs: u32,
    clamp: f32,
    rows_at_once: u32,
}

// SAFETY: nine addresses and four words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for Argument {}

/// `shared(x) + sum of weight * expert(x)` for every row, if these kernels take the experts.
pub(in crate::cuda) fn feed_forward<B: Backend<Matrix = DeviceMatrix>>(
    device: &Device,
    [routed, shared]: [&Mlp<B>; 2],
    constants: &ExpertConstants,
    routes: &DeviceRoutes,
    rows: &DeviceRows,
) -> Option<DeviceRows> {
    takes(device, routed, shared, rows).then_some(())?;
    let (_, mut sums) = dense_products(device, &[], shared, constants, rows);
    let (slots, outputs) = routed_outputs(device, routed, constants, routes, rows);
    slots.add(device, &mut sums, &outputs);
    Some(sums)
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
    let (routed, shared, constants) = (experts.routed, experts.shared, experts.constants);
    if !takes(device, routed, shared, rows) || !merge::takes(into[0], routed.down.rows()) {
        return false;
    }
    let (logits, output) = dense_products(device, &[experts.router], shared, constants, rows);
    let routes = route::route(device, &logits[0], experts.routing, constants);
    let (slots, outputs) = routed_outputs(device, routed, constants, &routes, rows);
    merge::merge(device, &output, Some((&outputs, &slots)), into, next);
    true
}

fn takes<B: Backend<Matrix = DeviceMatrix>>(
    device: &Device,
    routed: &Mlp<B>,
    shared: &Mlp<B>,
    rows: &DeviceRows,
) -> bool {
    let (hidden, width) = (routed.gate.columns(), routed.gate.rows());
    let is = |matrices: &[&DeviceMatrix], kind| matrices.iter().all(|matrix| matrix.kind() == kind);
    ROWS.contains(&rows.len())
        && !routed.gate.is_small()
        && is(&[&routed.gate, &routed.up], TensorType::IQ2_XXS)
        && is(&[&routed.down], TensorType::Q2_K)
        && is(&[&shared.gate, &shared.up, &shared.down], TensorType::Q8_0)
        && width.is_multiple_of(CHANNELS)
        && blocks(width) >= DOWN.stages
        && hidden.is_multiple_of(2 * CHANNELS)
        && blocks(hidden) >= 2 * UP.stages
        && UP.rows(device, hidden).is_some()
        && DOWN.rows(device, width).is_some()
}

/// The products of `matrices`, and what the shared expert makes of the rows: one launch and another where there are kernels.
fn dense_products<B: Backend<Matrix = DeviceMatrix>>(
    device: &Device,
    matrices: &[&DeviceMatrix],
    shared: &Mlp<B>,
    constants: &ExpertConstants,
    rows: &DeviceRows,
) -> (Vec<DeviceRows>, DeviceRows) {
    let all: Vec<_> = matrices.iter().copied().chain([&shared.gate, &shared.up]).collect();
    let together = multiply_all(device, &all, rows).and_then(|mut products| {
        let ([linear, gate], clamp) = ([products.pop()?, products.pop()?], constants.clamp);
        let input = Input::Gated { gate: &gate, linear: &linear, clamp };
        Some((products, multiply_gated(device, &shared.down, input)?))
    });
    together.unwrap_or_else(|| {
        let products = matrices.iter().map(|matrix| multiply::multiply(device, matrix, rows)).collect();
        (products, feed_forward::shared_expert(device, shared, constants, rows))
    })
}

/// What the chosen experts make of every row, slot by slot.
fn routed_outputs<B: Backend<Matrix = DeviceMatrix>>(
    device: &Device,
    routed: &Mlp<B>,
    constants: &ExpertConstants,
    routes: &DeviceRoutes,
    rows: &DeviceRows,
) -> (RoutedSlots, DeviceRows) {
    let (hidden, width) = (routed.gate.columns(), routed.gate.rows());
    let slots = RoutedSlots::new(device, routes, routed.gate.stack(), GROUP_ROWS);
    let input = FixedRows::new(device, rows, Order::Grid);
    let between = device.rows(slots.len(), width);
    let kernels = &device.kernels.batch.experts;
    let start = |function: &Function, shape: &Shape, argument: Argument| {
        // What was checked has room for some.
        let rows = shape.rows(device, argument.columns as usize).unwrap_or(0);
        let argument = Argument { rows_at_once: rows as u32, ..argument };
        let launch = Launch::new(device.gpu.multiprocessors(), shape.threads())
            .shared(shape.shared(rows, argument.columns as usize) as u32)
            .overlap();
        // SAFETY: the groups' experts are in the stacks and their slots have a row each; the matrices have the shapes that
        // were checked; there is a result for every slot, and shared memory for so many rows.
        unsafe { device.launch(function, launch, &Args::new().with(argument)) };
    };
    let up = Argument {
        rows: input.argument(),
        stacks: [routed.gate.address(), routed.up.address()],
        groups: slots.groups(),
        sources: slots.sources(),
        weights: slots.weights(),
        out: between.address(),
        columns: hidden as u32,
        outputs: width as u32,
        clamp: constants.clamp,
        rows_at_once: 0,
    };
    start(&kernels.up, &UP, up);
    let between = FixedRows::new(device, &between, Order::Planes);
    let outputs = device.rows(slots.len(), hidden);
    let down = Argument {
        rows: between.argument(),
        stacks: [routed.down.address(), DevicePtr(0)],
        sources: DevicePtr(0),
        weights: DevicePtr(0),
        out: outputs.address(),
        columns: width as u32,
        outputs: hidden as u32,
        ..up
    };
    start(&kernels.down, &DOWN, down);
    (slots, outputs)
}
