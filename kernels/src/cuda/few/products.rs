//! Products of several matrices with the same few rows, in one launch.

use super::enter;
use super::merge::{self, MergeArgument};
use super::{CHANNELS, PANEL, ROW_HALVES, ROW_PLANES, ROWS_FEW, ROWS_MAX, SHARED_MAX, THREADS, WARPS, blocks, panels};
use crate::backend::{Backend, HyperSite};
use crate::cuda::device::Device;
use crate::cuda::loader::Loader;
use crate::cuda::matrix::DeviceMatrix;
use crate::cuda::rows::DeviceRows;
use crate::cuda::vector::DeviceVector;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_units::TensorType;

/// Matrices of a launch at most.
const JOBS: usize = 8;
/// Outputs that keep the device busy; for fewer there are kernels that cut channels across blocks of threads.
const OUTPUTS_MIN: usize = 64;
/// Blocks of channels of all rows that can be normalised.
const NORM_BLOCKS: usize = 64;
/// Blocks of threads for every multiprocessor.
const BLOCKS_EACH: usize = 2;

pub(crate) struct Kernels {
    few: Function,
    more: Function,
    merged: [Function; 2],
}

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| -> Result<Function, CudaError> {
            let function = loader.function("few_products", name)?;
            function.allow_shared(SHARED_MAX as u32)?;
            Ok(function)
        };
        Ok(Kernels {
            few: function("few_products_1")?,
            more: function("few_products_2")?,
            merged: [function("few_merged_1")?, function("few_merged_2")?],
        })
    }
}

/// `Job` of `cu/few_products.cu`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Job {
    weights: DevicePtr,
    out: DevicePtr,
    outputs: u32,
    first_block: u32,
    blocks: u32,
    is_half: u32,
}

/// `Products` of the same.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Products {
    jobs: [Job; JOBS],
    merge: MergeArgument,
    input: DevicePtr,
    norm: DevicePtr,
    columns: u32,
    parts: u32,
    rows: u32,
    epsilon: f32,
}

// SAFETY: two addresses and four words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for Job {}
// SAFETY: structures without gaps whose sizes are multiples of 8, two addresses and four words.
unsafe impl bytemuck::NoUninit for Products {}

/// `matrix . row` for every matrix and every row, if these kernels take all of them.
pub(in crate::cuda) fn multiply_all(
    device: &Device,
    matrices: &[&DeviceMatrix],
    rows: &DeviceRows,
) -> Option<Vec<DeviceRows>> {
    multiply(device, matrices, 1, rows, &Before::default())
}

/// The same for rows that are normalised first, if these kernels take all of them. `spare`: blocks of threads that the
/// launch leaves room for on the device.
pub(super) fn multiply_normalized(
    device: &Device,
    matrices: &[&DeviceMatrix],
    rows: &DeviceRows,
    (norm, epsilon): (&DeviceVector, f32),
    spare: usize,
) -> Option<Vec<DeviceRows>> {
    let fits = blocks(rows.width()) * rows.len() <= NORM_BLOCKS;
    let before = Before { norm: norm.address(), epsilon, spare };
    fits.then(|| multiply(device, matrices, 1, rows, &before)).flatten()
}

/// Splits rows and outputs into `parts` equal parts and multiplies part by part, if these kernels take them.
pub(in crate::cuda) fn multiply_parts(
    device: &Device,
    matrix: &DeviceMatrix,
    parts: usize,
    rows: &DeviceRows,
) -> Option<DeviceRows> {
    multiply(device, &[matrix], parts, rows, &Before::default())?.pop()
}

/// A product merged into the streams, if these kernels take it.
pub(in crate::cuda) fn multiply_and_merge<B: Backend<Matrix = DeviceMatrix>>(
    device: &Device,
    matrix: &DeviceMatrix,
    rows: &DeviceRows,
    into: [&mut DeviceRows; 2],
    next: Option<&HyperSite<B>>,
) -> bool {
    let shared = blocks(rows.width()) * rows.len() * (ROW_PLANES + size_of::<f32>());
    enter::make_due(device, into[1]);
    // All warps of a block of threads share a panel.
    let takes = takes(matrix, rows.width(), 1)
        && matrix.kind() == TensorType::Q8_0
        && rows.width() > (WARPS / 2) * CHANNELS
        && merge::takes(into[0], matrix.rows())
        && shared <= SHARED_MAX;
    if !takes {
        return false;
    }
    let share = shares(&[matrix], BLOCKS_EACH * device.gpu.multiprocessors() as usize)[0];
    let variant = usize::from(rows.len() > ROWS_FEW);
    let mut products = Products {
        merge: merge::merging(device, into, next),
        input: rows.address(),
        columns: rows.width() as u32,
        parts: 1,
        rows: rows.len() as u32,
        ..Products::default()
    };
    products.jobs[0] = Job {
        weights: matrix.address(),
        out: DevicePtr(0),
        outputs: matrix.rows() as u32,
        first_block: 0,
        blocks: share,
        is_half: 0,
    };
    let launch = Launch::new(share, THREADS).shared(shared as u32).overlap();
    // SAFETY: as for other products; streams, merge values and partial sums have the sizes that `merging` made or checked.
    unsafe { device.launch(&device.kernels.few.products.merged[variant], launch, &Args::new().with(products)) };
    true
}

