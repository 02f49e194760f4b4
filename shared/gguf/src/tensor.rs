//! One entry of the tensor table, its checks, and the check that tensors do not lie in each other's bytes.

use crate::cursor::Cursor;
use crate::header::HeaderError;
use crate::limits::{DIMS_MAX, NAME_MAX};
use ds4_units::{Bytes, FileOffset, TensorType};
use std::io::Read;
use thiserror::Error;

/// Where a tensor lies and how to read it. The place is proved to be inside its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The tensor's name, unique in the model.
    pub name: String,
    /// How the elements are stored.
    pub kind: TensorType,
    /// One to four dimensions, none of them zero, the contiguous one first.
    pub dims: Vec<u64>,
    /// Index of the shard that holds it.
    pub shard: usize,
    /// First byte, from the start of that shard's file.
    pub offset: FileOffset,
    /// Bytes it takes.
    pub len: Bytes,
}

impl TensorInfo {
    /// One past its last byte in its shard.
    pub fn end(&self) -> FileOffset {
        FileOffset(self.offset.0 + self.len.0)
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }
}

/// A tensor table entry that cannot be right, or that ds4 cannot use.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TensorError {
    /// No dimensions, or more than four.
    #[error("tensor {tensor:?} has {count} dimensions; 1 to {DIMS_MAX} are possible")]
    DimCount {
        /// The tensor.
        tensor: String,
        /// What the file says.
        count: u32,
    },
    /// A dimension of zero.
    #[error("tensor {tensor:?} has the dimensions {dims:?}: none may be 0")]
    EmptyDim {
        /// The tensor.
        tensor: String,
        /// What the file says.
        dims: Vec<u64>,
    },
    /// More elements or bytes than 64 bits count.
    #[error("tensor {tensor:?} has the dimensions {dims:?}: more bytes than a file can have")]
    TooLarge {
        /// The tensor.
        tensor: String,
        /// What the file says.
        dims: Vec<u64>,
    },
    /// A storage type this program does not read.
    #[error("tensor {tensor:?} has the storage type {id}, which ds4 does not read; it reads {}", supported())]
    UnsupportedType {
        /// The tensor.
        tensor: String,
        /// The format's id of the type.
        id: u32,
    },
    /// Rows that end inside a quantisation block.
    #[error("tensor {tensor:?} has rows of {row} elements; {kind} needs a multiple of {}", kind.block_len())]
    PartialBlock {
        /// The tensor.
        tensor: String,
        /// Its storage type.
        kind: TensorType,
        /// Elements in a row.
        row: u64,
    },
    /// An offset that the file's own alignment forbids.
    #[error("tensor {tensor:?} starts at data offset {offset}, which is not a multiple of the alignment {alignment}")]
    Unaligned {
        /// The tensor.
        tensor: String,
        /// Offset in the data section.
        offset: u64,
        /// `general.alignment` of the file.
        alignment: u64,
    },
    /// The file ends before the tensor does.
    #[error("tensor {tensor:?} ends at byte {end}, but the file has {size} bytes: incomplete download?")]
    PastEnd {
        /// The tensor.
        tensor: String,
        /// One past its last byte, in the file; `u128` because a hostile offset may exceed 64 bits.
        end: u128,
        /// The file's length.
        size: u64,
    },
    /// A name that is there twice.
    #[error("tensor {tensor:?} is in the table twice")]
    Duplicate {
        /// The tensor.
        tensor: String,
    },
    /// Two tensors share some of their bytes, but not all.
    #[error(
        "tensor {second:?} starts at byte {start}, inside tensor {first:?}, which ends at byte {end}: tensors may \
         share all of their bytes or none"
    )]
    Overlap {
        /// The tensor that starts first.
        first: String,
        /// The tensor that starts inside it.
        second: String,
        /// First byte of the second.
        start: u64,
        /// One past the last byte of the first.
        end: u64,
    },
}

