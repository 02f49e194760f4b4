//! Rows in fixed point, as the experts' kernels load them.

use super::blocks;
use crate::cuda::arena::Scratch;
use crate::cuda::device::Device;
use crate::cuda::loader::Loader;
use crate::cuda::rows::DeviceRows;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_units::Bytes;

const WARPS: usize = 8;
/// Bytes of a row's block of channels, and of its sums.
const BLOCK: usize = 512;
const SUMS: usize = 64;

pub(crate) struct Kernels {
    operand: Function,
}

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        Ok(Kernels { operand: loader.function("batch_operand", "batch_operand")? })
    }
}

/// The format whose lanes the channels lie for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// IQ2_XXS.
    Grid = 0,
    /// Q2_K, with sums for its minima.
    Planes = 1,
}

/// `FixedRows` of `cu/batch.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct FixedArgument {
    codes: DevicePtr,
    scales: DevicePtr,
    sums: DevicePtr,
}

// SAFETY: three addresses.
unsafe impl bytemuck::NoUninit for FixedArgument {}

/// `FixedOperand` of `cu/batch_operand.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Destination {
    rows: FixedArgument,
    columns: u32,
    row_count: u32,
    order: u32,
    reserved: u32,
}

// SAFETY: a structure without gaps whose size is a multiple of 8, and four words.
unsafe impl bytemuck::NoUninit for Destination {}

/// Rows in fixed point and their memory.
pub(super) struct FixedRows {
    codes: Scratch,
    scales: Scratch,
    sums: Option<Scratch>,
}

impl FixedRows {
    /// Brings rows to fixed point.
    pub(super) fn new(device: &Device, rows: &DeviceRows, order: Order) -> FixedRows {
        let count = rows.len() * blocks(rows.width());
        let bytes = |each: usize| device.scratch(Bytes((count * each) as u64));
        let fixed = FixedRows {
            codes: bytes(BLOCK),
            scales: bytes(size_of::<f32>()),
            sums: (order == Order::Planes).then(|| bytes(SUMS)),
        };
        let to = Destination {
            rows: fixed.argument(),
            columns: rows.width() as u32,
            row_count: rows.len() as u32,
            order: order as u32,
            reserved: 0,
        };
        let launch = Launch::new(count.div_ceil(WARPS) as u32, (WARPS * 32) as u32).overlap();
        let args = Args::new().with(rows.address()).with(to);
        // SAFETY: a warp for every block of every row; the results have room for each.
        unsafe { device.launch(&device.kernels.batch.operand.operand, launch, &args) };
        fixed
    }

    pub(super) fn argument(&self) -> FixedArgument {
        FixedArgument {
            codes: self.codes.address(),
            scales: self.scales.address(),
            sums: self.sums.as_ref().map_or(DevicePtr(0), Scratch::address),
        }
    }
}
