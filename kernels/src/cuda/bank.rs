//! A bank in device memory: one range of addresses, with pages where they are needed.
//!
//! The range begins with the recurrent part, twice; the blocks follow. So a block's address is known before it exists,
//! and a kernel finds row `n` by arithmetic.

use super::growing::Growing;
use crate::BackendError;
use crate::bank::{BLOCK_TOKENS, BankImage, BankSizes, BankState, BlockBytes};
use ds4_gpu::cuda::{PinnedBuffer, Stream, copy_async, download_async, upload_async, zero_async};
use ds4_gpu::{DevicePtr, MemoryPiece};
use ds4_units::{Bytes, Tokens};
use std::sync::Arc;

/// One conversation's memory on the device.
pub struct DeviceBank {
    sizes: BankSizes,
    /// Nothing until the first step.
    memory: Option<Growing>,
    /// Which copy of the recurrent part tells the present state.
    committed: usize,
    /// Blocks that a step has asked for.
    blocks: usize,
    stream: Stream,
    /// Tokens there are addresses for.
    most: Tokens,
    /// A step reads what the last one wrote instead of what is committed.
    on_top: bool,
}

/// A copy of a recurrent part. Fields drop in order: the memory goes when the stream has done with it.
pub struct DeviceCheckpoint {
    memory: Growing,
    stream: Stream,
}

/// Addresses of a bank's parts.
pub(crate) struct BankView {
    pub(crate) before: DevicePtr,
    pub(crate) next: DevicePtr,
    pub(crate) blocks: DevicePtr,
    pub(crate) block_bytes: u32,
}

impl DeviceBank {
    pub(crate) fn new(stream: &Stream, sizes: BankSizes, most: Tokens) -> DeviceBank {
        DeviceBank { sizes, memory: None, committed: 0, blocks: 0, stream: stream.clone(), most, on_top: false }
    }

    /// Makes sure that `tokens` tokens have their blocks, and puts a copy of the committed recurrent part into the
    /// stream, for the step to change.
    pub(crate) fn begin(&mut self, tokens: usize) -> Result<(), BackendError> {
        self.hold(tokens.div_ceil(BLOCK_TOKENS))?;
        let view = self.view();
        // SAFETY: both parts have memory since `hold`, do not overlap, and only this stream's work touches them.
        unsafe { copy_async(&self.stream, view.next, view.before, Bytes(self.sizes.recurrent as u64))? };
        self.on_top = false;
        Ok(())
    }

    /// Makes sure that `tokens` tokens have their blocks. The step goes on from what the last one wrote.
    pub(crate) fn begin_on_top(&mut self, tokens: usize) -> Result<(), BackendError> {
        self.hold(tokens.div_ceil(BLOCK_TOKENS))?;
        self.on_top = true;
        Ok(())
    }

    /// Makes the new recurrent part the committed one.
    pub(crate) fn commit(&mut self) {
        self.committed = 1 - self.committed;
        self.on_top = false;
    }

    /// Another bank with a copy of the committed recurrent part, and of the blocks of the first `tokens` tokens.
    pub(crate) fn fork(&self, tokens: usize) -> Result<DeviceBank, BackendError> {
        let mut copy = DeviceBank::new(&self.stream, self.sizes, self.most);
        if self.memory.is_some() {
            let count = tokens.div_ceil(BLOCK_TOKENS).min(self.blocks);
            copy.hold(count)?;
            let (from, to) = (self.view(), copy.view());
            let blocks = Bytes((count * self.sizes.block) as u64);
            // SAFETY: `hold` gave every byte copied its memory on both sides; the banks have ranges of their own; work
            // on either is put into this stream only.
            unsafe {
                copy_async(&self.stream, to.before, from.before, Bytes(self.sizes.recurrent as u64))?;
                copy_async(&self.stream, to.blocks, from.blocks, blocks)?;
            }
        }
        Ok(copy)
    }

    /// A copy of the committed recurrent part.
    pub(crate) fn checkpoint(&self) -> Result<DeviceCheckpoint, BackendError> {
        let copy = DeviceCheckpoint::reserve(&self.stream, self.sizes)?;
        if self.memory.is_some() {
            // SAFETY: both have the recurrent part's length; what else touches them is put into this stream only.
            unsafe {
                copy_async(&self.stream, copy.address(), self.view().before, Bytes(self.sizes.recurrent as u64))?
            };
        }
        Ok(copy)
    }

    /// Goes back to a checkpoint taken at `tokens` tokens; the memory of later blocks is given back. The copy of the
    /// recurrent part that was committed stays as it was until the next step.
    pub(crate) fn restore(&mut self, checkpoint: &DeviceCheckpoint, tokens: usize) -> Result<(), BackendError> {
        let blocks = tokens.div_ceil(BLOCK_TOKENS);
        self.hold(blocks)?;
        // SAFETY: both have the recurrent part's length; what else touches them is put into this stream only.
        unsafe {
            let len = Bytes(self.sizes.recurrent as u64);
            copy_async(&self.stream, self.view().next, checkpoint.address(), len)?;
        }
        // Pages can be taken away only from a device that has done with them.
        self.stream.synchronize()?;
        self.commit();
        self.blocks = blocks;
        let needed = self.bytes_for(blocks);
        self.memory.iter_mut().for_each(|memory| memory.shrink(needed));
        Ok(())
    }

