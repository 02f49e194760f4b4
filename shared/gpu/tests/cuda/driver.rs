use crate::gpu;
use ds4_gpu::cuda::{CudaError, Gpu};

#[test]
fn a_device_says_what_it_is() {
    let gpu = gpu();
    assert!(!gpu.name().is_empty() && gpu.uuid().starts_with("GPU-") && gpu.uuid().len() == 40, "{gpu:?}");
    assert!(gpu.compute_capability() >= (7, 0) && gpu.multiprocessors() > 0);
    assert!(gpu.granularity().0.is_power_of_two());
    let memory = gpu.memory().unwrap();
    assert!(memory.free <= memory.total && memory.total.0 > 1 << 30);
}

#[test]
fn a_device_that_is_not_there_is_named_with_how_many_there_are() {
    let count = Gpu::count().unwrap();
    assert_eq!(Gpu::open(99).unwrap_err(), CudaError::NoDevice { ordinal: 99, count });
}
