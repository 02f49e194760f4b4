//! A bank in host memory: one region that grows in place, laid out as on a GPU. It begins with the recurrent part,
//! twice; the blocks follow.

use crate::BackendError;
use crate::bank::{BLOCK_TOKENS, BankImage, BankSizes, BankState, BlockBytes, BlockPlace};
use ds4_gpu::{FrozenRegion, HostRegion, MemoryPiece};
use ds4_units::Bytes;
use std::ops::Range;
use std::sync::Arc;

/// What the memory of banks is called where descriptors are listed.
const BANK: &str = "ds4-bank";
const CHECKPOINT: &str = "ds4-checkpoint";

/// One conversation's memory.
pub struct HostBank {
    sizes: BankSizes,
    /// Nothing until the first step.
    memory: HostRegion,
    state: BankState,
    /// A step reads what the last one wrote instead of what is committed.
    on_top: bool,
}

/// A copy of the recurrent part, to cut a bank back to later.
pub struct HostCheckpoint {
    bytes: usize,
    memory: FrozenRegion,
}

impl HostCheckpoint {
    /// Takes over what a dead process has left.
    pub(crate) fn adopt(sizes: BankSizes, pieces: Vec<MemoryPiece>) -> Result<HostCheckpoint, BackendError> {
        let memory = FrozenRegion::adopt(CHECKPOINT, pieces)?;
        check_len(memory.bytes(), sizes.recurrent)?;
        Ok(HostCheckpoint { bytes: sizes.recurrent, memory })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn memory(&self) -> &FrozenRegion {
        &self.memory
    }
}

impl HostBank {
    pub(crate) fn new(sizes: BankSizes) -> HostBank {
        HostBank { sizes, memory: HostRegion::new(BANK), state: BankState { blocks: 0, committed: 0 }, on_top: false }
    }

    /// Goes on in memory that a dead process has left.
    pub(crate) fn adopt(
        sizes: BankSizes,
        state: BankState,
        pieces: Vec<MemoryPiece>,
    ) -> Result<HostBank, BackendError> {
        let memory = HostRegion::adopt(BANK, pieces)?;
        check_len(memory.bytes(), sizes.block_at(state.blocks))?;
        Ok(HostBank { sizes, memory, state, on_top: false })
    }

    /// Makes sure that `tokens` tokens have their blocks, and starts a new recurrent part as a copy of the committed
    /// one.
    pub(crate) fn begin(&mut self, tokens: usize) -> Result<(), BackendError> {
        self.hold(tokens.div_ceil(BLOCK_TOKENS))?;
        let (before, next) =
            (self.recurrent_place(self.state.committed), self.recurrent_place(1 - self.state.committed));
        self.memory.bytes_mut().copy_within(before, next.start);
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
        self.state.committed = 1 - self.state.committed;
        self.on_top = false;
    }

    /// Another bank with a copy of the committed recurrent part, and of the blocks of the first `tokens` tokens.
    pub(crate) fn fork(&self, tokens: usize) -> Result<HostBank, BackendError> {
        let mut copy = HostBank::new(self.sizes);
        if !self.memory.bytes().is_empty() {
            let count = tokens.div_ceil(BLOCK_TOKENS).min(self.state.blocks);
            copy.hold(count)?;
            let place = copy.recurrent_place(0);
            copy.memory.bytes_mut()[place].copy_from_slice(self.recurrent());
            let blocks = self.sizes.block_at(0)..self.sizes.block_at(count);
            copy.memory.bytes_mut()[blocks.clone()].copy_from_slice(&self.memory.bytes()[blocks]);
        }
        Ok(copy)
    }

    /// The recurrent part as it was before the step.
    pub(crate) fn before(&self) -> &[u8] {
        let copy = if self.on_top { 1 - self.state.committed } else { self.state.committed };
        &self.memory.bytes()[self.recurrent_place(copy)]
    }

    /// The same, as numbers.
    pub(crate) fn before_floats(&self, offset: usize, floats: usize) -> &[f32] {
        bytemuck::cast_slice(&self.before()[offset..][..floats * size_of::<f32>()])
    }

    /// The recurrent part that the step writes.
    pub(crate) fn next(&mut self) -> &mut [u8] {
        let place = self.recurrent_place(1 - self.state.committed);
        &mut self.memory.bytes_mut()[place]
    }

