//! One tensor: what it is, and where its bytes are.

use ds4_gpu::layout::split_len;
use ds4_gpu::{Memory, MemoryError};
use ds4_units::{Layout, TensorType};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// One tensor. Cloning is cheap: the bytes are shared.
#[derive(Clone)]
pub struct Tensor {
    name: String,
    kind: TensorType,
    dims: Vec<u64>,
    layout: Layout,
    memory: Memory,
    place: Range<usize>,
}

impl Tensor {
    /// A tensor over `place` of `memory`; `None` when the place is outside the memory or is not exactly the size that
    /// `kind`, `dims` (GGUF order, the contiguous dimension first) and `layout` give.
    pub fn new(
        name: String,
        kind: TensorType,
        dims: Vec<u64>,
        layout: Layout,
        memory: Memory,
        place: Range<usize>,
    ) -> Option<Tensor> {
        let elements = dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim))?;
        let columns = dims.first().copied().unwrap_or(1);
        let expected = match layout {
            Layout::Gguf => kind.byte_len(elements)?.index(),
            Layout::Split => {
                split_len(kind, usize::try_from(elements.checked_div(columns)?).ok()?, columns as usize)?.index()
            }
        };
        let fits = place.start <= place.end && place.end <= memory.len().index();
        (fits && expected == place.len()).then_some(Tensor { name, kind, dims, layout, memory, place })
    }

    /// The tensor's name in the GGUF.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the elements are stored.
    pub fn kind(&self) -> TensorType {
        self.kind
    }

    /// Dimensions in GGUF order: the contiguous one first.
    pub fn dims(&self) -> &[u64] {
        &self.dims
    }

    /// In which order the bytes lie.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The memory the bytes lie in, and where.
    pub fn memory(&self) -> (Memory, Range<usize>) {
        (self.memory.clone(), self.place.clone())
    }

    /// The bytes for the host, in the tensor's layout; of a tensor on a device it is a copy, so this is for small ones.
    /// Resident tensors start at a multiple of 256 bytes, so they may be viewed as wider words.
    pub fn bytes(&self) -> Result<Cow<'_, [u8]>, MemoryError> {
        self.memory.read(self.place.clone())
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} {} {:?})", self.name, self.kind, self.dims)
    }
}
