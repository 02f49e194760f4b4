//! Every operation's kernels.

use super::loader::Loader;
use super::{
    attend, attend_many, batch, best, compress, embed, experts, few, gemm, gemm_operand, hyper_connection, multiply,
    normalize, operand, rotate, route, select, store_window, streams,
};
use ds4_gpu::cuda::{CudaError, Gpu};

/// One field per operation.
pub(crate) struct Kernels {
    pub(crate) attend: attend::Kernels,
    pub(crate) attend_many: attend_many::Kernels,
    pub(crate) batch: batch::Kernels,
    pub(crate) best: best::Kernels,
    pub(crate) compress: compress::Kernels,
    pub(crate) embed: embed::Kernels,
    pub(crate) experts: experts::Kernels,
    pub(crate) few: few::Kernels,
    pub(crate) gemm: gemm::Kernels,
    pub(crate) gemm_operand: gemm_operand::Kernels,
    pub(crate) hyper_connection: hyper_connection::Kernels,
    pub(crate) multiply: multiply::Kernels,
    pub(crate) normalize: normalize::Kernels,
    pub(crate) operand: operand::Kernels,
    pub(crate) rotate: rotate::Kernels,
    pub(crate) route: route::Kernels,
    pub(crate) select: select::Kernels,
    pub(crate) store_window: store_window::Kernels,
    pub(crate) streams: streams::Kernels,
}

impl Kernels {
    pub(crate) fn load(gpu: &Gpu) -> Result<Kernels, CudaError> {
        let loader = Loader::new(gpu);
        Ok(Kernels {
            attend: attend::Kernels::load(gpu, &loader)?,
            attend_many: attend_many::Kernels::load(gpu, &loader)?,
            batch: batch::Kernels::load(gpu, &loader)?,
            best: best::Kernels::load(&loader)?,
            compress: compress::Kernels::load(&loader)?,
            embed: embed::Kernels::load(&loader)?,
            experts: experts::Kernels::load(&loader)?,
            few: few::Kernels::load(&loader)?,
            gemm: gemm::Kernels::load(gpu, &loader)?,
            gemm_operand: gemm_operand::Kernels::load(&loader)?,
            hyper_connection: hyper_connection::Kernels::load(&loader)?,
            multiply: multiply::Kernels::load(&loader)?,
            normalize: normalize::Kernels::load(&loader)?,
            operand: operand::Kernels::load(&loader)?,
            rotate: rotate::Kernels::load(&loader)?,
            route: route::Kernels::load(&loader)?,
            select: select::Kernels::load(gpu, &loader)?,
            store_window: store_window::Kernels::load(&loader)?,
            streams: streams::Kernels::load(&loader)?,
        })
    }
}
