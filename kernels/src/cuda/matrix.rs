//! Weight matrices in a GPU's memory.

use super::device::Device;
use crate::backend::BackendError;
use crate::{Matrix, MatrixError};
use ds4_gpu::{DeviceMemory, DevicePtr, Memory, layout};
use ds4_units::{Layout, TensorType};
use std::fmt;
use std::sync::Arc;

/// Experts that the kernels which choose and group have shared memory for.
pub(super) const STACK_MAX: usize = 1024;
/// Elements of a small matrix at most.
const SMALL: usize = 1 << 20;
/// What kernels align their loads to.
const ALIGNMENT: u64 = 16;

/// A stack of matrices of `rows` outputs by `columns` inputs: split bytes where the type has that layout, the file's
/// rows otherwise.
#[derive(Clone)]
pub struct DeviceMatrix {
    kind: TensorType,
    stack: usize,
    rows: usize,
    columns: usize,
    address: DevicePtr,
    /// Keeps the memory.
    _memory: Arc<dyn DeviceMemory>,
}

/// Takes a matrix: as it is when it lies in the GPU's memory in the layout the kernels read, else by a copy.
pub(crate) fn take(device: &Device, matrix: Matrix) -> Result<DeviceMatrix, BackendError> {
    let kind = matrix.kind();
    if matrix.stack() > STACK_MAX {
        return Err(MatrixError::TooManyInStack { stack: matrix.stack(), most: STACK_MAX }.into());
    }
    let wanted = if layout::is_split(kind) { Layout::Split } else { Layout::Gguf };
    let place = matrix.place();
    let (memory, offset): (Arc<dyn DeviceMemory>, usize) = match matrix.memory() {
        Memory::Device(memory) if matrix.layout() == wanted => (memory.clone(), place.start),
        Memory::Host(bytes) if matrix.layout() == wanted => (device.upload(&(**bytes).as_ref()[place])?, 0),
        Memory::Host(bytes) if matrix.layout() == Layout::Gguf => {
            let raw = &(**bytes).as_ref()[place];
            let split = layout::split(kind, matrix.stack() * matrix.rows(), matrix.columns(), raw);
            (device.upload(&split)?, 0)
        }
        _ => return Err(MatrixError::UnsupportedLayout { kind, layout: matrix.layout() }.into()),
    };
    let address = memory.address().offset(offset as u64);
    if !address.0.is_multiple_of(ALIGNMENT) {
        return Err(MatrixError::Misaligned { kind, offset, alignment: ALIGNMENT as usize }.into());
    }
    let (stack, rows, columns) = (matrix.stack(), matrix.rows(), matrix.columns());
    Ok(DeviceMatrix { kind, stack, rows, columns, address, _memory: memory })
}

impl DeviceMatrix {
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

    /// Whether it is not worth a rounding of activations, for few rows or for many: its products take no longer without,
    /// and those of routers choose. Stacks are judged by one of their matrices.
    pub(super) fn is_small(&self) -> bool {
        self.rows * self.columns <= SMALL
    }

    pub(super) fn address(&self) -> DevicePtr {
        self.address
    }
}

impl fmt::Debug for DeviceMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceMatrix({} {}x{}x{})", self.kind, self.stack, self.rows, self.columns)
    }
}
