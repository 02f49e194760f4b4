//! Host memory that a device copies from and to at full speed.

use super::copy::check_place;
use super::device::Gpu;
use super::driver::check;
use super::error::CudaError;
use super::leaks;
use cudarc::driver::sys;
use ds4_units::Bytes;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;

/// Page-locked host memory, zero at first. Dropping it frees it.
#[derive(Debug)]
pub struct PinnedBuffer {
    start: NonNull<u8>,
    len: usize,
    gpu: Gpu,
}

// SAFETY: the memory is this value's alone, as a `Box<[u8]>`'s is; the driver frees it from any thread.
unsafe impl Send for PinnedBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// Memory of `len` bytes, at least one page, aligned to pages. Locking takes some 0.2 ms a MiB.
    pub fn new(gpu: &Gpu, len: Bytes) -> Result<PinnedBuffer, CudaError> {
        gpu.bind()?;
        let mut start = ptr::null_mut();
        let len = len.index().max(1);
        // SAFETY: `start` is writable for the call; a context is current. Dropping frees it once.
        check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&mut start, len, sys::CU_MEMHOSTALLOC_PORTABLE) })?;
        let start = NonNull::new(start.cast::<u8>()).expect("the driver gives an address with its success");
        // SAFETY: `len` bytes from `start` were just allocated, for us alone. Written once, they may be read as bytes.
        unsafe { start.write_bytes(0, len) };
        Ok(PinnedBuffer { start, len, gpu: gpu.clone() })
    }

    /// All bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes from `start` are this value's, and nobody writes while it is borrowed: device
        // copies into it need a promise of the caller that nobody reads meanwhile.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// All bytes, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    pub(super) fn get(&self, place: Range<usize>) -> Result<&[u8], CudaError> {
        check_place(Bytes(self.len as u64), place.start as u64, place.len() as u64)?;
        Ok(&self.as_slice()[place])
    }

    pub(super) fn get_mut(&mut self, place: Range<usize>) -> Result<&mut [u8], CudaError> {
        check_place(Bytes(self.len as u64), place.start as u64, place.len() as u64)?;
        Ok(&mut self.as_mut_slice()[place])
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated once in `new`, freed once here.
        let free = || check("cuMemFreeHost", unsafe { sys::cuMemFreeHost(self.start.as_ptr().cast()) });
        leaks::count(self.gpu.bind().and_then(|()| free()));
    }
}
