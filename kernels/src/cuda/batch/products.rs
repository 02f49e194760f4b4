//! Products of several matrices with the same some rows, in one launch.

use super::plan::{self, Plan, WARPS};
use super::{PRODUCT_ROWS, merge};
use crate::backend::{Backend, HyperSite};
use crate::cuda::device::Device;
use crate::cuda::loader::Loader;
use crate::cuda::matrix::DeviceMatrix;
use crate::cuda::rows::DeviceRows;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Gpu, Launch};
use ds4_units::TensorType;

/// Matrices of a launch at most.
const JOBS: usize = 8;
/// Outputs that keep the device busy; for fewer there are kernels that cut channels finer.
const OUTPUTS_MIN: usize = 64;

pub(crate) struct Kernels {
    /// In the order of the plan.
    variants: [Function; 2],
}

impl Kernels {
    pub(super) fn load(gpu: &Gpu, loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| -> Result<Function, CudaError> {
            let function = loader.function("batch_products", name)?;
            function.allow_shared(gpu.max_shared_per_block())?;
            Ok(function)
        };
        Ok(Kernels { variants: [function("batch_products_16")?, function("batch_products_32")?] })
    }
}

/// `BatchJob` of `cu/batch_products.cu`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Job {
    weights: DevicePtr,
    out: DevicePtr,
    outputs: u32,
    first_cluster: u32,
    clusters: u32,
    is_half: u32,
}

/// `BatchProducts` of the same.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Products {
    jobs: [Job; JOBS],
    input: DevicePtr,
    linear: DevicePtr,
    columns: u32,
    parts: u32,
    rows: u32,
    clamp: f32,
}

// SAFETY: two addresses and four words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for Job {}
// SAFETY: structures without gaps whose sizes are multiples of 8, two addresses and four words.
unsafe impl bytemuck::NoUninit for Products {}

/// What is multiplied.
#[derive(Clone, Copy)]
pub(super) enum Input<'a> {
    /// Rows as they are.
    Rows(&'a DeviceRows),
    /// What rows make as a gate of other rows.
    Gated { gate: &'a DeviceRows, linear: &'a DeviceRows, clamp: f32 },
}

impl Input<'_> {
    fn rows(&self) -> &DeviceRows {
        match self {
            Input::Rows(rows) | Input::Gated { gate: rows, .. } => rows,
        }
    }
}

/// `matrix . row` for every matrix and every row, if these kernels take all of them.
pub(in crate::cuda) fn multiply_all(
    device: &Device,
    matrices: &[&DeviceMatrix],
    rows: &DeviceRows,
) -> Option<Vec<DeviceRows>> {
    multiply(device, matrices, 1, Input::Rows(rows))
}

/// Splits rows and outputs into `parts` equal parts and multiplies part by part, if these kernels take them.
pub(in crate::cuda) fn multiply_parts(
    device: &Device,
    matrix: &DeviceMatrix,
    parts: usize,
    rows: &DeviceRows,
) -> Option<DeviceRows> {
    multiply(device, &[matrix], parts, Input::Rows(rows))?.pop()
}

/// A product of what gates make, if these kernels take it.
pub(super) fn multiply_gated(device: &Device, matrix: &DeviceMatrix, input: Input<'_>) -> Option<DeviceRows> {
    multiply(device, &[matrix], 1, input)?.pop()
}

/// A product merged into the streams, if these kernels take it.
pub(in crate::cuda) fn multiply_and_merge<B: Backend<Matrix = DeviceMatrix>>(
    device: &Device,
    matrix: &DeviceMatrix,
    rows: &DeviceRows,
    into: [&mut DeviceRows; 2],
    next: Option<&HyperSite<B>>,
) -> bool {
    if !merge::takes(into[0], matrix.rows()) {
        return false;
    }
    let Some(output) = multiply_parts(device, matrix, 1, rows) else {
        return false;
    };
    merge::merge(device, &output, None, into, next);
    true
}

fn multiply(device: &Device, matrices: &[&DeviceMatrix], parts: usize, input: Input<'_>) -> Option<Vec<DeviceRows>> {
    let rows = input.rows();
    let columns = rows.width() / parts;
    if !PRODUCT_ROWS.contains(&rows.len())
        || matrices.len() > JOBS
        || !matrices.iter().all(|matrix| takes(matrix, columns))
    {
        return None;
    }
    let outputs: Vec<usize> = matrices.iter().map(|matrix| matrix.rows()).collect();
    let some_halves = matrices.iter().any(|matrix| matrix.kind() == TensorType::F16);
    let limits = plan::Limits {
        multiprocessors: device.gpu.multiprocessors() as usize,
        shared: device.gpu.max_shared_per_block() as usize,
    };
    let Plan { variant, tiles, ranks, shared, clusters } =
        limits.plan(rows.len(), columns, parts, some_halves, &outputs)?;
    let out: Vec<DeviceRows> = outputs.iter().map(|&outputs| device.rows(rows.len(), outputs)).collect();
    let (linear, clamp) = match input {
        Input::Rows(_) => (DevicePtr(0), 0.0),
        Input::Gated { linear, clamp, .. } => (linear.address(), clamp),
    };
    let mut products = Products {
        jobs: [Job::default(); JOBS],
        input: rows.address(),
        linear,
        columns: columns as u32,
        parts: parts as u32,
        rows: rows.len() as u32,
        clamp,
    };
    let mut first = 0;
    for ((job, (matrix, out)), clusters) in products.jobs.iter_mut().zip(matrices.iter().zip(&out)).zip(clusters) {
        *job = Job {
            weights: matrix.address(),
            out: out.address(),
            outputs: matrix.rows() as u32,
            first_cluster: first,
            clusters: clusters as u32,
            is_half: u32::from(matrix.kind() == TensorType::F16),
        };
        first += clusters as u32;
    }
    let across = first * ranks as u32;
    let start =
        Launch::new(across, (WARPS * 32) as u32).grid([across, tiles as u32, 1]).shared(shared as u32).overlap();
    let start = if ranks > 1 { start.cluster([ranks as u32, 1, 1]) } else { start };
    // SAFETY: every job's clusters lie side by side and are all of the grid; matrices have the columns that rows have,
    // results the outputs, and shared memory has room for the rows.
    unsafe { device.launch(&device.kernels.batch.products.variants[variant], start, &Args::new().with(products)) };
    Some(out)
}

fn takes(matrix: &DeviceMatrix, columns: usize) -> bool {
    assert_eq!(matrix.columns(), columns, "rows fit {matrix:?}");
    // F16 keeps pairs of half floats; what is brought to fixed point has to be worth it.
    let kind = matrix.kind() == TensorType::F16 || matrix.kind() == TensorType::Q8_0 && !matrix.is_small();
    kind && matrix.rows() >= OUTPUTS_MIN
}
