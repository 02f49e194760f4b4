//! One thread's way into device memory.

use super::WeightKernels;
use super::range::DeviceRange;
use super::shape::SplitShape;
use crate::cuda::buffer::DeviceBuffer;
use crate::cuda::copy::{check_place, upload_async};
use crate::cuda::error::CudaError;
use crate::cuda::event::Event;
use crate::cuda::launch::{Args, Launch};
use crate::cuda::pinned::PinnedBuffer;
use crate::cuda::stream::Stream;
use crate::memory::{DeviceMemory, DevicePtr};
use ds4_units::Bytes;
use std::ops::Range;
use std::sync::Arc;

/// Buffers of a lane: one is filled while the others are on their way.
const SLOTS: usize = 3;
/// Blocks of a launch that cuts rows into tiles: a share of the device, because several lanes run beside each other.
const SPLIT_BLOCKS: u32 = 256;
const SPLIT_THREADS: u32 = 256;

/// A stream with a few pinned buffers that take turns. One thread reads into [`Lane::buffer`] and sends it on with
/// [`Lane::send`], which does not wait for the copy.
#[derive(Debug)]
pub struct Lane {
    kernels: WeightKernels,
    stream: Stream,
    slots: Vec<Slot>,
    next: usize,
}

#[derive(Debug)]
struct Slot {
    pinned: PinnedBuffer,
    staged: DeviceBuffer,
    done: Event,
    /// What the last use was written to, kept until that has ended.
    writes: Option<Arc<DeviceRange>>,
}

/// Where bytes go.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The range.
    pub range: &'a Arc<DeviceRange>,
    /// Where in it the tensor starts.
    pub offset: u64,
    /// How the tensor is stored; `None` as in the file.
    pub split: Option<SplitShape>,
    /// Where in the tensor, in the file's order, the bytes start.
    pub start: u64,
}

impl Lane {
    /// Buffers of `len` bytes, aligned to pages. Takes some milliseconds.
    pub fn new(kernels: &WeightKernels, len: Bytes) -> Result<Lane, CudaError> {
        let gpu = kernels.gpu();
        let slot = || {
            Ok(Slot {
                pinned: PinnedBuffer::new(gpu, len)?,
                staged: DeviceBuffer::new(gpu, len)?,
                done: Event::sleeping(gpu)?,
                writes: None,
            })
        };
        let slots = (0..SLOTS).map(|_| slot()).collect::<Result<_, CudaError>>()?;
        Ok(Lane { kernels: kernels.clone(), stream: Stream::new(gpu)?, slots, next: 0 })
    }

    /// Memory that a lane with buffers of `len` bytes takes, on the host and on the device each.
    pub fn bytes(len: Bytes) -> Bytes {
        Bytes(SLOTS as u64 * len.0)
    }

    /// The next buffer. Blocks until what was sent from it last has arrived.
    pub fn buffer(&mut self) -> Result<&mut [u8], CudaError> {
        let slot = &mut self.slots[self.next];
        if slot.writes.is_some() {
            slot.done.synchronize()?;
            slot.writes = None;
        }
        Ok(slot.pinned.as_mut_slice())
    }

    /// Sends bytes `place` of the buffer that [`Lane::buffer`] gave. Does not block.
    pub fn send(&mut self, place: Range<usize>, target: &Target<'_>) -> Result<(), CudaError> {
        let count = place.len() as u64;
        let Target { range, offset, split, start } = *target;
        let (in_file, in_range) = match split {
            Some(shape) => (Bytes(shape.file_len()), shape.len().0),
            None => (Bytes(start.saturating_add(count)), start.saturating_add(count)),
        };
        check_place(in_file, start, count)?;
        check_place(range.len(), offset, in_range)?;
        let slot = &mut self.slots[self.next];
        if slot.writes.is_some() {
            // The caller did not ask for the buffer: what is in it may be on its way still.
            slot.done.synchronize()?;
        }
        slot.writes = Some(range.clone());
        let tensor = range.mapping().address().offset(offset);
        // SAFETY: nobody else has the lane, so until `done` has happened its buffers are not touched: `buffer` and
        // dropping wait. The range is kept until then, and the target lies inside it.
        unsafe {
            match split {
                None => upload_async(&self.stream, tensor.offset(start), &slot.pinned, place)?,
                Some(shape) => {
                    upload_async(&self.stream, slot.staged.address(), &slot.pinned, place)?;
                    split_bytes(&self.kernels, &self.stream, slot.staged.address(), count, tensor, shape, start)?;
                }
            }
        }
        self.stream.record(&slot.done)?;
        self.next = (self.next + 1) % SLOTS;
        Ok(())
    }

    /// Blocks until everything has arrived.
    pub fn finish(&mut self) -> Result<(), CudaError> {
        self.stream.synchronize()?;
        self.slots.iter_mut().for_each(|slot| slot.writes = None);
        Ok(())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // The buffers must not go before the copies have ended. After a fault nothing runs any more.
        let _ = self.stream.synchronize();
    }
}

/// Puts `count` staged bytes, from byte `start` of a tensor's file bytes on, to their places in its tiles.
///
/// # Safety
/// `staged` holds the bytes when the stream gets there, and they are the tensor's from `start` on; `tensor` has the
/// length of the split tensor. Both stay until the launch has ended.
unsafe fn split_bytes(
    kernels: &WeightKernels,
    stream: &Stream,
    staged: DevicePtr,
    count: u64,
    tensor: DevicePtr,
    shape: SplitShape,
    start: u64,
) -> Result<(), CudaError> {
    let kernels = &kernels.inner;
    let row_bytes = u64::from(shape.row_bytes());
    let table = kernels.tables.address().offset(2 * u64::from(shape.table_start()));
    let args = Args::new()
        .with(staged)
        .with(count as u32)
        .with(tensor)
        .with(table)
        .with(shape.arg())
        .with(start / row_bytes)
        .with((start % row_bytes) as u32);
    // SAFETY: the kernel writes a byte of the split tensor for each staged byte; the caller vouches for both places,
    // and the table is as long as a tile.
    unsafe { kernels.split_bytes.launch(stream, &Launch::new(SPLIT_BLOCKS, SPLIT_THREADS), &args) }
}
