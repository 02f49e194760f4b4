//! Copies of weights in a GPU's memory, and what all of them take.

use ds4_gpu::cuda::{CudaError, DeviceBuffer, Gpu};
use ds4_gpu::{DeviceMemory, DevicePtr, MemoryError};
use ds4_units::Bytes;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much the copies that there are take together.
#[derive(Default)]
pub(super) struct Copies(Arc<AtomicU64>);

/// Bytes on the device that nobody changes; counted for as long as they are there.
pub(crate) struct Copied {
    buffer: DeviceBuffer,
    all: Arc<AtomicU64>,
}

impl Copies {
    /// A copy of `bytes`. Blocks until it is there.
    pub(super) fn copy(&self, gpu: &Gpu, bytes: &[u8]) -> Result<Arc<Copied>, CudaError> {
        let buffer = DeviceBuffer::from_bytes(gpu, bytes)?;
        self.0.fetch_add(buffer.len().0, Ordering::Relaxed);
        Ok(Arc::new(Copied { buffer, all: Arc::clone(&self.0) }))
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.0.load(Ordering::Relaxed))
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        self.all.fetch_sub(self.buffer.len().0, Ordering::Relaxed);
    }
}

impl DeviceMemory for Copied {
    fn address(&self) -> DevicePtr {
        self.buffer.address()
    }

    fn len(&self) -> Bytes {
        self.buffer.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        self.buffer.read(offset, out)
    }
}

impl fmt::Debug for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Copied({} at {:?})", self.len(), self.address())
    }
}
