//! Copies between host and device, and on the device.

use super::device::Gpu;
use super::driver::check;
use super::error::CudaError;
use super::pinned::PinnedBuffer;
use super::stream::Stream;
use crate::memory::DevicePtr;
use cudarc::driver::sys;
use ds4_units::Bytes;
use std::ops::Range;

/// Refuses a place that is not inside memory of `len` bytes.
pub(super) fn check_place(len: Bytes, offset: u64, count: u64) -> Result<(), CudaError> {
    match offset.checked_add(count) {
        Some(end) if end <= len.0 => Ok(()),
        _ => Err(CudaError::PastEnd { len, offset, count }),
    }
}

/// Copies bytes to the device and blocks until they are there.
///
/// # Safety
/// `to` and the bytes behind it are memory of this device that stays valid for the call.
pub(super) unsafe fn upload(gpu: &Gpu, to: DevicePtr, bytes: &[u8]) -> Result<(), CudaError> {
    gpu.bind()?;
    if bytes.is_empty() {
        return Ok(());
    }
    // SAFETY: `bytes` is readable for the call; the caller vouches for the target.
    check("cuMemcpyHtoD", unsafe { sys::cuMemcpyHtoD_v2(to.0, bytes.as_ptr().cast(), bytes.len()) })?;
    // From pageable memory the driver may return once it has its own copy.
    finish_default_stream()
}

/// Blocks until blocking copies and fills have ended. Not the whole context: that would break a capture under way on
/// another thread.
pub(super) fn finish_default_stream() -> Result<(), CudaError> {
    // SAFETY: the null handle is the legacy default stream, which is always there.
    check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(std::ptr::null_mut()) })
}

/// Copies bytes from the device and blocks until they are here.
///
/// # Safety
/// `from` and the bytes behind it are memory of this device that stays valid for the call.
pub(super) unsafe fn download(gpu: &Gpu, from: DevicePtr, out: &mut [u8]) -> Result<(), CudaError> {
    gpu.bind()?;
    if out.is_empty() {
        return Ok(());
    }
    // SAFETY: `out` is writable for the call; the caller vouches for the source.
    check("cuMemcpyDtoH", unsafe { sys::cuMemcpyDtoH_v2(out.as_mut_ptr().cast(), from.0, out.len()) })
}

/// Puts a copy of `place` of `from` to the device into `stream`. Does not block.
///
/// # Safety
/// Until the copy has ended: `from` is neither written to nor dropped; `to` and the bytes behind it are valid memory of
/// the stream's device, which nothing else on the device touches unless streams and events order it.
pub unsafe fn upload_async(
    stream: &Stream,
    to: DevicePtr,
    from: &PinnedBuffer,
    place: Range<usize>,
) -> Result<(), CudaError> {
    let bytes = from.get(place)?;
    stream.gpu().bind()?;
    // SAFETY: the place lies in the pinned memory; the caller vouches for the rest.
    check("cuMemcpyHtoDAsync", unsafe {
        sys::cuMemcpyHtoDAsync_v2(to.0, bytes.as_ptr().cast(), bytes.len(), stream.raw())
    })
}

/// Puts a copy from the device into `place` of `to` into `stream`. Does not block.
///
/// # Safety
/// Until the copy has ended: `to` is neither read, written to nor dropped; `from` and the bytes behind it are valid
/// memory of the stream's device, which nothing on the device writes unless streams and events order it.
pub unsafe fn download_async(
    stream: &Stream,
    from: DevicePtr,
    to: &mut PinnedBuffer,
    place: Range<usize>,
) -> Result<(), CudaError> {
    let bytes = to.get_mut(place)?;
    stream.gpu().bind()?;
    // SAFETY: the place lies in the pinned memory; the caller vouches for the rest.
    check("cuMemcpyDtoHAsync", unsafe {
        sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), from.0, bytes.len(), stream.raw())
    })
}

/// Puts a copy on the device into `stream`. Does not block.
///
/// # Safety
/// Until the copy has ended both places are valid memory of the stream's device and do not overlap; nothing else on
/// the device writes the source or touches the target unless streams and events order it.
pub unsafe fn copy_async(stream: &Stream, to: DevicePtr, from: DevicePtr, len: Bytes) -> Result<(), CudaError> {
    stream.gpu().bind()?;
    // SAFETY: the caller vouches for both places.
    check("cuMemcpyDtoDAsync", unsafe { sys::cuMemcpyDtoDAsync_v2(to.0, from.0, len.index(), stream.raw()) })
}

/// Puts a fill with zeros into `stream`. Does not block.
///
/// # Safety
/// Until it has ended the place is valid memory of the stream's device, which nothing else on the device touches unless
/// streams and events order it.
pub unsafe fn zero_async(stream: &Stream, to: DevicePtr, len: u64) -> Result<(), CudaError> {
    stream.gpu().bind()?;
    // SAFETY: the caller vouches for the place.
    check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(to.0, 0, len as usize, stream.raw()) })
}
