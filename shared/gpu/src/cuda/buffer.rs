//! Plain device memory of this process.

use super::copy::{self, check_place};
use super::device::Gpu;
use super::driver::check;
use super::error::CudaError;
use super::leaks;
use super::pinned::PinnedBuffer;
use super::stream::Stream;
use crate::memory::{DeviceMemory, DevicePtr, MemoryError};
use cudarc::driver::sys;
use ds4_units::Bytes;
use std::ops::Range;

/// Device memory that this process alone uses. Dropping it waits for the device and frees it.
#[derive(Debug)]
pub struct DeviceBuffer {
    address: DevicePtr,
    len: Bytes,
    gpu: Gpu,
}

impl DeviceBuffer {
    /// Memory with whatever was in it. No bytes are as good as any number.
    pub fn new(gpu: &Gpu, len: Bytes) -> Result<DeviceBuffer, CudaError> {
        gpu.bind()?;
        let mut address = 0;
        // The driver refuses an empty allocation.
        let allocated = len.index().max(1);
        // SAFETY: `address` is writable for the call; a context is current. Dropping frees it once.
        check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&mut address, allocated) })?;
        Ok(DeviceBuffer { address: DevicePtr(address), len, gpu: gpu.clone() })
    }

    /// Memory of zeros. Blocks.
    pub fn zeroed(gpu: &Gpu, len: Bytes) -> Result<DeviceBuffer, CudaError> {
        let buffer = DeviceBuffer::new(gpu, len)?;
        buffer.zero()?;
        Ok(buffer)
    }

    /// Memory with these bytes. Blocks.
    pub fn from_bytes(gpu: &Gpu, bytes: &[u8]) -> Result<DeviceBuffer, CudaError> {
        let buffer = DeviceBuffer::new(gpu, Bytes(bytes.len() as u64))?;
        buffer.upload(0, bytes)?;
        Ok(buffer)
    }

    /// Its device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Copies bytes in. Blocks; work in streams is not waited for.
    pub fn upload(&self, offset: u64, bytes: &[u8]) -> Result<(), CudaError> {
        check_place(self.len, offset, bytes.len() as u64)?;
        // SAFETY: the place was checked, and the memory is this value's.
        unsafe { copy::upload(&self.gpu, self.address.offset(offset), bytes) }
    }

    /// Copies bytes out. Blocks; work in streams is not waited for.
    pub fn download(&self, offset: u64, out: &mut [u8]) -> Result<(), CudaError> {
        check_place(self.len, offset, out.len() as u64)?;
        // SAFETY: the place was checked, and the memory is this value's.
        unsafe { copy::download(&self.gpu, self.address.offset(offset), out) }
    }

    /// Fills it with zeros. Blocks; work in streams is not waited for.
    pub fn zero(&self) -> Result<(), CudaError> {
        self.gpu.bind()?;
        if self.len == Bytes::ZERO {
            return Ok(());
        }
        // SAFETY: the whole of memory that is this value's.
        check("cuMemsetD8", unsafe { sys::cuMemsetD8_v2(self.address.0, 0, self.len.index()) })?;
        // The driver may return before the fill has ended.
        copy::finish_default_stream()
    }

    /// Puts a copy of `place` of `from` into `stream`. Does not block.
    ///
    /// # Safety
    /// Until the copy has ended `from` is neither written to nor dropped, and nothing on the device touches the target
    /// unless streams and events order it before or after.
    pub unsafe fn upload_async(
        &self,
        stream: &Stream,
        offset: u64,
        from: &PinnedBuffer,
        place: Range<usize>,
    ) -> Result<(), CudaError> {
        check_place(self.len, offset, place.len() as u64)?;
        // SAFETY: the place was checked; the caller vouches for the rest.
        unsafe { copy::upload_async(stream, self.address.offset(offset), from, place) }
    }

    /// Puts a copy into `place` of `to` into `stream`. Does not block.
    ///
    /// # Safety
    /// Until the copy has ended `to` is neither read, written to nor dropped, and nothing on the device writes the
    /// source unless streams and events order it before or after.
    pub unsafe fn download_async(
        &self,
        stream: &Stream,
        offset: u64,
        to: &mut PinnedBuffer,
        place: Range<usize>,
    ) -> Result<(), CudaError> {
        check_place(self.len, offset, place.len() as u64)?;
        // SAFETY: the place was checked; the caller vouches for the rest.
        unsafe { copy::download_async(stream, self.address.offset(offset), to, place) }
    }

    /// Puts a fill with zeros into `stream`. Does not block.
    ///
    /// # Safety
    /// Nothing on the device touches the bytes until the fill has ended, unless streams and events order it.
    pub unsafe fn zero_async(&self, stream: &Stream, offset: u64, len: u64) -> Result<(), CudaError> {
        check_place(self.len, offset, len)?;
        // SAFETY: the place was checked; the caller vouches for the rest.
        unsafe { copy::zero_async(stream, self.address.offset(offset), len) }
    }
}

impl DeviceMemory for DeviceBuffer {
    fn address(&self) -> DevicePtr {
        self.address
    }

    fn len(&self) -> Bytes {
        self.len
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        self.download(offset, out).map_err(|error| MemoryError::Device(Box::new(error)))
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated once in `new`, freed once here. The driver waits for work that may still use it.
        let free = || check("cuMemFree", unsafe { sys::cuMemFree_v2(self.address.0) });
        leaks::count(self.gpu.bind().and_then(|()| free()));
    }
}