fn supported() -> String {
    let names: Vec<&str> = TensorType::ALL.iter().map(|kind| kind.name()).collect();
    names.join(", ")
}

/// A table entry before the data section's place is known.
pub(crate) struct RawTensor {
    name: String,
    kind: TensorType,
    dims: Vec<u64>,
    /// Offset in the data section.
    offset: u64,
    len: Bytes,
}

impl RawTensor {
    /// Reads one entry and checks what can be checked from the entry alone.
    pub(crate) fn read<R: Read>(cursor: &mut Cursor<R>) -> Result<RawTensor, HeaderError> {
        let name = cursor.string("a tensor name", NAME_MAX)?;
        let count = cursor.u32("a tensor's dimension count")?;
        if !(1..=DIMS_MAX).contains(&count) {
            return Err(TensorError::DimCount { tensor: name, count }.into());
        }
        let mut dims = Vec::with_capacity(count as usize);
        for _ in 0..count {
            dims.push(cursor.u64("a tensor's dimensions")?);
        }
        let id = cursor.u32("a tensor's type")?;
        let offset = cursor.u64("a tensor's offset")?;
        let Some(kind) = TensorType::from_gguf_id(id) else {
            return Err(TensorError::UnsupportedType { tensor: name, id }.into());
        };
        let len = byte_len(&name, kind, &dims)?;
        Ok(RawTensor { name, kind, dims, offset, len })
    }

    /// The entry with its place in the file, which must hold all of it.
    pub(crate) fn place(self, data_start: u64, alignment: u64, size: u64) -> Result<TensorInfo, TensorError> {
        let RawTensor { name, kind, dims, offset, len } = self;
        if !offset.is_multiple_of(alignment) {
            return Err(TensorError::Unaligned { tensor: name, offset, alignment });
        }
        let end = u128::from(data_start) + u128::from(offset) + u128::from(len.0);
        if end > u128::from(size) {
            return Err(TensorError::PastEnd { tensor: name, end, size });
        }
        // Both are below `end`, which fits the file's 64-bit length.
        let offset = FileOffset(data_start + offset);
        Ok(TensorInfo { name, kind, dims, shard: 0, offset, len })
    }
}

fn byte_len(name: &str, kind: TensorType, dims: &[u64]) -> Result<Bytes, TensorError> {
    let tensor = || name.to_owned();
    if dims.contains(&0) {
        return Err(TensorError::EmptyDim { tensor: tensor(), dims: dims.to_vec() });
    }
    let row = dims[0];
    if !row.is_multiple_of(kind.block_len()) {
        return Err(TensorError::PartialBlock { tensor: tensor(), kind, row });
    }
    dims.iter()
        .try_fold(1u64, |product, &dim| product.checked_mul(dim))
        .and_then(|elements| kind.byte_len(elements))
        .ok_or_else(|| TensorError::TooLarge { tensor: tensor(), dims: dims.to_vec() })
}

/// Refuses names that are there twice, and tensors that share part of their bytes. All are of one file.
pub(crate) fn check_apart(tensors: &[TensorInfo]) -> Result<(), TensorError> {
    let mut by_name: Vec<&TensorInfo> = tensors.iter().collect();
    by_name.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(pair) = by_name.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(TensorError::Duplicate { tensor: pair[0].name.clone() });
    }
    let mut by_place = by_name;
    by_place.sort_by_key(|tensor| (tensor.offset, tensor.len));
    // Sorted by start, a tensor that lies in any earlier one also lies in its neighbour, or equals it.
    for pair in by_place.windows(2) {
        let (first, second) = (pair[0], pair[1]);
        let same = first.offset == second.offset && first.len == second.len;
        if second.offset < first.end() && !same {
            return Err(TensorError::Overlap {
                first: first.name.clone(),
                second: second.name.clone(),
                start: second.offset.0,
                end: first.end().0,
            });
        }
    }
    Ok(())
}
