//! Mixing streams into a block's input, and merging its output back.

use super::device::Device;
use super::loader::Loader;
use super::matrix::DeviceMatrix;
use super::multiply;
use super::multiply_plan::FEW_ROWS;
use super::rows::DeviceRows;
use super::vector::DeviceVector;
use crate::hyper_connection::{HyperConstants, MIX_WIDTH, Mixed, STREAMS};
use bytemuck::NoUninit;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_units::TensorType;

const THREADS: u32 = 512;
const MERGE_THREADS: u32 = 256;
/// Rows of a block of the kernel that applies a mixing matrix to many rows, and channels that it takes at a time.
const PRODUCT_ROWS: usize = 16;
const CHANNELS: usize = 32;

pub(crate) struct Kernels {
    products: Function,
    mix: Function,
    merge: Function,
    pick: Function,
    collapse: Function,
}

impl Kernels {
    pub(crate) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| loader.function("hyper_connection", name);
        Ok(Kernels {
            products: loader.function("mix_products", "mix_products")?,
            mix: function("mix")?,
            merge: function("merge")?,
            pick: function("pick")?,
            collapse: function("collapse")?,
        })
    }
}

/// A site's vectors.
pub(crate) struct Site<'a> {
    pub(crate) base: &'a DeviceVector,
    pub(crate) scale: &'a DeviceVector,
    pub(crate) norm: &'a DeviceVector,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct ConstantsArgument {
    norm_epsilon: f32,
    mix_epsilon: f32,
    iterations: u32,
}

// SAFETY: `repr(C)`, three 4-byte fields: no padding.
unsafe impl NoUninit for ConstantsArgument {}

impl ConstantsArgument {
    fn new(constants: &HyperConstants) -> ConstantsArgument {
        let HyperConstants { norm_epsilon, mix_epsilon, iterations } = *constants;
        ConstantsArgument { norm_epsilon, mix_epsilon, iterations: iterations as u32 }
    }
}

/// A site's mixing matrix applied to the streams as they are.
pub(crate) struct Mixes {
    products: DeviceRows,
    /// The sum of squares of every row of streams, where one kernel made both.
    squares: Option<DeviceRows>,
}

impl Mixes {
    /// Applies the matrix.
    pub(crate) fn new(device: &Device, matrix: &DeviceMatrix, streams: &DeviceRows) -> Mixes {
        let (rows, columns, outputs) = (streams.len(), streams.width(), matrix.rows());
        let fits = matrix.kind() == TensorType::F16 && columns.is_multiple_of(CHANNELS) && outputs <= MIX_WIDTH;
        if rows <= FEW_ROWS || !fits {
            return Mixes { products: multiply::multiply(device, matrix, streams), squares: None };
        }
        assert_eq!(matrix.columns(), columns, "rows fit {matrix:?}");
        let (products, squares) = (device.rows(rows, outputs), device.rows(rows, 1));
        let args = Args::new()
            .with(streams.address())
            .with(matrix.address())
            .with(products.address())
            .with(squares.address())
            .with(rows as u32)
            .with(columns as u32)
            .with(outputs as u32)
            .with(0u32);
        let launch = Launch::new(rows.div_ceil(PRODUCT_ROWS) as u32, THREADS);
        // SAFETY: a block per sixteen rows; the matrix has `outputs` rows of `columns` halves, and both results a place per
        // row.
        unsafe { device.launch(&device.kernels.hyper_connection.products, launch, &args) };
        Mixes { products, squares: Some(squares) }
    }
}

/// Input and merge values of every row.
pub(crate) fn mix(
    device: &Device,
    site: &Site<'_>,
    constants: &HyperConstants,
    streams: &DeviceRows,
    mixes: &Mixes,
) -> Mixed<DeviceRows> {
    let Mixes { products: mixes, squares } = mixes;
    let (len, width) = (streams.len(), streams.width() / STREAMS);
    let input = device.rows(len, width);
    let merge = device.rows(len, MIX_WIDTH - STREAMS);
    assert_eq!((mixes.len(), mixes.width(), site.norm.len()), (len, MIX_WIDTH, width), "a site's shapes");
    let args = Args::new()
        .with(streams.address())
        .with(mixes.address())
        .with(squares.as_ref().map_or(DevicePtr(0), DeviceRows::address))
        .with(site.base.address())
        .with(site.scale.address())
        .with(site.norm.address())
        .with(input.address())
        .with(merge.address())
        .with(width as u32)
        .with(ConstantsArgument::new(constants));
    // SAFETY: a block per row; streams have four times `width` values a row, a multiple of four, and the others what
    // the assertion says.
    unsafe { device.launch(&device.kernels.hyper_connection.mix, Launch::new(len as u32, THREADS), &args) };
    Mixed { input, merge }
}

/// Merges a block's output into the streams.
pub(crate) fn merge(device: &Device, streams: &mut DeviceRows, merge: &DeviceRows, output: &DeviceRows) {
    let (len, width) = (output.len() as u32, output.width());
    assert_eq!((streams.len(), streams.width()), (output.len(), width * STREAMS), "four streams of the output's width");
    let args = Args::new().with(streams.changed()).with(merge.address()).with(output.address()).with(width as u32);
    let blocks = (width as u32).div_ceil(MERGE_THREADS);
    let launch = Launch::new(blocks, MERGE_THREADS).grid([blocks, len, 1]);
    // SAFETY: the grid covers `width` channels of every row; threads beyond them do nothing.
    unsafe { device.launch(&device.kernels.hyper_connection.merge, launch, &args) };
}

/// The streams of the step's wanted rows, side by side.
pub(crate) fn pick(device: &Device, streams: &DeviceRows, wanted: usize) -> DeviceRows {
    let picked = device.rows(wanted, streams.width());
    let args =
        Args::new().with(streams.address()).with(device.step()).with(picked.address()).with(streams.width() as u32);
    // SAFETY: a block per wanted row; the step names rows that the streams have.
    unsafe { device.launch(&device.kernels.hyper_connection.pick, Launch::new(wanted as u32, THREADS), &args) };
    picked
}

/// The head's input. `mixes` is the head's mixing matrix applied to the streams as they are.
pub(crate) fn collapse(
    device: &Device,
    site: &Site<'_>,
    constants: &HyperConstants,
    streams: &DeviceRows,
    mixes: &DeviceRows,
) -> DeviceRows {
    let (len, width) = (streams.len(), streams.width() / STREAMS);
    assert_eq!((mixes.len(), mixes.width(), site.norm.len()), (len, STREAMS, width), "the head's shapes");
    let out = device.rows(len, width);
    let args = Args::new()
        .with(streams.address())
        .with(mixes.address())
        .with(site.base.address())
        .with(site.scale.address())
        .with(site.norm.address())
        .with(out.address())
        .with(width as u32)
        .with(ConstantsArgument::new(constants));
    // SAFETY: a block per row; the shapes are what the assertion says.
    unsafe { device.launch(&device.kernels.hyper_connection.collapse, Launch::new(len as u32, THREADS), &args) };
    out
}
