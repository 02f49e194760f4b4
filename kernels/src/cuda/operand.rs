//! Activations as the matrix units take them: `cu/operand.cuh` has the format.

use super::arena::Scratch;
use super::device::Device;
use super::loader::Loader;
use super::rows::DeviceRows;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_units::Bytes;

/// Channels of a block.
pub(super) const BLOCK: usize = 256;
/// Bytes that a block of a row takes: 64 quads and four sums of 16 bytes.
const BLOCK_BYTES: usize = (64 + 4) * 16;
/// Threads of a block where many rows are converted, and where few are.
const THREADS: [usize; 2] = [256, 1024];

/// The kernels of this file's `.cu`.
pub(crate) struct Kernels {
    rows: Function,
    activated: Function,
}

/// Where `rows` converted rows of `columns` channels lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) halves: DevicePtr,
    pub(super) scales: DevicePtr,
}

/// An operand and its memory.
pub(super) struct OwnOperand {
    memory: Scratch,
    rows: usize,
    columns: usize,
}

/// Where a kernel writes an operand.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Destination {
    operand: DevicePtr,
    scales: DevicePtr,
    columns: u32,
    reserved: u32,
}

// SAFETY: two addresses and two words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for Destination {}

/// What [`Operand::activated`] makes an operand of.
pub(super) struct Gates<'a> {
    pub(super) gates: &'a DeviceRows,
    pub(super) ups: &'a DeviceRows,
    /// One weight per row; none: 1.
    pub(super) weights: Option<&'a Scratch>,
    pub(super) clamp: f32,
}

impl Kernels {
    pub(super) fn load(loader: &Loader) -> Result<Kernels, CudaError> {
        Ok(Kernels {
            rows: loader.function("operand", "operand_rows")?,
            activated: loader.function("operand", "operand_activated")?,
        })
    }
}

/// The rows as an operand, converted the first time that it is asked for.
pub(super) fn of_rows(device: &Device, rows: &DeviceRows) -> Operand {
    Operand::at(rows.operand(|| of_parts(device, rows, 1).memory), rows.len(), rows.width())
}

/// The `parts` equal parts of every row as an operand of as many rows.
pub(super) fn of_parts(device: &Device, rows: &DeviceRows, parts: usize) -> OwnOperand {
    let own = OwnOperand::new(device, rows.len() * parts, rows.width() / parts);
    let args = Args::new().with(rows.address()).with(own.operand().destination());
    // SAFETY: the kernel reads `rows * columns` floats from the start of `rows`, which has exactly as many, and writes
    // what `new` made room for.
    unsafe { device.launch(&device.kernels.operand.rows, own.launch(), &args) };
    own
}

/// `silu(gate) * up * weight`, with the published clamps, as an operand.
pub(super) fn activated(device: &Device, from: &Gates<'_>) -> OwnOperand {
    let own = OwnOperand::new(device, from.gates.len(), from.gates.width());
    let args = Args::new()
        .with(from.gates.address())
        .with(from.ups.address())
        .with(from.weights.map_or(DevicePtr(0), Scratch::address))
        .with(own.operand().destination())
        .with(from.clamp)
        .with(0u32);
    // SAFETY: gates and linear parts are rows of equal size, `weights` has one value per row or is null, and `new` made
    // room for the result.
    unsafe { device.launch(&device.kernels.operand.activated, own.launch(), &args) };
    own
}

impl OwnOperand {
    fn new(device: &Device, rows: usize, columns: usize) -> OwnOperand {
        let bytes = rows * (halves_bytes(columns) + size_of::<f32>());
        OwnOperand { memory: device.scratch(Bytes(bytes as u64)), rows, columns }
    }

    pub(super) fn operand(&self) -> Operand {
        Operand::at(&self.memory, self.rows, self.columns)
    }

    fn launch(&self) -> Launch {
        let quads = self.columns.div_ceil(BLOCK) * BLOCK / 4;
        let most = if self.rows < 64 { THREADS[1] } else { THREADS[0] };
        Launch::new(self.rows as u32, quads.min(most) as u32).overlap()
    }
}

impl Operand {
    /// Row by row the halves, then a scale for each row.
    fn at(memory: &Scratch, rows: usize, columns: usize) -> Operand {
        let halves = memory.address();
        Operand { rows, columns, halves, scales: halves.offset((rows * halves_bytes(columns)) as u64) }
    }

    fn destination(&self) -> Destination {
        Destination { operand: self.halves, scales: self.scales, columns: self.columns as u32, reserved: 0 }
    }
}

fn halves_bytes(columns: usize) -> usize {
    columns.div_ceil(BLOCK) * BLOCK_BYTES
}
