//! Rows grouped by the experts they chose, and their experts' results added up.

use super::arena::Scratch;
use super::device::Device;
use super::gemm_operand::GROUP;
use super::gemm_plan::TileRows;
use super::loader::Loader;
use super::matrix::STACK_MAX;
use super::multiply::Groups;
use super::multiply_plan::GROUP_ROWS;
use super::route::DeviceRoutes;
use super::rows::DeviceRows;
use crate::experts::EXPERTS_USED;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_units::Bytes;

/// Warps of the grouping kernel, each with a counter per expert.
const GROUPING_WARPS: usize = 32;
/// Words that it has in shared memory at most: what every architecture has.
const GROUPING_WORDS: usize = 18 << 10;
/// Bytes of a group's description.
const GROUP_BYTES: usize = 16;

/// The kernels of this file's `.cu`.
pub(crate) struct Kernels {
    group: Function,
    combine: Function,
}

/// Routes in order of expert: a *slot* is a route's place in that order.
struct Grouped {
    sources: Scratch,
    slots: Scratch,
    weights: Scratch,
    groups: Scratch,
    /// Groups there can be.
    groups_most: usize,
    /// Slots there can be.
    len: usize,
}

/// Routes grouped for products with few rows.
pub(super) struct GroupedRoutes {
    grouped: Grouped,
    /// Rows of a group at most.
    rows: usize,
    routes: usize,
    stack: usize,
}

/// Routes grouped for the kernels of some rows: a group is an expert and a few of its rows.
pub(super) struct RoutedSlots {
    grouped: Grouped,
}

/// Routes grouped for products with many rows: every expert's first slot begins a group of the operand's rows.
pub(super) struct Slots {
    grouped: Grouped,
    tile: TileRows,
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
    slot_room: u32,
    slot_unit: u32,
}

// SAFETY: six addresses and six words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for Grouping {}

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let group = loader.function("experts", "experts_group")?;
        group.allow_shared((GROUPING_WORDS * size_of::<u32>()) as u32)?;
        Ok(Kernels { group, combine: loader.function("experts", "experts_combine")? })
    }
}

/// Warps of the block that groups over so many experts.
fn warps(stack: usize) -> usize {
    (GROUPING_WORDS / stack.max(1) - 2).min(GROUPING_WARPS)
}

fn shared_bytes(stack: usize) -> u32 {
    ((warps(stack) + 2) * stack * size_of::<u32>()) as u32
}

impl Grouped {
    /// Groups the routes over a stack of experts, at most `rows` a group, and begins every expert at a multiple of `unit`
    /// slots. Nothing comes back to the host: later launches cover as many groups as there could be.
    fn new(device: &Device, routes: &DeviceRoutes, stack: usize, rows: usize, unit: usize) -> Grouped {
        assert!(stack <= STACK_MAX, "{stack} experts are more than the {STACK_MAX} that a launch can group");
        let count = routes.rows() * EXPERTS_USED;
        let experts = stack.min(count);
        let (groups_most, len) = (experts + count / rows, (count + experts * (unit - 1)).next_multiple_of(unit));
        let words = |count: usize| device.scratch(Bytes((count * size_of::<u32>()) as u64));
        let grouped = Grouped {
            sources: words(len),
            slots: words(count),
            weights: words(len),
            groups: device.scratch(Bytes((groups_most * GROUP_BYTES) as u64)),
            groups_most,
            len,
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
            group_room: groups_most as u32,
            slot_room: len as u32,
            slot_unit: unit as u32,
        };
        let start = Launch::new(1, (warps(stack) * 32) as u32).shared(shared_bytes(stack)).overlap();
        // SAFETY: routes have a slot each, the other lists as many entries as there can be slots and groups; the kernel
        // takes expert ids past the stack as its last.
        unsafe { device.launch(&device.kernels.experts.group, start, &Args::new().with(grouping)) };
        grouped
    }

