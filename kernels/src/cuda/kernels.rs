//! Every operation's kernels.

use super::loader::Loader;
use super::{hyper_connection, normalize, rotate};
use ds4_gpu::cuda::{CudaError, Gpu};

/// One field per operation.
pub(crate) struct Kernels {
    pub(crate) hyper_connection: hyper_connection::Kernels,
    pub(crate) normalize: normalize::Kernels,
    pub(crate) rotate: rotate::Kernels,
}

impl Kernels {
    pub(crate) fn load(gpu: &Gpu) -> Result<Kernels, CudaError> {
        let loader = Loader::new(gpu);
        Ok(Kernels {
            hyper_connection: hyper_connection::Kernels::load(&loader)?,
            normalize: normalize::Kernels::load(&loader)?,
            rotate: rotate::Kernels::load(&loader)?,
        })
    }
}
