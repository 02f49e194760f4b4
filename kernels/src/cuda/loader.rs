//! Kernels of the file that was compiled for this GPU.

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
