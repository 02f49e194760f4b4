//! Products of matrices with rows: `cu/product.cuh` says how they are computed.
//!
//! Which kernel runs depends on the number of rows and changes no bit of a result.

use super::device::Device;
use super::loader::Loader;
use super::matrix::DeviceMatrix;
use super::operand::{self, BLOCK, Operand};
use super::rows::DeviceRows;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_units::TensorType;

/// Rows of weights that a warp multiplies together.
const PANEL_ROWS: usize = 16;
/// Warps of a block of threads, in `stream` and `tile` kernels.
const STREAM_WARPS: usize = 8;
const TILE_WARPS: usize = 6;
/// Parts of eight rows of activations that a `stream` kernel adds up at a time.
const STREAM_PARTS: usize = 64;
/// Parts that keep a block of threads busy: two for each warp.
const STREAM_WORK: usize = 2 * STREAM_WARPS;
/// Shared memory of a `tile` kernel: 64 rows of 256 channels with the padding between them, and their sums.
const TILE_SHARED: u32 = 64 * (1024 + 4 * 32 + 16) + 64 * 64;
/// Rows that `stream` kernels multiply when they are not grouped; from here on a `tile` kernel is faster.
const STREAM_ROWS: usize = 32;

/// The kernels of this file's `.cu`.
pub(crate) struct Kernels {
    formats: Vec<(TensorType, Format)>,
    plain: Vec<(TensorType, Function)>,
}

/// One format's kernels, by rows of a group.
struct Format {
    stream8: Function,
    stream16: Function,
    tile: Function,
}

/// A format that the matrix units take, and its name in kernels.
const FORMATS: [(TensorType, &str); 5] = [
    (TensorType::Q8_0, "q8_0"),
    (TensorType::F16, "f16"),
    (TensorType::Q2_K, "q2_k"),
    (TensorType::Q4_K, "q4_k"),
    (TensorType::IQ2_XXS, "iq2_xxs"),
];
/// Types multiplied in `f32`: F16 too, where rows do not fill 16-byte loads.
const PLAIN: [(TensorType, &str); 3] = [(TensorType::F32, "f32"), (TensorType::F16, "f16"), (TensorType::BF16, "bf16")];

/// How many rows a group has at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupRows {
    /// A `stream` kernel for 8 rows, or the plain one.
    Eight,
    /// A `stream` kernel for 16 rows.
    Sixteen,
    /// A `tile` kernel.
    SixtyFour,
}

/// Groups of rows made by `experts_group`.
#[derive(Clone, Copy)]
pub(super) struct Groups {
    pub(super) groups: DevicePtr,
    pub(super) count: DevicePtr,
    /// The operand row of every row; null: the row itself.
    pub(super) sources: DevicePtr,
    /// Groups there can be.
    pub(super) most: usize,
    pub(super) rows: GroupRows,
}

/// `Product` of `cu/product.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Product {
    weights: [DevicePtr; 2],
    out: [DevicePtr; 2],
    operand: DevicePtr,
    scales: DevicePtr,
    groups: DevicePtr,
    group_count: DevicePtr,
    sources: DevicePtr,
    columns: u32,
    outputs: u32,
    parts: u32,
    rows: u32,
    panels_per_block: u32,
    reserved: u32,
}

// SAFETY: nine addresses and six words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for Product {}

impl GroupRows {
    /// The number.
    pub(super) fn count(self) -> usize {
        match self {
            GroupRows::Eight => 8,
            GroupRows::Sixteen => 16,
            GroupRows::SixtyFour => 64,
        }
    }
}

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |variant: &str, name: &str| loader.function("multiply", &format!("multiply_{variant}_{name}"));
        let format = |(kind, name)| -> Result<_, CudaError> {
            let tile = function("tile", name)?;
            tile.allow_shared(TILE_SHARED)?;
            let (stream8, stream16) = (function("stream8", name)?, function("stream16", name)?);
            Ok((kind, Format { stream8, stream16, tile }))
        };
        Ok(Kernels {
            formats: FORMATS.into_iter().map(format).collect::<Result<_, _>>()?,
            plain: PLAIN
                .into_iter()
                .map(|(kind, name)| Ok((kind, function("plain", name)?)))
                .collect::<Result<_, CudaError>>()?,
        })
    }

    /// The kernel for this matrix, and whether it is the plain one.
    fn choose(&self, matrix: &DeviceMatrix, rows: GroupRows) -> (&Function, bool) {
        let whole_loads = matrix.kind() != TensorType::F16 || matrix.columns().is_multiple_of(8);
        let format = self.formats.iter().find(|(kind, _)| *kind == matrix.kind() && whole_loads);
        match (format, rows) {
            (Some((_, format)), GroupRows::Eight) => (&format.stream8, false),
            (Some((_, format)), GroupRows::Sixteen) => (&format.stream16, false),
            (Some((_, format)), GroupRows::SixtyFour) => (&format.tile, false),
            (None, _) => {
                let plain = self.plain.iter().find(|(kind, _)| *kind == matrix.kind());
                (&plain.expect("a matrix has a supported type").1, true)
            }
        }
    }
}

