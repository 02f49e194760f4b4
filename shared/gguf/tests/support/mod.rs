//! Files that are wrong in exactly one place.
#![allow(dead_code)] // Every test binary uses its own part.

use ds4_gguf::{GgufError, Header, HeaderError, Model, limits::HEADER_MAX, writer::Writer};
use ds4_units::{Bytes, TensorType};
use std::path::{Path, PathBuf};

/// A header written field by field, without any check.
#[derive(Clone, Default)]
pub(crate) struct Forged(pub(crate) Vec<u8>);

impl Forged {
    /// Magic, version and the two counts.
    pub(crate) fn new(tensors: u64, keys: u64) -> Forged {
        Forged(b"GGUF".to_vec()).u32(3).u64(tensors).u64(keys)
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Forged {
        self.0.extend(bytes);
        self
    }

    pub(crate) fn u32(self, value: u32) -> Forged {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Forged {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn string(self, text: &str) -> Forged {
        self.u64(text.len() as u64).bytes(text.as_bytes())
    }

    pub(crate) fn tensor(self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Forged {
        let head = self.string(name).u32(dims.len() as u32);
        dims.iter().fold(head, |forged, &dim| forged.u64(dim)).u32(kind).u64(offset)
    }

    /// Fills up to the data section, then adds `len` bytes of it.
    pub(crate) fn data(mut self, len: usize) -> Forged {
        self.0.resize(self.0.len().next_multiple_of(32) + len, 0);
        self
    }

    pub(crate) fn read(&self) -> Result<Header, HeaderError> {
        read(&self.0)
    }

    /// The message that reading gives.
    pub(crate) fn error(&self) -> String {
        self.read().unwrap_err().to_string()
    }
}

pub(crate) fn read(bytes: &[u8]) -> Result<Header, HeaderError> {
    Header::read(bytes, Bytes(bytes.len() as u64), HEADER_MAX)
}

/// A file with one tensor as described, 4 KiB of data, and nothing else.
pub(crate) fn one_tensor(dims: &[u64], kind: u32, offset: u64) -> Forged {
    Forged::new(1, 0).tensor("w", dims, kind, offset).data(4096)
}

/// A file with one metadata pair: the type's id, then the value's bytes.
pub(crate) fn one_value(id: u32, value: &[u8]) -> Forged {
    Forged::new(0, 1).string("k").u32(id).bytes(value)
}

/// A model with three small tensors.
pub(crate) fn model() -> Writer {
    let tensor =
        |writer: Writer, i: u8| writer.tensor(&format!("blk.{i}.weight"), TensorType::F32, &[4, 4], vec![i; 64]);
    (0..3).fold(Writer::new("example"), tensor)
}

pub(crate) fn open(path: &Path) -> Result<Model, GgufError> {
    Model::open(path)
}

/// Writes `bytes` to a file in `folder` and opens it.
pub(crate) fn open_bytes(folder: &Path, bytes: &[u8]) -> (PathBuf, Result<Model, GgufError>) {
    let path = folder.join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    let model = Model::open(&path);
    (path, model)
}
