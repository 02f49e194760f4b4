//! Choosing experts: `cu/route.cu` has the formula.

use super::Cuda;
use super::copies::Copied;
use super::device::Device;
use super::loader::Loader;
use super::matrix::{DeviceMatrix, STACK_MAX};
use super::rows::DeviceRows;
use super::vector::DeviceVector;
use crate::Rows;
use crate::backend::{Backend, BackendError, Routing};
use crate::experts::{EXPERTS_USED, ExpertConstants, Routes};
use crate::kv_rows::KvFormat;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_gpu::{DeviceMemory, DevicePtr};
use std::sync::Arc;

/// Rows of a block of threads.
const WARPS: usize = 4;

/// The kernels of this file's `.cu`.
pub(crate) struct Kernels {
    route: Function,
}

/// Fixed experts by token: `[vocabulary][EXPERTS_USED]`.
#[derive(Clone, Debug)]
pub struct ExpertTable {
    ids: Arc<Copied>,
    tokens: usize,
}

/// The experts that every row chose, and their weights.
pub struct DeviceRoutes {
    /// Ids, as bits.
    experts: DeviceRows,
    weights: DeviceRows,
}

/// `Router` of `cu/route.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Router {
    logits: DevicePtr,
    bias: DevicePtr,
    fixed: DevicePtr,
    tokens: DevicePtr,
    experts: DevicePtr,
    weights: DevicePtr,
    rows: u32,
    stack: u32,
    scale: f32,
    reserved: u32,
}

// SAFETY: six addresses and four words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for Router {}

impl Router {
    /// Chooses for `rows` rows from `stack` experts, by logits that are still to be named, and leaves what it chooses in
    /// `routes`.
    pub(super) fn new<B>(
        device: &Device,
        [rows, stack]: [usize; 2],
        routing: &Routing<B>,
        constants: &ExpertConstants,
        routes: &DeviceRoutes,
    ) -> Router
    where
        B: Backend<Matrix = DeviceMatrix, Vector = DeviceVector, ExpertTable = ExpertTable>,
    {
        let (bias, fixed) = match routing {
            Routing::Best { bias } => (bias.as_ref().map_or(DevicePtr(0), DeviceVector::address), DevicePtr(0)),
            Routing::ByToken(table) => (DevicePtr(0), table.ids.address()),
        };
        Router {
            logits: DevicePtr(0),
            bias,
            fixed,
            tokens: device.step().tokens,
            experts: routes.experts(),
            weights: routes.weights(),
            rows: rows as u32,
            stack: stack as u32,
            scale: constants.weight_scale,
            reserved: 0,
        }
    }
}

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let route = loader.function("route", "route")?;
        Ok(Kernels { route })
    }
}

impl ExpertTable {
    pub(super) fn new(device: &Device, table: &[[u32; EXPERTS_USED]]) -> Result<ExpertTable, BackendError> {
        Ok(ExpertTable { ids: device.upload(bytemuck::cast_slice(table))?, tokens: table.len() })
    }

    /// Tokens that it has experts for.
    pub fn tokens(&self) -> usize {
        self.tokens
    }
}

impl DeviceRoutes {
    /// Room for the routes of so many rows.
    pub(super) fn room(device: &Device, rows: usize) -> DeviceRoutes {
        DeviceRoutes { experts: device.rows(rows, EXPERTS_USED), weights: device.rows(rows, EXPERTS_USED) }
    }

    pub(crate) fn rows(&self) -> usize {
        self.weights.len()
    }

    pub(crate) fn experts(&self) -> DevicePtr {
        self.experts.address()
    }

    pub(crate) fn weights(&self) -> DevicePtr {
        self.weights.address()
    }
}

/// The routes of every row of the step from its router's logits.
pub(super) fn route<B>(
    device: &Device,
    logits: &DeviceRows,
    routing: &Routing<B>,
    constants: &ExpertConstants,
) -> DeviceRoutes
where
    B: Backend<Matrix = DeviceMatrix, Vector = DeviceVector, ExpertTable = ExpertTable>,
{
    let (rows, stack) = (logits.len(), logits.width());
    assert!(stack <= STACK_MAX, "{stack} experts are more than the {STACK_MAX} that a launch can route to");
    let routes = DeviceRoutes::room(device, rows);
    let router = Router::new(device, [rows, stack], routing, constants, &routes);
    let router = Router { logits: logits.address(), ..router };
    let start = Launch::new(rows.div_ceil(WARPS) as u32, (WARPS * 32) as u32).overlap();
    // SAFETY: the lists were made for `rows` rows, the step has a token for each, and tokens lie in the vocabulary,
    // which is what the table covers.
    unsafe { device.launch(&device.kernels.route.route, start, &Args::new().with(router)) };
    routes
}

impl<F: KvFormat> Cuda<F> {
    /// Routes from the host, for tests and measurements. Blocks.
    pub fn upload_routes(&self, routes: &Routes) -> Result<DeviceRoutes, BackendError> {
        let ids = routes.experts.iter().flatten().map(|&expert| f32::from_bits(expert)).collect();
        let weights = routes.weights.iter().flatten().copied().collect();
        Ok(DeviceRoutes {
            experts: self.device.upload_rows(&Rows::from_values(EXPERTS_USED, ids))?,
            weights: self.device.upload_rows(&Rows::from_values(EXPERTS_USED, weights))?,
        })
    }

    /// Brings routes to the host, for tests and measurements. Blocks.
    pub fn download_routes(&self, routes: &DeviceRoutes) -> Result<Routes, BackendError> {
        let experts = self.device.download(&routes.experts)?;
        let weights = self.device.download(&routes.weights)?;
        let ids = |row: &[f32]| std::array::from_fn(|rank| row[rank].to_bits());
        let own = |row: &[f32]| std::array::from_fn(|rank| row[rank]);
        Ok(Routes { experts: experts.iter().map(ids).collect(), weights: weights.iter().map(own).collect() })
    }
}
