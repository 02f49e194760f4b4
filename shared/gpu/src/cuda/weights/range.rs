//! Device memory that is being filled, to be shared.

use crate::cuda::copy::zero_async;
use crate::cuda::device::Gpu;
use crate::cuda::error::CudaError;
use crate::cuda::physical::{ExportedFd, PhysAlloc};
use crate::cuda::stream::Stream;
use crate::cuda::va::{Access, Mapping};
use crate::memory::DeviceMemory;
use ds4_units::Bytes;
use std::sync::Arc;

/// Memory of a device, mapped here to be written. Dropping it frees it, unless it was exported.
#[derive(Debug)]
pub struct DeviceRange {
    mapping: Mapping,
}

impl DeviceRange {
    /// Takes `len` bytes of zeros, a multiple of [`Gpu::granularity`]. Blocks for less than a millisecond a GiB.
    pub fn create(gpu: &Gpu, len: Bytes) -> Result<DeviceRange, CudaError> {
        let mapping = Mapping::alone(Arc::new(PhysAlloc::create(gpu, len)?), Access::ReadWrite)?;
        let stream = Stream::new(gpu)?;
        // SAFETY: the whole of memory that nobody else knows yet; the stream is waited for at once.
        unsafe { zero_async(&stream, mapping.address(), len.0) }?;
        stream.synchronize()?;
        Ok(DeviceRange { mapping })
    }

    /// Its length.
    pub fn len(&self) -> Bytes {
        self.mapping.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == Bytes::ZERO
    }

    /// The mapping.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The right to the memory. It stays while anyone holds that, also when this value is gone.
    pub fn export(&self) -> Result<ExportedFd, CudaError> {
        self.mapping.memory().export()
    }
}