/// `matrix . row` for every row.
pub(super) fn multiply(device: &Device, matrix: &DeviceMatrix, rows: &DeviceRows) -> DeviceRows {
    assert_eq!(rows.width(), matrix.columns(), "rows fit {matrix:?}");
    only(product(device, [matrix], 1, operand::of_rows(device, rows)))
}

/// Splits rows and outputs into `parts` equal parts and multiplies part by part.
pub(super) fn multiply_groups(device: &Device, matrix: &DeviceMatrix, parts: usize, rows: &DeviceRows) -> DeviceRows {
    assert_eq!(rows.width(), parts * matrix.columns(), "rows fit {matrix:?}");
    let own = operand::of_parts(device, rows, parts);
    only(product(device, [matrix], parts, own.operand()))
}

/// The result of one matrix.
pub(super) fn only([rows]: [DeviceRows; 1]) -> DeviceRows {
    rows
}

/// The products of one or two equally shaped matrices with every row of `operand`.
pub(super) fn product<const N: usize>(
    device: &Device,
    matrices: [&DeviceMatrix; N],
    parts: usize,
    operand: Operand,
) -> [DeviceRows; N] {
    let (rows, outputs) = (operand.rows / parts, matrices[0].rows());
    let group = match rows {
        ..=8 => GroupRows::Eight,
        ..=STREAM_ROWS => GroupRows::Sixteen,
        _ => GroupRows::SixtyFour,
    };
    let out = matrices.map(|_| device.rows(rows, outputs));
    let product = Product {
        outputs: (outputs / parts) as u32,
        parts: parts as u32,
        rows: rows as u32,
        ..describe(matrices, operand, &out)
    };
    launch(device, matrices, product, group, |rows_of_group| rows.div_ceil(rows_of_group) * parts);
    out
}

/// The products of one or two equally shaped stacks with rows grouped by matrix: a result per row of the groups.
pub(super) fn grouped<const N: usize>(
    device: &Device,
    stacks: [&DeviceMatrix; N],
    groups: &Groups,
    rows: usize,
    operand: Operand,
) -> [DeviceRows; N] {
    let out = stacks.map(|stack| device.rows(rows, stack.rows()));
    let product = Product {
        groups: groups.groups,
        group_count: groups.count,
        sources: groups.sources,
        outputs: stacks[0].rows() as u32,
        ..describe(stacks, operand, &out)
    };
    launch(device, stacks, product, groups.rows, |_| groups.most);
    out
}

fn describe<const N: usize>(matrices: [&DeviceMatrix; N], operand: Operand, out: &[DeviceRows; N]) -> Product {
    let (first, last) = (matrices[0], matrices[N - 1]);
    assert!(N <= 2 && (first.kind(), first.rows()) == (last.kind(), last.rows()), "{first:?} and {last:?} differ");
    assert_eq!((operand.columns, last.columns()), (first.columns(), first.columns()), "rows fit {first:?}");
    Product {
        weights: [first.address(), last.address()],
        out: [out[0].address(), out[N - 1].address()],
        operand: operand.halves,
        scales: operand.scales,
        columns: operand.columns as u32,
        ..Product::default()
    }
}

/// Starts the kernel. `groups` says how many groups of so many rows there are at most.
fn launch<const N: usize>(
    device: &Device,
    matrices: [&DeviceMatrix; N],
    mut product: Product,
    rows: GroupRows,
    groups: impl Fn(usize) -> usize,
) {
    let (function, is_plain) = device.kernels.multiply.choose(matrices[0], rows);
    let outputs = product.outputs as usize;
    // A matrix of a stack whose rows do not fill panels begins in the middle of one.
    let panels = outputs.div_ceil(PANEL_ROWS) + usize::from(!outputs.is_multiple_of(PANEL_ROWS));
    let (across, threads, shared) = match rows {
        _ if is_plain => (outputs.div_ceil(STREAM_WARPS), STREAM_WARPS * 32, 0),
        GroupRows::SixtyFour => (panels.div_ceil(TILE_WARPS), TILE_WARPS * 32, TILE_SHARED),
        _ => {
            let blocks = product.columns.div_ceil(BLOCK as u32) as usize;
            let room = STREAM_PARTS * 8 / rows.count();
            product.panels_per_block = (STREAM_WORK.min(room) / blocks).max(1) as u32;
            (panels.div_ceil(product.panels_per_block as usize), STREAM_WARPS * 32, 0)
        }
    };
    let groups = groups(if is_plain { GroupRows::Eight } else { rows }.count());
    let start = Launch::new(1, threads as u32).grid([across as u32, groups as u32, N as u32]).shared(shared);
    // SAFETY: `describe` and its callers made the operand and the results of the sizes that the kernel's indices
    // reach; every kernel leaves alone what lies past a group's rows and a matrix's outputs.
    unsafe { device.launch(function, start, &Args::new().with(product)) };
}
