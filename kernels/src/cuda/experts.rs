//! Rows grouped by the experts they chose, and their experts' results added up.

use super::arena::Scratch;
use super::device::Device;
use super::loader::Loader;
use super::matrix::STACK_MAX;
use super::multiply::Groups;
use super::multiply_plan::GroupRows;
use super::route::DeviceRoutes;
use super::rows::DeviceRows;
use crate::experts::EXPERTS_USED;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_units::Bytes;

/// Warps of the grouping kernel, each with a counter per expert.
const GROUPING_WARPS: usize = 16;
/// Bytes of a group's description.
const GROUP_BYTES: usize = 16;

/// The kernels of this file's `.cu`.
pub(crate) struct Kernels {
    group: Function,
    combine: Function,
}

/// Routes in order of expert: a *slot* is a route's place in that order.
pub(super) struct GroupedRoutes {
    sources: Scratch,
    slots: Scratch,
    weights: Scratch,
    groups: Scratch,
    most: usize,
    kernel: GroupRows,
    /// Rows of a group at most.
    rows: usize,
    routes: usize,
    stack: usize,
}

/// `Grouping` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Grouping {
    experts: DevicePtr,
    weights: DevicePtr,
    sources: DevicePtr,
    slots: DevicePtr,
    slot_weights: DevicePtr,
    groups: DevicePtr,
    routes: u32,
    stack: u32,
    group_rows: u32,
    group_room: u32,
}

// SAFETY: six addresses and four words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for Grouping {}

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let group = loader.function("experts", "experts_group")?;
        group.allow_shared(shared_bytes(STACK_MAX))?;
        Ok(Kernels { group, combine: loader.function("experts", "experts_combine")? })
    }
}

fn shared_bytes(stack: usize) -> u32 {
    ((GROUPING_WARPS + 2) * stack * size_of::<u32>()) as u32
}

impl GroupedRoutes {
    /// Groups the routes over a stack of experts. Nothing comes back to the host: later launches cover as many groups
    /// as there could be.
    pub(super) fn new(device: &Device, routes: &DeviceRoutes, stack: usize) -> GroupedRoutes {
        assert!(stack <= STACK_MAX, "{stack} experts are more than the {STACK_MAX} that a launch can group");
        let count = routes.rows() * EXPERTS_USED;
        let kernel = kernel(count, stack);
        // An expert seldom has more rows than the step; where a table names one twice, it gets another group.
        let rows = kernel.count().min(routes.rows()).max(1);
        let most = stack.min(count) + count / rows;
        let words = |count: usize| device.scratch(Bytes((count * size_of::<u32>()) as u64));
        let grouped = GroupedRoutes {
            sources: words(count),
            slots: words(count),
            weights: words(count),
            groups: device.scratch(Bytes((most * GROUP_BYTES) as u64)),
            most,
            kernel,
            rows,
            routes: count,
            stack,
        };
        let grouping = Grouping {
            experts: routes.experts(),
            weights: routes.weights(),
            sources: grouped.sources.address(),
            slots: grouped.slots.address(),
            slot_weights: grouped.weights.address(),
            groups: grouped.groups.address(),
            routes: count as u32,
            stack: stack as u32,
            group_rows: rows as u32,
            group_room: most as u32,
        };
        let start = Launch::new(1, (GROUPING_WARPS * 32) as u32).shared(shared_bytes(stack)).overlap();
        // SAFETY: every list was made as long as there are routes, and `groups` as long as there can be groups; the
        // kernel takes expert ids past the stack as its last.
        unsafe { device.launch(&device.kernels.experts.group, start, &Args::new().with(grouping)) };
        grouped
    }

    /// The groups over rows of the step.
    pub(super) fn by_row(&self) -> Groups {
        Groups { sources: self.sources.address(), ..self.by_slot() }
    }

    /// The groups over rows that lie slot by slot.
    pub(super) fn by_slot(&self) -> Groups {
        let experts = self.stack.min(self.routes).max(1);
        Groups {
            groups: self.groups.address(),
            sources: DevicePtr(0),
            most: self.most,
            kernel: self.kernel,
            rows: self.rows,
            typical_rows: self.routes.div_ceil(experts).min(self.rows),
        }
    }

    /// Slots: as many as routes.
    pub(super) fn len(&self) -> usize {
        self.routes
    }

    /// The weight of every slot.
    pub(super) fn weights(&self) -> &Scratch {
        &self.weights
    }

    /// Adds to every row of `sums` the results of its six slots, in the order of its routes.
    pub(super) fn add(&self, device: &Device, sums: &mut DeviceRows, outputs: &DeviceRows) {
        let (rows, width) = (sums.len(), sums.width());
        let args = Args::new()
            .with(sums.changed())
            .with(outputs.address())
            .with(self.slots.address())
            .with(width as u32)
            .with(0u32);
        let start = Launch::new(1, 256).grid([width.div_ceil(256).min(32) as u32, rows as u32, 1]).overlap();
        // SAFETY: `outputs` has a row of the same width per slot, and `slots` six entries per row of `sums`.
        unsafe { device.launch(&device.kernels.experts.combine, start, &args) };
    }
}

/// As few groups as possible without multiplying many rows that are not there.
fn kernel(routes: usize, stack: usize) -> GroupRows {
    match routes {
        _ if routes <= 4 * stack => GroupRows::Eight,
        _ if routes <= 12 * stack => GroupRows::Sixteen,
        _ => GroupRows::SixtyFour,
    }
}
