//! A bank in host memory.

use crate::bank::{BLOCK_TOKENS, BankImage, BankSizes, BlockPlace};
use std::sync::Arc;

/// Bytes that may be viewed as `f32`.
#[derive(Clone)]
struct Memory(Vec<f32>);

impl Memory {
    fn zeroed(bytes: usize) -> Memory {
        Memory(vec![0.0; bytes.div_ceil(4)])
    }

    fn of(bytes: &[u8]) -> Memory {
        let mut memory = Memory::zeroed(bytes.len());
        memory.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        memory
    }

    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// One conversation's memory. Cloning shares the blocks; a shared block is copied when one of its owners writes to it.
#[derive(Clone)]
pub struct HostBank {
    sizes: BankSizes,
    blocks: Vec<Arc<Memory>>,
    recurrent: [Memory; 2],
    committed: usize,
}

/// A copy of the recurrent part, to cut a bank back to later.
#[derive(Clone)]
pub struct HostCheckpoint(Arc<Memory>);

impl HostCheckpoint {
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes().len()
    }
}

impl HostBank {
    pub(crate) fn new(sizes: BankSizes) -> HostBank {
        let recurrent = [Memory::zeroed(sizes.recurrent), Memory::zeroed(sizes.recurrent)];
        HostBank { sizes, blocks: Vec::new(), recurrent, committed: 0 }
    }

    /// Makes sure that `tokens` tokens have their blocks, and starts a new recurrent part as a copy of the committed
    /// one.
    pub(crate) fn begin(&mut self, tokens: usize) {
        while self.blocks.len() < tokens.div_ceil(BLOCK_TOKENS) {
            self.blocks.push(Arc::new(Memory::zeroed(self.sizes.block)));
        }
        let (low, high) = self.recurrent.split_at_mut(1);
        let (old, new) = if self.committed == 0 { (&low[0], &mut high[0]) } else { (&high[0], &mut low[0]) };
        new.0.copy_from_slice(&old.0);
    }

    /// Makes the new recurrent part the committed one.
    pub(crate) fn commit(&mut self) {
        self.committed = 1 - self.committed;
    }

    /// The recurrent part as it was before the step.
    pub(crate) fn before(&self) -> &[u8] {
        self.recurrent[self.committed].bytes()
    }

    /// The recurrent part that the step writes.
    pub(crate) fn next(&mut self) -> &mut [u8] {
        self.recurrent[1 - self.committed].bytes_mut()
    }

    /// The recurrent part that the step writes, as numbers.
    pub(crate) fn next_floats(&mut self, offset: usize, floats: usize) -> &mut [f32] {
        debug_assert!(offset.is_multiple_of(4));
        &mut self.recurrent[1 - self.committed].0[offset / 4..][..floats]
    }

    /// The committed recurrent part.
    pub fn recurrent(&self) -> &[u8] {
        self.before()
    }

    /// Block `index`.
    pub fn block(&self, index: usize) -> &[u8] {
        self.blocks[index].bytes()
    }

    /// The memory of the block's array that holds compressed row `row`, and the row's index in it.
    pub(crate) fn row(&self, place: BlockPlace, row: usize) -> (&[u8], usize) {
        let (block, index) = (row / place.array.rows, row % place.array.rows);
        (&self.blocks[block].bytes()[place.offset..], index)
    }

    /// The same, to write.
    pub(crate) fn row_mut(&mut self, place: BlockPlace, row: usize) -> (&mut [u8], usize) {
        let (block, index) = (row / place.array.rows, row % place.array.rows);
        (&mut Arc::make_mut(&mut self.blocks[block]).bytes_mut()[place.offset..], index)
    }

    /// A copy of the committed recurrent part.
    pub(crate) fn checkpoint(&self) -> HostCheckpoint {
        HostCheckpoint(Arc::new(self.recurrent[self.committed].clone()))
    }

    /// Goes back to a checkpoint taken at `tokens` tokens; later blocks are given back.
    pub(crate) fn restore(&mut self, checkpoint: &HostCheckpoint, tokens: usize) {
        self.blocks.truncate(tokens.div_ceil(BLOCK_TOKENS));
        self.recurrent[self.committed].0.copy_from_slice(&checkpoint.0.0);
    }

    /// Its bytes from block `first` on. Blocks are shared, not copied.
    pub(crate) fn image(&self, first: usize) -> BankImage {
        let blocks = self.blocks.iter().skip(first).map(|block| block.clone() as Arc<_>).collect();
        BankImage { blocks, recurrent: self.before()[..self.sizes.recurrent].to_vec() }
    }

    /// A bank with these bytes.
    pub(crate) fn from_image(sizes: BankSizes, image: &BankImage) -> HostBank {
        let blocks = image.blocks.iter().map(|block| Arc::new(Memory::of(block.as_ref().as_ref()))).collect();
        let recurrent = [Memory::of(&image.recurrent), Memory::zeroed(sizes.recurrent)];
        HostBank { sizes, blocks, recurrent, committed: 0 }
    }

    /// Bytes this bank holds, shared blocks counted in full.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.len() * self.sizes.block + 2 * self.sizes.recurrent
    }
}