    /// The recurrent part that the step writes, as numbers.
    pub(crate) fn next_floats(&mut self, offset: usize, floats: usize) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.next()[offset..][..floats * size_of::<f32>()])
    }

    /// The committed recurrent part.
    pub fn recurrent(&self) -> &[u8] {
        &self.memory.bytes()[self.recurrent_place(self.state.committed)]
    }

    /// Block `index`.
    pub fn block(&self, index: usize) -> &[u8] {
        &self.memory.bytes()[self.sizes.block_at(index)..][..self.sizes.block]
    }

    /// The memory of the block's array that holds compressed row `row`, and the row's index in it.
    pub(crate) fn row(&self, place: BlockPlace, row: usize) -> (&[u8], usize) {
        let (block, index) = (row / place.array.rows, row % place.array.rows);
        (&self.block(block)[place.offset..], index)
    }

    /// The same, to write.
    pub(crate) fn row_mut(&mut self, place: BlockPlace, row: usize) -> (&mut [u8], usize) {
        let (block, index) = (row / place.array.rows, row % place.array.rows);
        let start = self.sizes.block_at(block);
        (&mut self.memory.bytes_mut()[start..][..self.sizes.block][place.offset..], index)
    }

    /// A copy of the committed recurrent part.
    pub(crate) fn checkpoint(&self) -> Result<HostCheckpoint, BackendError> {
        let mut memory = HostRegion::new(CHECKPOINT);
        memory.ensure(self.sizes.recurrent)?;
        if !self.memory.bytes().is_empty() {
            memory.bytes_mut()[..self.sizes.recurrent].copy_from_slice(self.recurrent());
        }
        Ok(HostCheckpoint { bytes: self.sizes.recurrent, memory: memory.freeze()? })
    }

    /// Goes back to a checkpoint taken at `tokens` tokens; the memory of later blocks is given back. The copy of the
    /// recurrent part that was committed stays as it was until the next step.
    pub(crate) fn restore(&mut self, checkpoint: &HostCheckpoint, tokens: usize) -> Result<(), BackendError> {
        let blocks = tokens.div_ceil(BLOCK_TOKENS);
        self.hold(blocks)?;
        let bytes = self.sizes.recurrent;
        self.next().copy_from_slice(&checkpoint.memory.bytes()[..bytes]);
        self.commit();
        self.state.blocks = blocks;
        self.memory.shrink(self.sizes.block_at(blocks));
        Ok(())
    }

    /// A copy of its bytes from block `first` on.
    pub(crate) fn image(&self, first: usize) -> BankImage {
        let blocks = (first..self.state.blocks).map(|index| Arc::new(self.block(index).to_vec()) as Arc<_>).collect();
        let is_empty = self.memory.bytes().is_empty();
        let recurrent = if is_empty { vec![0; self.sizes.recurrent] } else { self.recurrent().to_vec() };
        BankImage { blocks, recurrent }
    }

    /// Gives block `first` and those after it these bytes.
    pub(crate) fn write_blocks(&mut self, first: usize, blocks: &[BlockBytes]) -> Result<(), BackendError> {
        self.hold(first + blocks.len())?;
        let sizes = self.sizes;
        for (index, block) in (first..).zip(blocks) {
            self.memory.bytes_mut()[sizes.block_at(index)..][..sizes.block].copy_from_slice(block.as_ref().as_ref());
        }
        Ok(())
    }

    /// Gives the committed recurrent part these bytes.
    pub(crate) fn write_recurrent(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        self.hold(0)?;
        let place = self.recurrent_place(self.state.committed);
        self.memory.bytes_mut()[place].copy_from_slice(bytes);
        Ok(())
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        self.state.blocks * self.sizes.block + 2 * self.sizes.recurrent
    }

    /// Its memory.
    pub(crate) fn memory(&self) -> &HostRegion {
        &self.memory
    }

    /// What has to be known beside its memory.
    pub(crate) fn state(&self) -> BankState {
        self.state
    }

    fn recurrent_place(&self, index: usize) -> Range<usize> {
        self.sizes.recurrent_at(index)..self.sizes.recurrent_at(index) + self.sizes.recurrent
    }

    fn hold(&mut self, blocks: usize) -> Result<(), BackendError> {
        self.memory.ensure(self.sizes.block_at(blocks))?;
        self.state.blocks = self.state.blocks.max(blocks);
        Ok(())
    }
}

fn check_len(memory: &[u8], needed: usize) -> Result<(), BackendError> {
    let found = memory.len();
    if found < needed {
        return Err(BackendError::MemoryTooSmall { found: Bytes(found as u64), needed: Bytes(needed as u64) });
    }
    Ok(())
}
