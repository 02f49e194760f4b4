//! Modules: compiled kernels on the device.

use super::device::Gpu;
use super::driver::check;
use super::error::CudaError;
use super::function::Function;
use super::leaks;
use crate::memory::DevicePtr;
use cudarc::driver::sys::{self, CUmodule, CUresult};
use ds4_units::Bytes;
use std::ffi::CString;
use std::ptr;
use std::sync::Arc;

/// The kernels and variables of one cubin. Cloning is cheap; functions keep their module.
#[derive(Clone, Debug)]
pub struct Module {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    module: CUmodule,
    gpu: Gpu,
}

// SAFETY: a module handle may be used from any thread; the driver locks inside. `Gpu` is Send and Sync.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Module {
    /// Loads a cubin for this device's architecture. `image` must be a whole cubin; the driver checks its form.
    pub fn load(gpu: &Gpu, image: &[u8]) -> Result<Module, CudaError> {
        gpu.bind()?;
        let mut module = ptr::null_mut();
        // SAFETY: `module` is writable for the call. The driver finds the image's length in its ELF header: the image
        // is one of those built into this program, whole. `Inner` unloads the module once.
        let code = unsafe { sys::cuModuleLoadData(&mut module, image.as_ptr().cast()) };
        check("cuModuleLoadData", code)?;
        Ok(Module { inner: Arc::new(Inner { module, gpu: gpu.clone() }) })
    }

    /// Its device.
    pub fn gpu(&self) -> &Gpu {
        &self.inner.gpu
    }

    /// The kernel of this name (`extern "C"` in the source).
    pub fn function(&self, name: &str) -> Result<Function, CudaError> {
        self.gpu().bind()?;
        let symbol = symbol(name)?;
        let mut function = ptr::null_mut();
        // SAFETY: `function` is writable for the call, the name ends with NUL, `self` keeps the module alive.
        let code = unsafe { sys::cuModuleGetFunction(&mut function, self.inner.module, symbol.as_ptr()) };
        found(name, "cuModuleGetFunction", code)?;
        Function::own(self, name, function)
    }

    /// The variable of this name: where it is, and its size. Valid while the module lives.
    pub fn global(&self, name: &str) -> Result<(DevicePtr, Bytes), CudaError> {
        self.gpu().bind()?;
        let symbol = symbol(name)?;
        let (mut address, mut len) = (0, 0);
        // SAFETY: both are writable for the call, the name ends with NUL, `self` keeps the module alive.
        let code = unsafe { sys::cuModuleGetGlobal_v2(&mut address, &mut len, self.inner.module, symbol.as_ptr()) };
        found(name, "cuModuleGetGlobal", code)?;
        Ok((DevicePtr(address), Bytes(len as u64)))
    }
}

fn symbol(name: &str) -> Result<CString, CudaError> {
    CString::new(name).map_err(|_| CudaError::NoSymbol { name: name.to_owned() })
}

fn found(name: &str, call: &'static str, code: CUresult) -> Result<(), CudaError> {
    match code {
        CUresult::CUDA_ERROR_NOT_FOUND => Err(CudaError::NoSymbol { name: name.to_owned() }),
        code => check(call, code),
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: loaded once in `Module::load`, unloaded once here, when no `Function` is left.
        let result =
            self.gpu.bind().and_then(|()| check("cuModuleUnload", unsafe { sys::cuModuleUnload(self.module) }));
        leaks::count(result);
    }
}
