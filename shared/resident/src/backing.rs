//! What ranges are made of: host memory or memory of a device, behind one contract for the loader.

#[cfg(feature = "cuda")]
mod device;
mod host;

#[cfg(feature = "cuda")]
pub(crate) use device::DeviceBacking;
pub(crate) use host::HostBacking;

use crate::error::LoadError;
use ds4_gpu::SharedRange;
use ds4_manifest::Digest;
use ds4_units::{Bytes, TensorType};
use std::ops::Range;

/// A kind of memory.
pub(crate) trait Backing: Sync {
    /// A range that is being filled. Dropping it frees it.
    type Range: Sync;
    /// What one reading thread needs.
    type Lane: Lane<Range = Self::Range>;

    /// Makes a range of zeros. `name` is for people who look at the process.
    fn create(&self, name: &str, len: Bytes) -> Result<Self::Range, LoadError>;

    /// A lane for one more thread.
    fn lane(&self) -> Result<Self::Lane, LoadError>;

    /// Digests of pieces of tensors as they are in memory, in the file's order. Blocks.
    fn digests(&self, ranges: &[Self::Range], pieces: &[Held]) -> Result<Vec<Digest>, LoadError>;

    /// Bytes of a range as they lie there. Blocks.
    fn read(&self, range: &Self::Range, offset: u64, out: &mut [u8]) -> Result<(), LoadError>;

    /// Makes a range final and gives the right to it.
    fn share(&self, range: Self::Range) -> Result<SharedRange, LoadError>;
}

/// One thread's way into ranges.
pub(crate) trait Lane: Send {
    /// The ranges it writes to.
    type Range;

    /// A free buffer for one read: a leaf and two blocks, aligned to a block. Blocks until one is free.
    fn window(&mut self) -> Result<&mut [u8], LoadError>;

    /// Passes on bytes `place` of the window: to a range, or nowhere, when only their digest is wanted. Gives the digest
    /// if it was computed on the way.
    fn put(&mut self, place: Range<usize>, to: Option<(&Self::Range, Spot)>) -> Result<Option<Digest>, LoadError>;

    /// Blocks until everything is where it should be.
    fn finish(&mut self) -> Result<(), LoadError>;
}

/// Where a piece of a tensor goes in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Where the tensor starts in the range.
    pub(crate) offset: u64,
    /// Its shape if it is stored split; `None` as in the file.
    pub(crate) split: Option<MatrixShape>,
    /// Where the piece starts in the tensor, in the file's order.
    pub(crate) start: u64,
}

/// A stack of matrices as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MatrixShape {
    pub(crate) kind: TensorType,
    /// Rows of all matrices of the stack.
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl MatrixShape {
    /// The matrix with these dimensions, the contiguous one first.
    pub(crate) fn of(kind: TensorType, dims: &[u64]) -> Option<MatrixShape> {
        let (&columns, outer) = dims.split_first()?;
        let rows = outer.iter().try_fold(1u64, |rows, &dim| rows.checked_mul(dim))?;
        Some(MatrixShape { kind, rows: usize::try_from(rows).ok()?, columns: usize::try_from(columns).ok()? })
    }
}

/// A piece of a tensor that is in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Its range.
    pub(crate) range: usize,
    /// Where in it.
    pub(crate) spot: Spot,
    /// Its length.
    pub(crate) len: usize,
}
