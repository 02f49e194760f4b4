//! Where a worker computes, and how a range becomes readable there.

use crate::lease::Lease;
use ds4_gpu::{Memory, RangeError, ReadMapping, SharedRange};
use ds4_resident::Destination;
use ds4_units::Bytes;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use thiserror::Error;

#[cfg(feature = "cuda")]
use ds4_gpu::cuda::{Access, CudaError, Gpu, Mapping, PhysAlloc};

/// Where a worker computes. It decides which weights the worker can use.
#[derive(Clone, Debug, Default)]
pub enum ComputeDevice {
    /// On the CPU, with weights in host memory as the file has them.
    #[default]
    Cpu,
    /// On a GPU, with weights in its memory, split where the owner splits them.
    #[cfg(feature = "cuda")]
    Gpu(Gpu),
}

/// A range that cannot be mapped.
#[derive(Debug, Error)]
pub enum MapError {
    /// Host memory.
    #[error(transparent)]
    Host(#[from] RangeError),
    /// Memory of a device.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Device(#[from] CudaError),
    /// Memory of a kind that this worker does not compute in.
    #[error("the range is in {0} memory")]
    Kind(&'static str),
}

/// A range that is readable here. Dropping it unmaps it.
#[derive(Debug)]
pub(crate) enum MappedRange {
    Host(ReadMapping),
    #[cfg(feature = "cuda")]
    Device(Mapping),
}

impl ComputeDevice {
    /// Where weights go that it loads itself.
    pub(crate) fn destination(&self) -> Destination {
        match self {
            ComputeDevice::Cpu => Destination::Host,
            #[cfg(feature = "cuda")]
            ComputeDevice::Gpu(gpu) => Destination::Device(gpu.clone()),
        }
    }

    /// The owner's backend whose weights it can use.
    pub(crate) fn backend(&self) -> &'static str {
        match self {
            ComputeDevice::Cpu => "memfd",
            #[cfg(feature = "cuda")]
            ComputeDevice::Gpu(_) => "vmm",
        }
    }

    /// The UUID of the device that the weights must be on, if they must be on one.
    pub(crate) fn uuid(&self) -> Option<&str> {
        match self {
            ComputeDevice::Cpu => None,
            #[cfg(feature = "cuda")]
            ComputeDevice::Gpu(gpu) => Some(gpu.uuid()),
        }
    }

    /// The layouts beside the file's own that it can read.
    pub(crate) fn capabilities(&self) -> Vec<String> {
        match self {
            ComputeDevice::Cpu => Vec::new(),
            #[cfg(feature = "cuda")]
            ComputeDevice::Gpu(_) => vec![ds4_units::Layout::Split.name().to_owned()],
        }
    }

    /// Maps a received descriptor read-only and closes it; the mapping keeps the memory.
    pub(crate) fn map(&self, fd: OwnedFd, len: Bytes) -> Result<MappedRange, MapError> {
        match self {
            ComputeDevice::Cpu => Ok(MappedRange::Host(ReadMapping::map(fd, len)?)),
            #[cfg(feature = "cuda")]
            ComputeDevice::Gpu(gpu) => {
                let memory = PhysAlloc::import(gpu, std::os::fd::AsFd::as_fd(&fd), len)?;
                Ok(MappedRange::Device(Mapping::alone(Arc::new(memory), Access::ReadOnly)?))
            }
        }
    }

    /// Maps a range that this process has loaded itself.
    pub(crate) fn map_own(&self, range: SharedRange) -> Result<Memory, MapError> {
        match (self, range) {
            (ComputeDevice::Cpu, SharedRange::Host(range)) => Ok(Memory::host(range.map()?)),
            #[cfg(feature = "cuda")]
            (ComputeDevice::Gpu(_), SharedRange::Device { fd, len }) => Ok(self.map(fd, len)?.into_memory(None)),
            #[cfg(feature = "cuda")]
            (ComputeDevice::Gpu(_), SharedRange::Host(_)) => Err(MapError::Kind("host")),
            (ComputeDevice::Cpu, SharedRange::Device { .. }) => Err(MapError::Kind("device")),
        }
    }
}

impl MappedRange {
    /// The same as memory that keeps a lease, if there is one, until nobody holds it any more.
    pub(crate) fn into_memory(self, lease: Option<Arc<Lease>>) -> Memory {
        match self {
            MappedRange::Host(mapping) => Memory::host(LeasedHost { mapping, _lease: lease }),
            #[cfg(feature = "cuda")]
            MappedRange::Device(mapping) => Memory::Device(Arc::new(LeasedDevice { mapping, _lease: lease })),
        }
    }
}

/// Fields drop in order: first the mapping, then the lease.
struct LeasedHost {
    mapping: ReadMapping,
    _lease: Option<Arc<Lease>>,
}

impl AsRef<[u8]> for LeasedHost {
    fn as_ref(&self) -> &[u8] {
        self.mapping.as_ref()
    }
}

/// Fields drop in order: first the mapping, then the lease.
#[cfg(feature = "cuda")]
struct LeasedDevice {
    mapping: Mapping,
    _lease: Option<Arc<Lease>>,
}

#[cfg(feature = "cuda")]
impl ds4_gpu::DeviceMemory for LeasedDevice {
    fn address(&self) -> ds4_gpu::DevicePtr {
        self.mapping.address()
    }

    fn len(&self) -> Bytes {
        self.mapping.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), ds4_gpu::MemoryError> {
        self.mapping.read(offset, out)
    }
}