    /// Adds to every row of `sums` the results of its six slots, in the order of its routes.
    fn add(&self, device: &Device, sums: &mut DeviceRows, outputs: &DeviceRows) {
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

impl GroupedRoutes {
    /// Groups the routes over a stack of experts.
    pub(super) fn new(device: &Device, routes: &DeviceRoutes, stack: usize) -> GroupedRoutes {
        let count = routes.rows() * EXPERTS_USED;
        // An expert seldom has more rows than the step; where a table names one twice, it gets another group.
        let rows = GROUP_ROWS.min(routes.rows()).max(1);
        GroupedRoutes { grouped: Grouped::new(device, routes, stack, rows, 1), rows, routes: count, stack }
    }

    /// The groups over rows of the step.
    pub(super) fn by_row(&self) -> Groups {
        Groups { sources: self.grouped.sources.address(), ..self.by_slot() }
    }

    /// The groups over rows that lie slot by slot.
    pub(super) fn by_slot(&self) -> Groups {
        let experts = self.stack.min(self.routes).max(1);
        Groups {
            groups: self.grouped.groups.address(),
            sources: DevicePtr(0),
            most: self.grouped.groups_most,
            rows: self.rows,
            typical_rows: self.routes.div_ceil(experts).min(self.rows),
        }
    }

    /// Slots: as many as routes.
    pub(super) fn len(&self) -> usize {
        self.grouped.len
    }

    /// The weight of every slot.
    pub(super) fn weights(&self) -> &Scratch {
        &self.grouped.weights
    }

    /// Adds to every row of `sums` the results of its six slots, in the order of its routes.
    pub(super) fn add(&self, device: &Device, sums: &mut DeviceRows, outputs: &DeviceRows) {
        self.grouped.add(device, sums, outputs);
    }
}

impl RoutedSlots {
    /// Groups the routes over a stack of experts, at most `rows` a group.
    pub(super) fn new(device: &Device, routes: &DeviceRoutes, stack: usize, rows: usize) -> RoutedSlots {
        RoutedSlots { grouped: Grouped::new(device, routes, stack, rows, 1) }
    }

    /// Slots: as many as routes.
    pub(super) fn len(&self) -> usize {
        self.grouped.len
    }

    /// The groups; the first one says how many there are.
    pub(super) fn groups(&self) -> DevicePtr {
        self.grouped.groups.address()
    }

    /// The row of every slot.
    pub(super) fn sources(&self) -> DevicePtr {
        self.grouped.sources.address()
    }

    /// The weight of every slot.
    pub(super) fn weights(&self) -> DevicePtr {
        self.grouped.weights.address()
    }

    /// The slot of every route.
    pub(super) fn of_routes(&self) -> DevicePtr {
        self.grouped.slots.address()
    }

    /// Adds to every row of `sums` the results of its six slots, in the order of its routes.
    pub(super) fn add(&self, device: &Device, sums: &mut DeviceRows, outputs: &DeviceRows) {
        self.grouped.add(device, sums, outputs);
    }
}

impl Slots {
    /// Groups the routes over a stack of experts for such tiles.
    pub(super) fn new(device: &Device, routes: &DeviceRoutes, stack: usize, tile: TileRows) -> Slots {
        Slots { grouped: Grouped::new(device, routes, stack, tile.count(), GROUP), tile }
    }

    /// Slots there can be, whole groups of an operand's rows.
    pub(super) fn len(&self) -> usize {
        self.grouped.len
    }

    /// Rows of a tile.
    pub(super) fn tile(&self) -> TileRows {
        self.tile
    }

    /// The groups, and how many there can be: those that there are come first.
    pub(super) fn groups(&self) -> DevicePtr {
        self.grouped.groups.address()
    }

    /// See [`Slots::groups`].
    pub(super) fn groups_most(&self) -> usize {
        self.grouped.groups_most
    }

    /// The row of every slot.
    pub(super) fn sources(&self) -> DevicePtr {
        self.grouped.sources.address()
    }

    /// The weight of every slot.
    pub(super) fn weights(&self) -> &Scratch {
        &self.grouped.weights
    }

    /// Adds to every row of `sums` the results of its six slots, in the order of its routes.
    pub(super) fn add(&self, device: &Device, sums: &mut DeviceRows, outputs: &DeviceRows) {
        self.grouped.add(device, sums, outputs);
    }
}
