//! A build with CUDA on a machine that has no NVIDIA driver.
#![cfg(feature = "cuda")]

use ds4_gpu::cuda::{CudaError, Gpu};

#[test]
fn a_machine_without_a_driver_is_told_so_every_time() {
    match Gpu::count() {
        Err(CudaError::NoDriver) => {
            assert_eq!(Gpu::open(0).unwrap_err(), CudaError::NoDriver);
            assert!(CudaError::NoDriver.to_string().ends_with("Install driver 580 or later"));
        }
        // With a driver there is nothing to see here.
        other => assert!(other.is_ok() || matches!(other, Err(CudaError::DriverTooOld { .. })), "{other:?}"),
    }
}
