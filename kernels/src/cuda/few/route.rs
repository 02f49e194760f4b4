//! The router's product and the experts that every row chooses, in one launch.

use super::{CHANNELS, PANEL, ROW_HALVES, ROWS_MAX, SHARED_MAX, panels};
use crate::backend::{Backend, Routing};
use crate::cuda::device::Device;
use crate::cuda::loader::Loader;
use crate::cuda::matrix::DeviceMatrix;
use crate::cuda::route::{DeviceRoutes, ExpertTable, Router};
use crate::cuda::rows::DeviceRows;
use crate::cuda::vector::DeviceVector;
use crate::experts::ExpertConstants;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_units::TensorType;

const THREADS: u32 = 128;
/// Parts of the channels, each with blocks of threads of its own.
const PARTS: usize = 4;
/// Experts that a row chooses from.
pub(super) const STACK_MAX: usize = 384;
/// Shared memory that the kernel has of its own: results of warps.
const OWN: usize = 4 * PANEL * ROWS_MAX * size_of::<f32>() + 16;

pub(crate) struct Kernels {
    route: Function,
}

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let route = loader.function("few_route", "few_route")?;
        route.allow_shared((SHARED_MAX - OWN) as u32)?;
        Ok(Kernels { route })
    }
}

/// `RouteRows` of `cu/few_route.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RouteRows {
    router: Router,
    weights: DevicePtr,
    input: DevicePtr,
    parts: DevicePtr,
    columns: u32,
    reserved: u32,
}

// SAFETY: a structure without gaps whose size is a multiple of 8, three addresses and two words.
unsafe impl bytemuck::NoUninit for RouteRows {}

/// The routes of every row, if this kernel takes the router.
pub(super) fn route<B>(
    device: &Device,
    matrix: &DeviceMatrix,
    routing: &Routing<B>,
    constants: &ExpertConstants,
    rows: &DeviceRows,
) -> Option<DeviceRoutes>
where
    B: Backend<Matrix = DeviceMatrix, Vector = DeviceVector, ExpertTable = ExpertTable>,
{
    let (len, stack, columns) = (rows.len(), matrix.rows(), rows.width());
    let shared = shared(columns, len, stack);
    let takes = matrix.kind() == TensorType::F16
        && matrix.columns() == columns
        && columns.is_multiple_of(8)
        && stack <= STACK_MAX
        && len <= ROWS_MAX
        && shared + OWN <= SHARED_MAX;
    if !takes {
        return None;
    }
    let routes = DeviceRoutes::room(device, len);
    let parts = device.rows(PARTS * len, stack);
    let argument = RouteRows {
        router: Router::new(device, [len, stack], routing, constants, &routes),
        weights: matrix.address(),
        input: rows.address(),
        parts: parts.address(),
        columns: columns as u32,
        reserved: 0,
    };
    let launch = Launch::new((PARTS * panels(stack)) as u32, THREADS).shared(shared as u32).overlap();
    // SAFETY: blocks of threads for every part of every panel; the matrix has the rows' columns, `parts` room for each
    // part's sums, `routes` for every row, and shared memory for the largest part of the rows; the step has a token for
    // each row, and tokens lie in the vocabulary, which is what a table covers.
    unsafe { device.launch(&device.kernels.few.route.route, launch, &Args::new().with(argument)) };
    Some(routes)
}

/// Shared memory for the largest part of so many rows, then for two words for each of their experts.
fn shared(columns: usize, rows: usize, stack: usize) -> usize {
    let part = columns.div_ceil(CHANNELS).div_ceil(PARTS) * (ROW_HALVES + size_of::<f32>());
    rows * part.max(2 * stack * size_of::<f32>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_models_routers_fit_shared_memory_for_as_many_rows_as_these_kernels_take() {
        for columns in [4096, 7168] {
            assert!(shared(columns, ROWS_MAX, STACK_MAX) + OWN <= SHARED_MAX, "{columns} channels");
        }
    }
}
