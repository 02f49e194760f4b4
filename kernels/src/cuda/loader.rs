//! Kernels of the file that was compiled for this GPU.

use crate::BackendError;
use ds4_gpu::cuda::{Cubin, CudaError, Function, Gpu, Module, load};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Every kernel file, for every architecture.
const CUBINS: &[Cubin] = include!(concat!(env!("OUT_DIR"), "/cubins.rs"));

/// Loads kernels; a file's module is loaded once.
pub(crate) struct Loader<'a> {
    gpu: &'a Gpu,
    modules: RefCell<BTreeMap<String, Module>>,
}

impl Loader<'_> {
    pub(crate) fn new(gpu: &Gpu) -> Loader<'_> {
        Loader { gpu, modules: RefCell::new(BTreeMap::new()) }
    }

    /// The kernel `kernel` of `cu/FILE.cu`.
    pub(crate) fn function(&self, file: &str, kernel: &str) -> Result<Function, CudaError> {
        let mut modules = self.modules.borrow_mut();
        if let Some(module) = modules.get(file) {
            return module.function(kernel);
        }
        let module = load(self.gpu, CUBINS, file)?;
        let function = module.function(kernel)?;
        modules.insert(file.to_owned(), module);
        Ok(function)
    }
}

/// Whether this program has kernels for the GPU; the error lists the architectures that it has some for.
pub fn check(gpu: &Gpu) -> Result<(), BackendError> {
    load(gpu, CUBINS, CUBINS[0].name)?;
    Ok(())
}
