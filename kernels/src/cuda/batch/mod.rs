//! Steps of some rows, 9 to 64: many answers written at once. `cu/batch.cuh` says how they compute.
//!
//! A row's result has the same bits in every such step, whatever rows come with it.

mod experts;
mod merge;
mod operand;
mod plan;
mod products;

pub(super) use experts::{feed_forward, feed_forward_and_merge};
pub(super) use products::{multiply_all, multiply_and_merge, multiply_parts};

use super::loader::Loader;
use ds4_gpu::cuda::{CudaError, Gpu};
use std::ops::RangeInclusive;

/// Rows that these kernels take: products of one matrix have others for more rows.
const ROWS: RangeInclusive<usize> = 9..=64;
const PRODUCT_ROWS: RangeInclusive<usize> = 9..=32;
/// Weight rows that are multiplied together, and channels that are.
const PANEL: usize = 16;
const CHANNELS: usize = 256;

pub(crate) struct Kernels {
    experts: experts::Kernels,
    merge: merge::Kernels,
    operand: operand::Kernels,
    products: products::Kernels,
}

impl Kernels {
    pub(super) fn load(gpu: &Gpu, loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        Ok(Kernels {
            experts: experts::Kernels::load(gpu, loader)?,
            merge: merge::Kernels::load(loader)?,
            operand: operand::Kernels::load(loader)?,
            products: products::Kernels::load(gpu, loader)?,
        })
    }
}

fn panels(outputs: usize) -> usize {
    outputs.div_ceil(PANEL)
}

fn blocks(columns: usize) -> usize {
    columns.div_ceil(CHANNELS)
}
