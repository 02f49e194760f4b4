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
/// Rows of a block of the kernels that apply a mixing matrix to many rows, and channels that they take at a time.
const PRODUCT_ROWS: usize = 16;
const CHANNELS: usize = 32;
/// Threads of a block that weighs a row, and channels that it holds at most.
const WEIGH_THREADS: u32 = 256;
const WEIGH_MOST: usize = 8 * 4 * WEIGH_THREADS as usize;

pub(crate) struct Kernels {
    products: Function,
    merge_products: Function,
    mix: Function,
    gates: Function,
    weigh: Function,
    merge: Function,
    pick: Function,
    collapse: Function,
}

impl Kernels {
    pub(crate) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| loader.function("hyper_connection", name);
        Ok(Kernels {
            products: loader.function("mix_products", "mix_products")?,
            merge_products: loader.function("mix_products", "merge_products")?,
            mix: function("mix")?,
            gates: function("mix_gates")?,
            weigh: function("mix_weigh")?,
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

/// A site's mixing matrix applied to the streams of many rows as they are, and the sum of squares of every row of them.
pub(crate) struct Mixes {
    /// The matrix.
    matrix: DevicePtr,
    products: DeviceRows,
    squares: DeviceRows,
}

impl Mixes {
    /// Room for them, if this matrix and these rows have kernels for many rows.
    fn room(device: &Device, matrix: &DeviceMatrix, streams: &DeviceRows) -> Option<Mixes> {
        let (rows, columns) = (streams.len(), streams.width());
        assert_eq!(matrix.columns(), columns, "rows fit {matrix:?}");
        let whole = columns.is_multiple_of(STREAMS * CHANNELS) && columns <= STREAMS * WEIGH_MOST;
        let fits = matrix.kind() == TensorType::F16 && matrix.rows() == MIX_WIDTH && whole;
        let (products, squares) = (|| device.rows(rows, MIX_WIDTH), || device.rows(rows, 1));
        let matrix = matrix.address();
        (rows > FEW_ROWS && fits).then(|| Mixes { matrix, products: products(), squares: squares() })
    }

    /// Applies the matrix.
    fn new(device: &Device, matrix: &DeviceMatrix, streams: &DeviceRows) -> Option<Mixes> {
        let mixes = Mixes::room(device, matrix, streams)?;
        let args = Args::new()
            .with(streams.address())
            .with(matrix.address())
            .with(mixes.products.address())
            .with(mixes.squares.address())
            .with(streams.len() as u32)
            .with(streams.width() as u32)
            .with(MIX_WIDTH as u32)
            .with(0u32);
        let launch = Launch::new(streams.len().div_ceil(PRODUCT_ROWS) as u32, THREADS);
        // SAFETY: a block per sixteen rows; the matrix has as many rows of halves as there are mixes, and both results a place
        // per row.
        unsafe { device.launch(&device.kernels.hyper_connection.products, launch, &args) };
        Some(mixes)
    }
}

/// Input and merge values of every row; `matrix` is the site's.
pub(crate) fn mix(
    device: &Device,
    matrix: &DeviceMatrix,
    site: &Site<'_>,
    constants: &HyperConstants,
    streams: &DeviceRows,
) -> Mixed<DeviceRows> {
    let begun = streams.mixes.as_deref().filter(|mixes| mixes.matrix == matrix.address());
    let own = if begun.is_none() { Mixes::new(device, matrix, streams) } else { None };
    match begun.or(own.as_ref()) {
        Some(mixes) => mix_many(device, site, constants, streams, mixes),
        None => mix_few(device, site, constants, streams, &multiply::multiply(device, matrix, streams)),
    }
}

fn mix_many(
    device: &Device,
    site: &Site<'_>,
    constants: &HyperConstants,
    streams: &DeviceRows,
    mixes: &Mixes,
) -> Mixed<DeviceRows> {
    let kernels = &device.kernels.hyper_connection;
    let (len, width) = (streams.len(), streams.width() / STREAMS);
    assert_eq!((mixes.products.len(), site.norm.len()), (len, width), "a site's shapes");
    let input = device.rows(len, width);
    let merge = device.rows(len, MIX_WIDTH - STREAMS);
    let gates = device.rows(len, STREAMS);
    let args = Args::new()
        .with(mixes.products.address())
        .with(mixes.squares.address())
        .with(site.base.address())
        .with(site.scale.address())
        .with(gates.address())
        .with(merge.address())
        .with(width as u32)
        .with(ConstantsArgument::new(constants));
    // SAFETY: a warp per row, for which each of the others has a row.
    unsafe { device.launch(&kernels.gates, Launch::new(len as u32, 32).overlap(), &args) };
    let args = Args::new()
        .with(streams.address())
        .with(gates.address())
        .with(site.norm.address())
        .with(input.address())
        .with(width as u32)
        .with(constants.norm_epsilon);
    // SAFETY: a block per row; streams have four times `width` values a row, a multiple of four and at most WEIGH_MOST.
    unsafe { device.launch(&kernels.weigh, Launch::new(len as u32, WEIGH_THREADS).overlap(), &args) };
    Mixed { input, merge }
}

fn mix_few(
    device: &Device,
    site: &Site<'_>,
    constants: &HyperConstants,
    streams: &DeviceRows,
    mixes: &DeviceRows,
) -> Mixed<DeviceRows> {
    let (len, width) = (streams.len(), streams.width() / STREAMS);
    let input = device.rows(len, width);
    let merge = device.rows(len, MIX_WIDTH - STREAMS);
    assert_eq!((mixes.len(), mixes.width(), site.norm.len()), (len, MIX_WIDTH, width), "a site's shapes");
    let args = Args::new()
        .with(streams.address())
        .with(mixes.address())
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

/// The same; if the rows are many, streams come with the mixes of the next site afterwards.
pub(crate) fn merge_and_mix(
    device: &Device,
    streams: &mut DeviceRows,
    merge: &DeviceRows,
    output: &DeviceRows,
    next: &DeviceMatrix,
) {
    let (rows, width) = (output.len(), output.width());
    assert_eq!((streams.len(), streams.width()), (rows, width * STREAMS), "four streams of the output's width");
    let Some(mixes) = Mixes::room(device, next, streams) else {
        return self::merge(device, streams, merge, output);
    };
    let args = Args::new()
        .with(streams.changed())
        .with(merge.address())
        .with(output.address())
        .with(next.address())
        .with(mixes.products.address())
        .with(mixes.squares.address())
        .with(rows as u32)
        .with(width as u32)
        .with(MIX_WIDTH as u32)
        .with(0u32);
    let launch = Launch::new(rows.div_ceil(PRODUCT_ROWS) as u32, THREADS).overlap();
    // SAFETY: a block per sixteen rows, of which each reads and writes only its own; the matrix and the results are as for
    // `Mixes::new`.
    unsafe { device.launch(&device.kernels.hyper_connection.merge_products, launch, &args) };
    streams.mixes = Some(Box::new(mixes));
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
