//! Writes small valid GGUF files, whole or in shards, from tensors in memory.
//!
//! ```
//! use ds4_gguf::{Value, writer::Writer};
//! use ds4_units::TensorType;
//!
//! let bytes = Writer::new("example")
//!     .value("example.block_count", Value::U32(2))
//!     .tensor("output.weight", TensorType::F32, &[2, 2], vec![0; 16])
//!     .to_bytes();
//! assert_eq!(&bytes[..4], b"GGUF");
//! ```

use crate::header::{ALIGNMENT_DEFAULT, ALIGNMENT_KEY, MAGIC, VERSION};
use crate::split::shard_file_name;
use crate::value::{Value, write_string};
use crate::{GgufError, Model};
use ds4_units::TensorType;
use std::io;
use std::path::{Path, PathBuf};

/// Collects metadata and tensors, then writes them. Keys keep the order in which they were added.
#[derive(Clone, Debug)]
pub struct Writer {
    values: Vec<(String, Value)>,
    tensors: Vec<(String, TensorType, Vec<u64>, Vec<u8>)>,
    alignment: u64,
}

impl Writer {
    /// A model of this architecture, without anything yet.
    pub fn new(architecture: &str) -> Writer {
        let values = vec![("general.architecture".to_owned(), architecture.into())];
        Writer { values, tensors: Vec::new(), alignment: ALIGNMENT_DEFAULT }
    }

    /// All that a model has, its tensors read into memory. They are aligned as usual, however they were.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn copy_of(model: &Model) -> Result<Writer, GgufError> {
        let values = model.metadata().iter().filter(|(key, _)| *key != ALIGNMENT_KEY);
        let copy = values.fold(Writer::new(model.architecture()), |copy, (key, value)| copy.value(key, value.clone()));
        model.tensors().iter().try_fold(copy, |copy, tensor| {
            Ok(copy.tensor(&tensor.name, tensor.kind, &tensor.dims, model.read_tensor(tensor)?))
        })
    }

    /// Sets the alignment of the data section, a power of two.
    ///
    /// # Panics
    /// When it is not a power of two or does not fit 32 bits.
    pub fn alignment(mut self, alignment: u32) -> Writer {
        assert!(alignment.is_power_of_two());
        self.alignment = alignment.into();
        self.value(ALIGNMENT_KEY, Value::U32(alignment))
    }

    /// Adds a metadata pair, or replaces the value of the key.
    pub fn value(mut self, key: &str, value: Value) -> Writer {
        match self.values.iter_mut().find(|(there, _)| there == key) {
            Some(pair) => pair.1 = value,
            None => self.values.push((key.to_owned(), value)),
        }
        self
    }

    /// Adds a tensor; dimensions with the contiguous one first.
    ///
    /// # Panics
    /// When `bytes` is not exactly as long as type and dimensions say.
    pub fn tensor(mut self, name: &str, kind: TensorType, dims: &[u64], bytes: Vec<u8>) -> Writer {
        let len = kind.byte_len(dims.iter().product());
        assert_eq!(len.map(|len| len.index()), Some(bytes.len()), "bytes of tensor {name}");
        self.tensors.push((name.to_owned(), kind, dims.to_vec(), bytes));
        self
    }

    /// The file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.values.len() as u64).to_le_bytes());
        for (key, value) in &self.values {
            write_string(key, &mut out);
            value.write(&mut out);
        }
        let mut offset = 0u64;
        for (name, kind, dims, bytes) in &self.tensors {
            write_string(name, &mut out);
            out.extend((dims.len() as u32).to_le_bytes());
            dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend((*kind as u32).to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset += (bytes.len() as u64).next_multiple_of(self.alignment);
        }
        self.pad(&mut out);
        for (.., bytes) in &self.tensors {
            out.extend(bytes);
            self.pad(&mut out);
        }
        out
    }

    /// Writes the file to `path`.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        std::fs::write(path, self.to_bytes())
    }

    /// Writes the model as `count` shards into `folder`, with the tensors shared out in order, and returns the paths.
    /// As usual the first shard alone has the whole metadata.
    ///
    /// # Panics
    /// When `count` is 0 or does not fit 16 bits.
    pub fn write_shards(&self, folder: &Path, stem: &str, count: usize) -> io::Result<Vec<PathBuf>> {
        let shards = self.shards(count);
        let mut paths = Vec::with_capacity(count);
        for (shard, number) in shards.iter().zip(1..) {
            let path = folder.join(shard_file_name(stem, number, count as u64));
            shard.write(&path)?;
            paths.push(path);
        }
        Ok(paths)
    }

    /// The model as `count` files, see [`Writer::write_shards`].
    ///
    /// # Panics
    /// When `count` is 0 or does not fit 16 bits.
    pub fn shards(&self, count: usize) -> Vec<Writer> {
        let count_value = u16::try_from(count).expect("a shard count fits 16 bits");
        let per_shard = self.tensors.len().div_ceil(count);
        let shard = |number: u16| {
            let first = (usize::from(number) * per_shard).min(self.tensors.len());
            let last = (first + per_shard).min(self.tensors.len());
            let values = if number == 0 { self.values.clone() } else { Vec::new() };
            Writer { values, tensors: self.tensors[first..last].to_vec(), alignment: self.alignment }
                .value("split.no", Value::U16(number))
                .value("split.count", Value::U16(count_value))
                .value("split.tensors.count", Value::I32(self.tensors.len() as i32))
                .kept_alignment()
        };
        (0..count_value).map(shard).collect()
    }

    /// Every shard states the alignment that its own data section has.
    fn kept_alignment(self) -> Writer {
        if self.alignment == ALIGNMENT_DEFAULT {
            return self;
        }
        let alignment = Value::U32(self.alignment as u32);
        self.value(ALIGNMENT_KEY, alignment)
    }

    fn pad(&self, out: &mut Vec<u8>) {
        out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
    }
}