/// What is done to rows before they are multiplied.
#[derive(Default)]
struct Before {
    norm: DevicePtr,
    epsilon: f32,
    spare: usize,
}

fn multiply(
    device: &Device,
    matrices: &[&DeviceMatrix],
    parts: usize,
    rows: &DeviceRows,
    before: &Before,
) -> Option<Vec<DeviceRows>> {
    let columns = rows.width() / parts;
    if rows.len() > ROWS_MAX || matrices.len() > JOBS || !matrices.iter().all(|matrix| takes(matrix, columns, parts)) {
        return None;
    }
    let row_bytes = matrices.iter().map(|matrix| row_bytes(matrix)).max()?;
    let shared = blocks(columns) * rows.len() * (row_bytes + size_of::<f32>());
    if shared > SHARED_MAX {
        return None;
    }
    let out: Vec<DeviceRows> = matrices.iter().map(|matrix| device.rows(rows.len(), matrix.rows())).collect();
    let most = (BLOCKS_EACH * device.gpu.multiprocessors() as usize).saturating_sub(before.spare).max(matrices.len());
    let mut products = Products {
        jobs: [Job::default(); JOBS],
        input: rows.address(),
        norm: before.norm,
        columns: columns as u32,
        parts: parts as u32,
        rows: rows.len() as u32,
        epsilon: before.epsilon,
        ..Products::default()
    };
    let mut first = 0;
    for ((job, (matrix, out)), share) in
        products.jobs.iter_mut().zip(matrices.iter().zip(&out)).zip(shares(matrices, most))
    {
        *job = Job {
            weights: matrix.address(),
            out: out.address(),
            outputs: matrix.rows() as u32,
            first_block: first,
            blocks: share,
            is_half: u32::from(matrix.kind() == TensorType::F16),
        };
        first += share;
    }
    let kernels = &device.kernels.few.products;
    let kernel = if rows.len() <= ROWS_FEW { &kernels.few } else { &kernels.more };
    let launch = Launch::new(first, THREADS).shared(shared as u32).overlap();
    // SAFETY: every job's blocks of threads lie side by side and are all of the grid; matrices have the columns that
    // rows have, results the outputs, and shared memory has room for the rows.
    unsafe { device.launch(kernel, launch, &Args::new().with(products)) };
    Some(out)
}

fn takes(matrix: &DeviceMatrix, columns: usize, parts: usize) -> bool {
    let is_half = matrix.kind() == TensorType::F16 && columns.is_multiple_of(8);
    // A block of threads has the rows of one part at a time.
    let parts_fit = parts == 1 || matrix.rows().is_multiple_of(parts * PANEL) && columns > (WARPS / 2) * CHANNELS;
    assert_eq!(matrix.columns(), columns, "rows fit {matrix:?}");
    // F16 keeps pairs of half floats; what is brought to fixed point has to be worth it.
    let is_fixed = matrix.kind() == TensorType::Q8_0 && !matrix.is_small();
    (is_half || is_fixed) && matrix.rows() >= OUTPUTS_MIN && parts_fit
}

fn row_bytes(matrix: &DeviceMatrix) -> usize {
    if matrix.kind() == TensorType::F16 { ROW_HALVES } else { ROW_PLANES }
}

/// Blocks of threads for every matrix: together about `most`, by the time that they take. That goes with the bytes read, and
/// F16 takes half as long again for as many (measured beside Q8_0: 14 us against 10).
fn shares(matrices: &[&DeviceMatrix], most: usize) -> Vec<u32> {
    let cost = |matrix: &DeviceMatrix| {
        let elements = matrix.rows() * matrix.columns();
        if matrix.kind() == TensorType::F16 { elements * 3 } else { elements / 32 * 34 }
    };
    let all: usize = matrices.iter().map(|matrix| cost(matrix)).sum();
    let share = |matrix: &DeviceMatrix| (most * cost(matrix) / all.max(1)).clamp(1, panels(matrix.rows()));
    matrices.iter().map(|matrix| share(matrix) as u32).collect()
}
