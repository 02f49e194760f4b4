//! Activations of many rows as the matrix units take them: `cu/gemm_operand.cuh` has the format.

use super::arena::Scratch;
use super::device::Device;
use super::loader::Loader;
use super::rows::DeviceRows;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_units::Bytes;

/// Channels of a block.
const BLOCK: usize = 256;
/// Rows of a group.
pub(super) const GROUP: usize = 8;
const THREADS: u32 = 256;

/// The kernels of this file's `.cu`.
pub(crate) struct Kernels {
    rows: Function,
    gather: Function,
}

/// Which channels a format's lanes supply together: of 32 neighbours, or of 256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Near,
    Far,
}

/// Half floats that an activation is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// One: 11 bits.
    One,
    /// What the first leaves is written as a second: 22 bits.
    Two,
}

/// Where `rows` rows of `columns` channels lie as an operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GemmOperand {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) order: Order,
    pub(super) halves: DevicePtr,
    /// What the halves leave, as halves; null: nobody knows.
    pub(super) rest: DevicePtr,
    /// What every row's results are multiplied with; null: `scale`.
    pub(super) scales: DevicePtr,
    pub(super) scale: f32,
}

/// An operand and its memory.
pub(crate) struct OwnGemmOperand {
    pub(super) operand: GemmOperand,
    _memory: Scratch,
}

/// `GemmOperand` of `cu/gemm_operand.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Target {
    halves: DevicePtr,
    rest: DevicePtr,
    scales: DevicePtr,
    columns: u32,
    order: u32,
    groups: u32,
    reserved: u32,
}

// SAFETY: three addresses and four words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for Target {}

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| loader.function("gemm_operand", name);
        Ok(Kernels { rows: function("gemm_operand_rows")?, gather: function("gemm_operand_gather")? })
    }
}

/// The rows as an operand, converted the first time that it is asked for.
pub(super) fn of_rows(device: &Device, rows: &DeviceRows, order: Order, precision: Precision) -> GemmOperand {
    let operand = rows.gemm_operand(order, precision, || of_parts(device, rows, 1, order, precision)).operand;
    match precision {
        Precision::One => GemmOperand { rest: DevicePtr(0), ..operand },
        Precision::Two => operand,
    }
}

/// The `parts` equal parts of every row: part by part as many rows as there are, filled up to whole groups.
#[track_caller]
pub(super) fn of_parts(
    device: &Device,
    rows: &DeviceRows,
    parts: usize,
    order: Order,
    precision: Precision,
) -> OwnGemmOperand {
    let columns = rows.width() / parts;
    let own = OwnGemmOperand::new(device, rows.len().next_multiple_of(GROUP) * parts, columns, order, precision);
    let args = Args::new().with(rows.address()).with(own.operand.target());
    let start = Launch::new(1, THREADS).grid([rows.len() as u32, parts as u32, 1]).overlap();
    // SAFETY: a block per row and part; the kernel reads the rows and writes what `new` made room for.
    unsafe { device.launch(&device.kernels.gemm_operand.rows, start, &args) };
    own
}

/// Row `sources[slot]` of an operand for every one of `slots` slots. `sources` has that many entries.
pub(super) fn gather(device: &Device, from: &GemmOperand, sources: DevicePtr, slots: usize) -> OwnGemmOperand {
    let own = OwnGemmOperand::new(device, slots, from.columns, from.order, Precision::One);
    let args = Args::new()
        .with(from.halves)
        .with(from.scales)
        .with(sources)
        .with(own.operand.target())
        .with(from.groups() as u32)
        .with(0u32);
    let start = Launch::new(slots as u32, THREADS).overlap();
    // SAFETY: sources are rows of `from` or say that there is none, and `new` made room for every slot.
    unsafe { device.launch(&device.kernels.gemm_operand.gather, start, &args) };
    own
}

impl OwnGemmOperand {
    /// Room for an operand, whose rows have scales of their own.
    #[track_caller]
    fn new(device: &Device, rows: usize, columns: usize, order: Order, precision: Precision) -> OwnGemmOperand {
        let own = halves_bytes(rows, columns);
        let all = if precision == Precision::Two { 2 * own } else { own };
        let memory = device.scratch(Bytes((all + rows * size_of::<f32>()) as u64));
        let halves = memory.address();
        let rest = if precision == Precision::Two { halves.offset(own as u64) } else { DevicePtr(0) };
        let scales = halves.offset(all as u64);
        let operand = GemmOperand { rows, columns, order, halves, rest, scales, scale: 1.0 };
        OwnGemmOperand { operand, _memory: memory }
    }

    /// Room for an operand of `parts` parts of `rows` rows each, filled up to whole groups.
    #[track_caller]
    pub(super) fn of_parts(device: &Device, rows: usize, parts: usize, columns: usize, order: Order) -> OwnGemmOperand {
        OwnGemmOperand::new(device, rows.next_multiple_of(GROUP) * parts, columns, order, Precision::One)
    }

    /// Room for an operand that a product writes, every row with the same scale.
    #[track_caller]
    pub(super) fn scaled(device: &Device, rows: usize, columns: usize, order: Order, scale: f32) -> OwnGemmOperand {
        let memory = device.scratch(Bytes(halves_bytes(rows, columns) as u64));
        let (halves, none) = (memory.address(), DevicePtr(0));
        let operand = GemmOperand { rows, columns, order, halves, rest: none, scales: none, scale };
        OwnGemmOperand { operand, _memory: memory }
    }
}

impl GemmOperand {
    fn target(&self) -> Target {
        Target {
            halves: self.halves,
            rest: self.rest,
            scales: self.scales,
            columns: self.columns as u32,
            order: self.order.number(),
            groups: self.groups() as u32,
            reserved: 0,
        }
    }

    /// Groups of eight rows, the last one filled up.
    pub(super) fn groups(&self) -> usize {
        self.rows.div_ceil(GROUP)
    }

    /// Half floats of an activation.
    pub(super) fn precision(&self) -> Precision {
        if self.rest == DevicePtr(0) { Precision::One } else { Precision::Two }
    }
}

impl Order {
    /// `Order` of `cu/gemm_operand.cuh`.
    pub(super) fn number(self) -> u32 {
        match self {
            Order::Near => 0,
            Order::Far => 1,
        }
    }
}

fn halves_bytes(rows: usize, columns: usize) -> usize {
    rows.next_multiple_of(GROUP) * columns.next_multiple_of(BLOCK) * 2
}
