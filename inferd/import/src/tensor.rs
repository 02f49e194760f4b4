//! A weight tensor as the worker sees it: a name, a storage type, dimensions and read-only bytes.

use ds4_units::TensorType;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Memory that holds tensor bytes and stays valid while anyone holds it: a read-only mapping of a resident range, or
/// plain memory in a test.
pub type Storage = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// One tensor. Cloning is cheap: the bytes are shared.
#[derive(Clone)]
pub struct Tensor {
    name: String,
    kind: TensorType,
    dims: Vec<u64>,
    storage: Storage,
    place: Range<usize>,
}

impl Tensor {
    /// A tensor over `place` of `storage`; `None` when the place is outside the storage or is not exactly the size
    /// that `kind` and `dims` (GGUF order, the contiguous dimension first) give.
    pub fn new(
        name: String,
        kind: TensorType,
        dims: Vec<u64>,
        storage: Storage,
        place: Range<usize>,
    ) -> Option<Tensor> {
        let elements = dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim))?;
        let expected = kind.byte_len(elements)?.index();
        let actual = (*storage).as_ref().get(place.clone())?.len();
        (expected == actual).then_some(Tensor { name, kind, dims, storage, place })
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

    /// The memory the bytes lie in, and where.
    pub fn storage(&self) -> (Storage, Range<usize>) {
        (self.storage.clone(), self.place.clone())
    }

    /// The stored bytes. Resident tensors start at a multiple of 256 bytes, so they may be viewed as wider words.
    pub fn bytes(&self) -> &[u8] {
        &(*self.storage).as_ref()[self.place.clone()]
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} {} {:?})", self.name, self.kind, self.dims)
    }
}
