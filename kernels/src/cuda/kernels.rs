//! Every operation's kernels.

use super::loader::Loader;
use super::{embed, experts, hyper_connection, multiply, normalize, operand, rotate, route};
use ds4_gpu::cuda::{CudaError, Gpu};

/// One field per operation.
pub(crate) struct Kernels {
    pub(crate) embed: embed::Kernels,
    pub(crate) experts: experts::Kernels,
    pub(crate) hyper_connection: hyper_connection::Kernels,
    pub(crate) multiply: multiply::Kernels,
    pub(crate) normalize: normalize::Kernels,
    pub(crate) operand: operand::Kernels,
    pub(crate) rotate: rotate::Kernels,
    pub(crate) route: route::Kernels,
}

impl Kernels {
    pub(crate) fn load(gpu: &Gpu) -> Result<Kernels, CudaError> {
        let loader = Loader::new(gpu);
        Ok(Kernels {
            embed: embed::Kernels::load(&loader)?,
            experts: experts::Kernels::load(&loader)?,
            hyper_connection: hyper_connection::Kernels::load(&loader)?,
            multiply: multiply::Kernels::load(&loader)?,
            normalize: normalize::Kernels::load(&loader)?,
            operand: operand::Kernels::load(&loader)?,
            rotate: rotate::Kernels::load(&loader)?,
            route: route::Kernels::load(&loader)?,
        })
    }
}
