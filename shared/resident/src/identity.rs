//! The identity of a model's content, independent of where its tensors lie and in how many files.
//!
//! The tensor bytes of the file are cut into leaves of 2 MiB (the last one shorter). With `H` for SHA-256, `u32` and
//! `u64` little-endian and strings as their length (u64) and bytes:
//!
//! - leaf digest = `H(bytes)`
//! - leaf root of a tensor = `H("ds4.tensor/1" | u64 byte length | leaf digests in order)`
//! - content root = `H("ds4.content/1" | u64 number of tensors | for each, in name order: name | type name |
//!   u32 number of dimensions | u64 dimensions | leaf root)`
//!
//! Lengths are part of what is hashed, so no two different tables of tensors give the same bytes to hash.

use ds4_manifest::Digest;
use ds4_units::{Bytes, TensorType};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// Size of a leaf.
pub const LEAF: Bytes = Bytes::mib(2);

/// Names the content of a model: types, dimensions and every byte of all tensors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "Digest", from = "Digest")]
pub struct ContentRoot(pub [u8; 32]);

/// What one tensor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorIdentity {
    /// Its name.
    pub name: String,
    /// How its elements are stored.
    pub kind: TensorType,
    /// Dimensions, the contiguous one first.
    pub dims: Vec<u64>,
    /// Root over the leaves of its file bytes.
    pub leaf_root: Digest,
}

/// What a model is: the root, and what it was computed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentIdentity {
    /// Root over all tensors.
    pub root: ContentRoot,
    /// The tensors, in name order.
    pub tensors: Vec<TensorIdentity>,
}

impl ContentIdentity {
    /// The identity of a model with these tensors, in whatever order they come.
    pub fn of(mut tensors: Vec<TensorIdentity>) -> ContentIdentity {
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        let mut hash = Sha256::new();
        hash.update(b"ds4.content/1");
        hash.update((tensors.len() as u64).to_le_bytes());
        for tensor in &tensors {
            update_with_text(&mut hash, &tensor.name);
            update_with_text(&mut hash, tensor.kind.name());
            hash.update((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().for_each(|dim| hash.update(dim.to_le_bytes()));
            hash.update(tensor.leaf_root.0);
        }
        ContentIdentity { root: ContentRoot(hash.finalize().into()), tensors }
    }
}

/// The root over a tensor's leaves. `len` is the tensor's length in bytes.
pub fn leaf_root(len: Bytes, leaves: &[Digest]) -> Digest {
    let mut hash = Sha256::new();
    hash.update(b"ds4.tensor/1");
    hash.update(len.0.to_le_bytes());
    leaves.iter().for_each(|leaf| hash.update(leaf.0));
    Digest(hash.finalize().into())
}

fn update_with_text(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text.as_bytes());
}

impl From<ContentRoot> for Digest {
    fn from(root: ContentRoot) -> Digest {
        Digest(root.0)
    }
}

impl From<Digest> for ContentRoot {
    fn from(digest: Digest) -> ContentRoot {
        ContentRoot(digest.0)
    }
}

impl fmt::Display for ContentRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Digest::from(*self).fmt(f)
    }
}

impl fmt::Debug for ContentRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
