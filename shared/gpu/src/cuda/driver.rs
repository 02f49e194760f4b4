//! The driver's library: loading it once, and turning its codes into errors.

use super::error::{CudaError, DRIVER_MIN};
use cudarc::driver::sys::{self, CUresult};
use std::ffi::CStr;
use std::ptr;
use std::sync::OnceLock;

/// Loads and starts the driver; every later call gives the first one's answer.
pub(super) fn start() -> Result<i32, CudaError> {
    static STARTED: OnceLock<Result<i32, CudaError>> = OnceLock::new();
    STARTED.get_or_init(start_once).clone()
}

fn start_once() -> Result<i32, CudaError> {
    // SAFETY: loading a library runs its initialisers; NVIDIA's driver library is made to be loaded like this.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NoDriver);
    }
    let mut version = 0;
    // SAFETY: `version` is writable for the call; this function needs no initialised driver.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
    if version < DRIVER_MIN {
        return Err(CudaError::DriverTooOld { have: version });
    }
    // SAFETY: takes no pointer; 0 is the one value its parameter may have.
    check("cuInit", unsafe { sys::cuInit(0) })?;
    Ok(version)
}

/// The error behind a driver's code, if it is one.
pub(super) fn check(call: &'static str, code: CUresult) -> Result<(), CudaError> {
    if code == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut name = ptr::null();
    // SAFETY: `name` is writable for the call.
    let known = unsafe { sys::cuGetErrorName(code, &mut name) } == CUresult::CUDA_SUCCESS && !name.is_null();
    // SAFETY: on success the driver has stored a pointer to a constant, NUL-terminated string of its own.
    let name = known.then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned());
    Err(CudaError::Call { call, name: name.unwrap_or_else(|| "an unknown error".to_owned()), code: code as u32 })
}
