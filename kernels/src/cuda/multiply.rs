//! Products of matrices with rows. Many rows are [`super::gemm`]'s; few are multiplied here, and so are matrices without a
//! format for the matrix units: `cu/product.cuh` says how.
//!
//! Which of this file's kernels runs changes no bit of a result.

use super::batch;
use super::device::Device;
use super::few;
use super::gemm;
use super::gemm_operand::{self, GemmOperand, Precision};
use super::loader::Loader;
use super::matrix::DeviceMatrix;
use super::multiply_plan::{FEW_ROWS, GROUP_ROWS, STREAM_SHARED_MAX, Size};
use super::operand::{self, Operand};
use super::rows::DeviceRows;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_units::TensorType;

/// The kernels of this file's `.cu`.
pub(crate) struct Kernels {
    formats: Vec<(TensorType, Function)>,
    plain: Vec<(TensorType, Function)>,
}

/// A format that the matrix units take, and its name in kernels.
const FORMATS: [(TensorType, &str); 5] = [
    (TensorType::Q8_0, "q8_0"),
    (TensorType::F16, "f16"),
    (TensorType::Q2_K, "q2_k"),
    (TensorType::Q4_K, "q4_k"),
    (TensorType::IQ2_XXS, "iq2_xxs"),
];
/// Threads of a block of the plain kernel, a warp for each output.
const PLAIN_THREADS: usize = 256;
/// Types multiplied in `f32`: F16 too, where rows do not fill 16-byte loads.
const PLAIN: [(TensorType, &str); 3] = [(TensorType::F32, "f32"), (TensorType::F16, "f16"), (TensorType::BF16, "bf16")];

/// Groups of rows made by `experts_group`.
#[derive(Clone, Copy)]
pub(super) struct Groups {
    pub(super) groups: DevicePtr,
    /// The operand row of every row; null: the row itself.
    pub(super) sources: DevicePtr,
    /// Groups there can be.
    pub(super) most: usize,
    /// Rows of a group at most, and of most groups.
    pub(super) rows: usize,
    pub(super) typical_rows: usize,
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
    sources: DevicePtr,
    columns: u32,
    outputs: u32,
    parts: u32,
    rows: u32,
    panels_per_cluster: u32,
    staged_bytes: u32,
}

// SAFETY: eight addresses and six words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for Product {}

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |variant: &str, name: &str| loader.function("multiply", &format!("multiply_{variant}_{name}"));
        let format = |(kind, name)| -> Result<_, CudaError> {
            let stream = function("stream", name)?;
            stream.allow_shared(STREAM_SHARED_MAX as u32)?;
            Ok((kind, stream))
        };
        Ok(Kernels {
            formats: FORMATS.into_iter().map(format).collect::<Result<_, _>>()?,
            plain: PLAIN
                .into_iter()
                .map(|(kind, name)| Ok((kind, function("plain", name)?)))
                .collect::<Result<_, CudaError>>()?,
        })
    }

    /// Whether the matrix units do not take this matrix: it has no codes, or its rows do not fill 16-byte loads.
    fn is_plain(&self, matrix: &DeviceMatrix) -> bool {
        let whole_loads = matrix.kind() != TensorType::F16 || matrix.columns().is_multiple_of(8);
        !whole_loads || FORMATS.iter().all(|(kind, _)| *kind != matrix.kind())
    }

    fn choose(&self, matrix: &DeviceMatrix) -> &Function {
        let of = if self.is_plain(matrix) { &self.plain } else { &self.formats };
        &of.iter().find(|(kind, _)| *kind == matrix.kind()).expect("a matrix has a supported type").1
    }
}

/// `matrix . row` for every row.
pub(super) fn multiply(device: &Device, matrix: &DeviceMatrix, rows: &DeviceRows) -> DeviceRows {
    assert_eq!(rows.width(), matrix.columns(), "rows fit {matrix:?}");
    let together = few::multiply_all(device, &[matrix], rows).or_else(|| batch::multiply_all(device, &[matrix], rows));
    if let Some(out) = together.and_then(|mut out| out.pop()) {
        return out;
    }
    if rows.len() > FEW_ROWS && gemm::takes(matrix) {
        return gemm::product(device, matrix, 1, rows.len(), &gemm_operand_of(device, matrix, rows));
    }
    only(product(device, [matrix], 1, operand::of_rows(device, rows)))
}

