//! Memory of a CUDA device.

use super::{MemoryError, MemorySource, Observation, ProcessMemory, SystemMemory};
use ds4_gpu::cuda::Gpu;

/// A device: its own memory, or the host's if it shares that.
pub(crate) struct DeviceSource {
    gpu: Gpu,
    host: SystemMemory,
}

impl DeviceSource {
    pub(crate) fn new(gpu: &Gpu) -> DeviceSource {
        DeviceSource { gpu: gpu.clone(), host: SystemMemory::new() }
    }
}

impl MemorySource for DeviceSource {
    fn observe(&self) -> Result<Observation, MemoryError> {
        let free = self.gpu.memory()?.free;
        if !self.gpu.is_integrated() {
            return Ok(Observation { source: "free GPU memory", available: free, ..Observation::default() });
        }
        // What the driver calls free there leaves out page cache, which the kernel gives up on demand.
        let host = self.host.observe()?;
        if host.available >= free {
            Ok(host)
        } else {
            Ok(Observation { available: free, source: "free GPU memory", ..host })
        }
    }

    fn largest_processes(&self) -> Vec<ProcessMemory> {
        if self.gpu.is_integrated() { self.host.largest_processes() } else { Vec::new() }
    }

    fn beside(&self) -> Option<&dyn MemorySource> {
        (!self.gpu.is_integrated()).then_some(&self.host as &dyn MemorySource)
    }
}
