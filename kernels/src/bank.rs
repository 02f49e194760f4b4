//! Where the parts of a bank lie: a list of 128-token blocks, all layers together, and a recurrent part.
//!
//! A block holds the compressed rows that 128 tokens leave in every layer. The recurrent part holds what a token needs
//! from the tokens just before it (raw windows, unfinished compressed rows); it is kept twice, so that a step writes
//! one copy while the other still tells the state before it.

use crate::kv_rows::RowArray;
use std::sync::Arc;

/// Tokens of one block.
pub const BLOCK_TOKENS: usize = 128;

/// Tokens a query sees uncompressed, itself included.
pub const WINDOW: usize = 128;

/// Sizes of a bank's parts, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BankSizes {
    /// One block.
    pub block: usize,
    /// One copy of the recurrent part.
    pub recurrent: usize,
}

/// Parts of a bank start at multiples of this.
const PART_ALIGN: usize = 256;

impl BankSizes {
    /// Where copy `index` of the recurrent part starts in a bank's memory, on every device; copy 2 would, where the
    /// blocks do.
    pub(crate) fn recurrent_at(&self, index: usize) -> usize {
        index * self.recurrent.next_multiple_of(PART_ALIGN)
    }

    /// Where block `index` starts.
    pub(crate) fn block_at(&self, index: usize) -> usize {
        self.recurrent_at(2) + index * self.block
    }
}

/// What has to be known of a bank beside its memory, to go on with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BankState {
    /// Blocks in use.
    pub blocks: usize,
    /// Which copy of the recurrent part tells the present state.
    pub committed: usize,
}

/// A block's bytes, shared with whoever else reads them.
pub type BlockBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A bank's bytes at a frontier, on the host: what survives the process.
#[derive(Clone)]
pub struct BankImage {
    /// Blocks, in order.
    pub blocks: Vec<BlockBytes>,
    /// The committed recurrent part.
    pub recurrent: Vec<u8>,
}

/// A layer's raw window in the recurrent part: a ring indexed by position modulo [`WINDOW`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowPlace {
    /// Byte offset in the recurrent part.
    pub offset: usize,
    /// The ring.
    pub array: RowArray,
    /// No query sees rows of positions before this one.
    pub oldest: usize,
}

/// Where the recurrent part keeps the streams of the last token: `f32` values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamsPlace {
    /// Byte offset in the recurrent part.
    pub offset: usize,
    /// Values.
    pub floats: usize,
}

/// A layer's compressed rows in every block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    /// Byte offset in a block.
    pub offset: usize,
    /// The rows one block holds.
    pub array: RowArray,
}

impl BlockPlace {
    /// Tokens that one row stands for.
    pub fn ratio(&self) -> usize {
        BLOCK_TOKENS / self.array.rows
    }
}

/// A compressor's unfinished row in the recurrent part: running softmax sums, see
/// [`pool_floats`] for their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolPlace {
    /// Byte offset in the recurrent part.
    pub offset: usize,
    /// `f32` values.
    pub floats: usize,
}

/// Floats that a compressor's unfinished rows take: maximum, weight and weighted sum per channel, for one row or, where
/// windows overlap, for two.
pub fn pool_floats(channels: usize, overlapped: bool) -> usize {
    channels * 3 * if overlapped { 2 } else { 1 }
}