    /// Goes on in memory that a dead process has left.
    pub(crate) fn adopt(
        stream: &Stream,
        sizes: BankSizes,
        most: Tokens,
        state: BankState,
        pieces: Vec<MemoryPiece>,
    ) -> Result<DeviceBank, BackendError> {
        let mut bank = DeviceBank::new(stream, sizes, most);
        let needed = Bytes(bank.bytes_for(state.blocks));
        let given = Bytes(pieces.iter().map(|piece| piece.len.0).sum());
        let mut memory = Growing::reserve(stream.gpu(), "a conversation", bank.most_bytes(state.blocks).max(given))?;
        memory.adopt(pieces)?;
        if memory.mapped() < needed {
            return Err(BackendError::MemoryTooSmall { found: memory.mapped(), needed });
        }
        (bank.memory, bank.blocks, bank.committed) = (Some(memory), state.blocks, state.committed);
        Ok(bank)
    }

    /// Which copy of the recurrent part tells the present state.
    pub(crate) fn committed(&self) -> usize {
        self.committed
    }

    /// A number that is another one whenever pieces of its memory have come or gone.
    pub(crate) fn changes(&self) -> u64 {
        self.memory.as_ref().map_or(0, Growing::changes)
    }

    /// Lengths of the pieces of its memory.
    pub(crate) fn pieces(&self) -> Vec<Bytes> {
        self.memory.as_ref().map_or(Vec::new(), |memory| memory.pieces().collect())
    }

    /// Descriptors that keep its memory.
    pub(crate) fn export(&self) -> Result<Vec<MemoryPiece>, BackendError> {
        self.memory.as_ref().map_or(Ok(Vec::new()), Growing::export)
    }

    /// A copy of the committed recurrent part for the host. Blocks.
    pub fn recurrent(&self) -> Result<Vec<u8>, BackendError> {
        self.read(self.view().before, self.sizes.recurrent)
    }

    /// A copy of block `index` for the host. Blocks.
    ///
    /// # Panics
    /// When no step has asked for that block.
    pub fn block(&self, index: usize) -> Result<Vec<u8>, BackendError> {
        assert!(index < self.blocks, "block {index} of {}", self.blocks);
        self.read(self.view().blocks.offset((index * self.sizes.block) as u64), self.sizes.block)
    }

    fn read(&self, from: DevicePtr, len: usize) -> Result<Vec<u8>, BackendError> {
        self.read_through(&mut PinnedBuffer::new(self.stream.gpu(), Bytes(len as u64))?, from, len)
    }

    fn read_through(&self, pinned: &mut PinnedBuffer, from: DevicePtr, len: usize) -> Result<Vec<u8>, BackendError> {
        // SAFETY: the part has `len` bytes; the copy is waited for before the pinned memory is read.
        unsafe { download_async(&self.stream, from, pinned, 0..len)? };
        self.stream.synchronize()?;
        Ok(pinned.as_slice()[..len].to_vec())
    }

    /// Its bytes from block `first` on. Waits for the stream.
    pub(crate) fn image(&self, first: usize) -> Result<BankImage, BackendError> {
        let BankSizes { block, recurrent } = self.sizes;
        let mut pinned = PinnedBuffer::new(self.stream.gpu(), Bytes(block.max(recurrent) as u64))?;
        let view = self.view();
        let mut blocks: Vec<Arc<dyn AsRef<[u8]> + Send + Sync>> = Vec::with_capacity(self.blocks.saturating_sub(first));
        for index in first..self.blocks {
            let from = view.blocks.offset((index * block) as u64);
            blocks.push(Arc::new(self.read_through(&mut pinned, from, block)?));
        }
        Ok(BankImage { blocks, recurrent: self.read_through(&mut pinned, view.before, recurrent)? })
    }

    /// Gives block `first` and those after it these bytes. Waits for the stream.
    pub(crate) fn write_blocks(&mut self, first: usize, blocks: &[BlockBytes]) -> Result<(), BackendError> {
        self.hold(first + blocks.len())?;
        let to = self.view().blocks.offset((first * self.sizes.block) as u64);
        let bytes = blocks.iter().map(|block| block.as_ref().as_ref());
        self.write(to, bytes, blocks.len() * self.sizes.block)
    }

    /// Gives the committed recurrent part these bytes. Waits for the stream.
    pub(crate) fn write_recurrent(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        self.hold(0)?;
        self.write(self.view().before, std::iter::once(bytes), self.sizes.recurrent)
    }

