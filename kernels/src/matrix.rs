//! Weight matrices where they are, quantised bytes left as they are.

use crate::reference::blocks;
use ds4_gpu::{Memory, layout};
use ds4_units::{Bytes, Layout, TensorType};
use std::fmt;
use std::ops::Range;

/// Why bytes cannot be used as a matrix.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MatrixError {
    #[error("type {found} is not computed with; supported are {}", supported_names())]
    UnsupportedType { found: TensorType },
    #[error("this backend does not compute with layout {layout} of {kind}")]
    UnsupportedLayout { kind: TensorType, layout: Layout },
    #[error("it lies in {memory} memory, where this backend cannot compute")]
    Elsewhere { memory: &'static str },
    #[error("{kind} bytes at {offset} are not aligned to {alignment}, as the kernels load them")]
    Misaligned { kind: TensorType, offset: usize, alignment: usize },
    #[error("a stack of {stack} matrices is more than the {most} that this backend chooses from")]
    TooManyInStack { stack: usize, most: usize },
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
    layout: Layout,
    stack: usize,
    rows: usize,
    columns: usize,
    memory: Memory,
    place: Range<usize>,
}

impl Matrix {
    /// A stack over `place` of `memory`.
    pub fn new(
        kind: TensorType,
        layout: Layout,
        [stack, rows, columns]: [usize; 3],
        memory: Memory,
        place: Range<usize>,
    ) -> Result<Matrix, MatrixError> {
        if !blocks::SUPPORTED.contains(&kind) {
            return Err(MatrixError::UnsupportedType { found: kind });
        }
        let Some(row_bytes) = kind.byte_len(columns as u64) else {
            return Err(MatrixError::PartialBlocks { columns, kind });
        };
        let all_rows = rows.checked_mul(stack);
        let expected = match layout {
            Layout::Gguf => all_rows.and_then(|rows| row_bytes.index().checked_mul(rows)),
            Layout::Split if !layout::is_split(kind) => return Err(MatrixError::UnsupportedLayout { kind, layout }),
            Layout::Split => all_rows.and_then(|rows| layout::split_len(kind, rows, columns)).map(Bytes::index),
        };
        let bytes = if place.end <= memory.len().index() { place.len() } else { 0 };
        if expected != Some(bytes) {
            return Err(MatrixError::WrongSize { stack, rows, columns, kind, bytes });
        }
        Ok(Matrix { kind, layout, stack, rows, columns, memory, place })
    }

    /// How the elements are stored.
    pub fn kind(&self) -> TensorType {
        self.kind
    }

    /// In which order the bytes lie.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The memory that the bytes lie in.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Where in that memory they lie.
    pub fn place(&self) -> Range<usize> {
        self.place.clone()
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
        self.place.len() / (self.stack * self.rows)
    }

    /// Itself, if the CPU can compute with it.
    pub(crate) fn for_host(self) -> Result<Matrix, MatrixError> {
        if self.layout != Layout::Gguf {
            return Err(MatrixError::UnsupportedLayout { kind: self.kind, layout: self.layout });
        }
        if self.memory.host_bytes().is_none() {
            return Err(MatrixError::Elsewhere { memory: "device" });
        }
        Ok(self)
    }

    /// The stored bytes of rows `rows` of matrix `index`; only of a matrix that passed [`Matrix::for_host`].
    pub(crate) fn rows_bytes(&self, index: usize, rows: Range<usize>) -> &[u8] {
        let row_bytes = self.row_bytes();
        let first = index * self.rows;
        &self.bytes()[(first + rows.start) * row_bytes..(first + rows.end) * row_bytes]
    }

    fn bytes(&self) -> &[u8] {
        let all = self.memory.host_bytes().expect("for_host looked");
        &all[self.place.clone()]
    }
}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matrix({} {}x{}x{})", self.kind, self.stack, self.rows, self.columns)
    }
}
