//! Steps of few rows: kernels whose time is that of reading the weights. `cu/few.cuh` says how they compute.

mod enter;
mod experts;
mod merge;
mod products;
mod route;
mod select;
mod settle;

pub(super) use enter::{DueMixes, make_due, mix};
pub(super) use experts::{feed_forward_and_merge, routed};
pub(super) use products::{multiply_all, multiply_and_merge, multiply_parts};
pub(super) use select::select;
pub(super) use settle::{settle, settle_and_multiply};

use super::loader::Loader;
use crate::step::Step;
use ds4_gpu::cuda::CudaError;

/// Rows that these kernels take at most.
pub(super) const ROWS_MAX: usize = 8;
/// Rows that the kernels around products take at most: those of a step whose rows are some, too.
pub(super) const SITE_ROWS_MAX: usize = 64;
/// Rows that their smaller variants take.
const ROWS_FEW: usize = 4;
/// Threads of a block.
const THREADS: u32 = 256;
const WARPS: usize = 8;
/// Weight rows that are multiplied together, and channels that are.
const PANEL: usize = 16;
const CHANNELS: usize = 256;
/// Shared memory of a row's block of channels in fixed point.
const ROW_PLANES: usize = 2 * PLANE;
const PLANE: usize = 288;
/// The same as pairs of half floats.
const ROW_HALVES: usize = 2 * 576;
/// Mixes of a hyper-connection site and the sum of squares.
const PARTIALS: usize = crate::hyper_connection::MIX_WIDTH + 1;
/// Dynamic shared memory that a block of threads may ask for: what every architecture has, less what kernels have
/// of their own.
const SHARED_MAX: usize = 80 << 10;

pub(crate) struct Kernels {
    enter: enter::Kernels,
    experts: experts::Kernels,
    products: products::Kernels,
    route: route::Kernels,
    select: select::Kernels,
    settle: settle::Kernels,
}

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        Ok(Kernels {
            enter: enter::Kernels::load(loader)?,
            experts: experts::Kernels::load(loader)?,
            products: products::Kernels::load(loader)?,
            route: route::Kernels::load(loader)?,
            select: select::Kernels::load(loader)?,
            settle: settle::Kernels::load(loader)?,
        })
    }
}

/// Whether a step's rows are few enough for the kernels around products.
pub(super) fn takes<Bank>(step: &Step<'_, Bank>) -> bool {
    step.len() <= SITE_ROWS_MAX
}

fn panels(outputs: usize) -> usize {
    outputs.div_ceil(PANEL)
}

fn blocks(columns: usize) -> usize {
    columns.div_ceil(CHANNELS)
}