    /// Copies `len` bytes, given in parts that follow each other, to a place that has memory.
    fn write<'a>(&self, to: DevicePtr, parts: impl Iterator<Item = &'a [u8]>, len: usize) -> Result<(), BackendError> {
        let mut pinned = PinnedBuffer::new(self.stream.gpu(), Bytes(len.max(1) as u64))?;
        let mut end = 0;
        for part in parts {
            pinned.as_mut_slice()[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        // SAFETY: the caller's place has memory for `len` bytes, and `end` is at most that, else the copies above would
        // have panicked; only this stream's work touches it, and the copy is waited for before the pinned memory goes.
        unsafe { upload_async(&self.stream, to, &pinned, 0..end)? };
        Ok(self.stream.synchronize()?)
    }

    /// Memory it holds.
    pub(crate) fn bytes(&self) -> Bytes {
        self.memory.as_ref().map_or(Bytes::ZERO, Growing::mapped)
    }

    /// Addresses of its parts; none of them before the first step.
    pub(crate) fn view(&self) -> BankView {
        let start = self.memory.as_ref().map_or(DevicePtr(0), Growing::address);
        let recurrent = |index: usize| start.offset(self.sizes.recurrent_at(index) as u64);
        BankView {
            before: recurrent(self.committed),
            next: recurrent(1 - self.committed),
            blocks: recurrent(2),
            block_bytes: self.sizes.block as u32,
        }
    }

    /// The same for a step, which may go on from what the last one wrote.
    pub(crate) fn step_view(&self) -> BankView {
        let view = self.view();
        BankView { before: if self.on_top { view.next } else { view.before }, ..view }
    }

    /// Bytes there are addresses for.
    fn most_bytes(&self, blocks: usize) -> Bytes {
        Bytes(self.bytes_for(self.most.index().div_ceil(BLOCK_TOKENS).max(blocks)))
    }

    fn bytes_for(&self, blocks: usize) -> u64 {
        self.sizes.block_at(blocks) as u64
    }

    /// Makes sure that so many blocks have memory, and the recurrent part in front of them. When it fails the bank has what
    /// it had.
    fn hold(&mut self, blocks: usize) -> Result<(), BackendError> {
        let (bytes, most) = (self.bytes_for(blocks), self.most_bytes(blocks));
        match &mut self.memory {
            Some(memory) => extend(memory, &self.stream, bytes)?,
            none => {
                let mut memory = Growing::reserve(self.stream.gpu(), "a conversation", most)?;
                extend(&mut memory, &self.stream, bytes)?;
                *none = Some(memory);
            }
        }
        self.blocks = self.blocks.max(blocks);
        Ok(())
    }
}

/// Makes sure that the first `bytes` bytes have memory. What is new holds zeros: a conversation begins from them, and an
/// exported block has rows that no token has reached yet, which must not be another's leavings.
fn extend(memory: &mut Growing, stream: &Stream, bytes: u64) -> Result<(), BackendError> {
    let had = memory.mapped().0;
    memory.ensure(bytes)?;
    let new = memory.mapped().0 - had;
    if new > 0 {
        // SAFETY: the bytes have memory since `ensure`, and nothing has been told of them yet.
        unsafe { zero_async(stream, memory.address().offset(had), new)? };
    }
    Ok(())
}

impl Drop for DeviceBank {
    fn drop(&mut self) {
        // Pages can be taken away only from a device that has done with them. If it is lost that does not matter.
        let _ = self.stream.synchronize();
    }
}

impl DeviceCheckpoint {
    /// Takes over what a dead process has left.
    pub(crate) fn adopt(
        stream: &Stream,
        sizes: BankSizes,
        pieces: Vec<MemoryPiece>,
    ) -> Result<DeviceCheckpoint, BackendError> {
        let needed = Bytes(sizes.recurrent as u64);
        let given = Bytes(pieces.iter().map(|piece| piece.len.0).sum());
        let mut memory = Growing::reserve(stream.gpu(), "a checkpoint", given.max(needed))?;
        memory.adopt(pieces)?;
        if memory.mapped() < needed {
            return Err(BackendError::MemoryTooSmall { found: memory.mapped(), needed });
        }
        Ok(DeviceCheckpoint { memory, stream: stream.clone() })
    }

    fn reserve(stream: &Stream, sizes: BankSizes) -> Result<DeviceCheckpoint, BackendError> {
        let len = Bytes(sizes.recurrent as u64);
        let mut memory = Growing::reserve(stream.gpu(), "a checkpoint", len)?;
        memory.ensure(len.0)?;
        Ok(DeviceCheckpoint { memory, stream: stream.clone() })
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.memory.mapped()
    }

    /// Lengths of the pieces of its memory.
    pub(crate) fn pieces(&self) -> Vec<Bytes> {
        self.memory.pieces().collect()
    }

    /// Descriptors that keep it.
    pub(crate) fn export(&self) -> Result<Vec<MemoryPiece>, BackendError> {
        self.memory.export()
    }

    fn address(&self) -> DevicePtr {
        self.memory.address()
    }
}

impl Drop for DeviceCheckpoint {
    fn drop(&mut self) {
        // Pages can be taken away only from a device that has done with them. If it is lost that does not matter.
        let _ = self.stream.synchronize();
    }
}