/// `matrix . row` for every matrix and every row: in one launch where the rows are few, in one for each type where they are
/// many.
pub(super) fn multiply_all(device: &Device, matrices: &[&DeviceMatrix], rows: &DeviceRows) -> Vec<DeviceRows> {
    let together = few::multiply_all(device, matrices, rows).or_else(|| batch::multiply_all(device, matrices, rows));
    if let Some(out) = together {
        return out;
    }
    let is_many = |matrix: &DeviceMatrix| rows.len() > FEW_ROWS && gemm::takes(matrix);
    // Where results go, before what goes sooner: in the order asked for, which is that of who needs them longest.
    let room = |matrix: &&DeviceMatrix| is_many(matrix).then(|| device.rows(rows.len(), matrix.rows()));
    let mut out: Vec<Option<DeviceRows>> = matrices.iter().map(room).collect();
    // Precise operands first: the others are part of them.
    let mut order: Vec<usize> = (0..matrices.len()).collect();
    order.sort_by_key(|&index| gemm::precision(matrices[index].kind()) == Precision::One);
    let mut done = vec![false; matrices.len()];
    for index in order {
        let matrix = matrices[index];
        if done[index] {
            continue;
        }
        if out[index].is_none() {
            out[index] = Some(multiply(device, matrix, rows));
            continue;
        }
        let operand = gemm_operand_of(device, matrix, rows);
        let alike = |other: usize| matrices[other].kind() == matrix.kind() && is_many(matrices[other]);
        let together: Vec<usize> = (0..matrices.len()).filter(|&other| alike(other)).collect();
        let jobs: Vec<_> = together.iter().filter_map(|&index| Some((matrices[index], out[index].as_ref()?))).collect();
        gemm::products(device, &jobs, &operand);
        together.into_iter().for_each(|index| done[index] = true);
    }
    out.into_iter().map(|rows| rows.expect("every matrix had its turn")).collect()
}

fn gemm_operand_of(device: &Device, matrix: &DeviceMatrix, rows: &DeviceRows) -> GemmOperand {
    assert_eq!(rows.width(), matrix.columns(), "rows fit {matrix:?}");
    gemm_operand::of_rows(device, rows, gemm::order(device, matrix), gemm::precision(matrix.kind()))
}

/// Splits rows and outputs into `parts` equal parts and multiplies part by part.
pub(super) fn multiply_groups(device: &Device, matrix: &DeviceMatrix, parts: usize, rows: &DeviceRows) -> DeviceRows {
    assert_eq!(rows.width(), parts * matrix.columns(), "rows fit {matrix:?}");
    let out = few::multiply_parts(device, matrix, parts, rows);
    if let Some(out) = out.or_else(|| batch::multiply_parts(device, matrix, parts, rows)) {
        return out;
    }
    if rows.len() > FEW_ROWS && gemm::takes(matrix) {
        let precision = gemm::precision(matrix.kind());
        let own = gemm_operand::of_parts(device, rows, parts, gemm::order(device, matrix), precision);
        return gemm::product(device, matrix, parts, rows.len(), &own.operand);
    }
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
    let out = matrices.map(|_| device.rows(rows, outputs));
    let product = Product {
        outputs: (outputs / parts) as u32,
        parts: parts as u32,
        rows: rows as u32,
        ..describe(matrices, operand, &out)
    };
    let groups = rows.div_ceil(GROUP_ROWS) * parts;
    let staged = rows.min(GROUP_ROWS);
    let size = Size { groups: groups * N, ..size(device, &product) }.staged(matrices[0], staged, staged);
    launch(device, matrices, product, size);
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
        sources: groups.sources,
        outputs: stacks[0].rows() as u32,
        ..describe(stacks, operand, &out)
    };
    let size = Size { groups: groups.most * N, ..size(device, &product) };
    let size = size.staged(stacks[0], groups.typical_rows, groups.rows);
    launch(device, stacks, product, size);
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

fn size(device: &Device, product: &Product) -> Size {
    let multiprocessors = device.gpu.multiprocessors() as usize;
    let (outputs, columns) = (product.outputs as usize, product.columns as usize);
    Size { outputs, columns, groups: 1, staged_rows: 0, staged_rows_most: 0, multiprocessors }
}

impl Size {
    /// The same, for a matrix whose kernels may keep so many rows in shared memory.
    fn staged(self, matrix: &DeviceMatrix, typical: usize, most: usize) -> Size {
        let is_staged = matches!(matrix.kind(), TensorType::Q2_K | TensorType::Q4_K | TensorType::IQ2_XXS);
        let (staged_rows, staged_rows_most) = if is_staged { (typical, most) } else { (0, 0) };
        Size { staged_rows, staged_rows_most, ..self }
    }
}

/// Starts the kernel over `size.groups` groups of rows, those of both matrices counted.
fn launch<const N: usize>(device: &Device, matrices: [&DeviceMatrix; N], product: Product, size: Size) {
    let function = device.kernels.multiply.choose(matrices[0]);
    let cut = size.cut();
    let product =
        Product { panels_per_cluster: cut.panels_per_cluster as u32, staged_bytes: cut.staged_bytes as u32, ..product };
    let grid = |across: usize| [across as u32, (size.groups / N) as u32, N as u32];
    let start = match device.kernels.multiply.is_plain(matrices[0]) {
        true => Launch::new(1, PLAIN_THREADS as u32).grid(grid(size.outputs.div_ceil(PLAIN_THREADS / 32))).overlap(),
        false => Launch {
            cluster: (cut.ranks > 1).then_some([cut.ranks as u32, 1, 1]),
            shared: cut.shared as u32,
            ..Launch::new(1, cut.threads as u32).grid(grid(cut.across)).overlap()
        },
    };
    // SAFETY: `describe` and its callers made the operand and the results of the sizes that the kernel's indices
    // reach; every kernel leaves alone what lies past a group's rows and a matrix's outputs.
    unsafe { device.launch(function, start, &Args::new().with(product)) };
}
