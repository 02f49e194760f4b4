//! Weight matrices as the file stores them.

use crate::reference::blocks;
use ds4_units::TensorType;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Memory that holds weight bytes and keeps them valid.
pub type WeightStorage = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Why bytes cannot be used as a matrix.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MatrixError {
    #[error("type {found} is not computed with; supported are {}", supported_names())]
    UnsupportedType { found: TensorType },
    #[error("{columns} columns do not fill whole {kind} blocks of {}", .kind.block_len())]
    PartialBlocks { columns: usize, kind: TensorType },
    #[error("{stack} x {rows} x {columns} elements of {kind} do not take {bytes} bytes")]
    WrongSize { stack: usize, rows: usize, columns: usize, kind: TensorType, bytes: usize },
}

fn supported_names() -> String {
    blocks::SUPPORTED.map(TensorType::name).join(" ")
}

/// A stack of matrices (one, or one per expert) of `rows` outputs by `columns` inputs, quantised bytes left as they are.
#[derive(Clone)]
pub struct Matrix {
    kind: TensorType,
    stack: usize,
    rows: usize,
    columns: usize,
    storage: WeightStorage,
    place: Range<usize>,
}

impl Matrix {
    /// A stack over `place` of `storage`.
    pub fn new(
        kind: TensorType,
        [stack, rows, columns]: [usize; 3],
        storage: WeightStorage,
        place: Range<usize>,
    ) -> Result<Matrix, MatrixError> {
        if !blocks::SUPPORTED.contains(&kind) {
            return Err(MatrixError::UnsupportedType { found: kind });
        }
        let Some(row_bytes) = kind.byte_len(columns as u64) else {
            return Err(MatrixError::PartialBlocks { columns, kind });
        };
        let expected = row_bytes.index().checked_mul(rows).and_then(|bytes| bytes.checked_mul(stack));
        let bytes = (*storage).as_ref().get(place.clone()).map_or(0, <[u8]>::len);
        if expected != Some(bytes) {
            return Err(MatrixError::WrongSize { stack, rows, columns, kind, bytes });
        }
        Ok(Matrix { kind, stack, rows, columns, storage, place })
    }

    /// How the elements are stored.
    pub fn kind(&self) -> TensorType {
        self.kind
    }

    /// Matrices in the stack.
    pub fn stack(&self) -> usize {
        self.stack
    }

    /// Outputs of one matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs of one matrix.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Bytes of one row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.bytes().len() / (self.stack * self.rows)
    }

    /// The stored bytes of rows `rows` of matrix `index`.
    pub(crate) fn rows_bytes(&self, index: usize, rows: Range<usize>) -> &[u8] {
        let row_bytes = self.row_bytes();
        let first = index * self.rows;
        &self.bytes()[(first + rows.start) * row_bytes..(first + rows.end) * row_bytes]
    }

    fn bytes(&self) -> &[u8] {
        &(*self.storage).as_ref()[self.place.clone()]
    }
}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matrix({} {}x{}x{})", self.kind, self.stack, self.rows, self.columns)
    }
}
