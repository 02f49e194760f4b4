//! A model as one logical file: all shards, one tensor table.

use crate::error::{FileName, GgufError};
use crate::limits::HEADER_MAX;
use crate::metadata::Metadata;
use crate::shard::Shard;
use crate::split::{SplitError, check_member, check_tensor_count, shard_paths};
use crate::tensor::TensorInfo;
use ds4_units::{Bytes, FileOffset};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

/// In the logical model every shard starts at a multiple of this, whatever the page size of the machine.
pub const SHARD_ALIGN: Bytes = Bytes::kib(64);

/// The metadata key that names the kind of model.
const ARCHITECTURE_KEY: &str = "general.architecture";

/// A model whose headers are read and checked, with its files held open.
#[derive(Debug)]
pub struct Model {
    architecture: String,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    by_name: BTreeMap<String, usize>,
    shards: Vec<Shard>,
    logical_size: Bytes,
}

impl Model {
    /// Opens a model through its only or first file, and all its siblings; reads and checks the headers. Blocks on
    /// the disk.
    pub fn open(path: &Path) -> Result<Model, GgufError> {
        let first = Shard::open(path)?;
        let header = first.read_header(HEADER_MAX)?;
        let paths = shard_paths(path, &header.metadata)?;
        let architecture = architecture(&first, &header.metadata)?;
        let mut model = Model {
            architecture,
            metadata: header.metadata,
            tensors: Vec::new(),
            by_name: BTreeMap::new(),
            shards: Vec::new(),
            logical_size: Bytes::ZERO,
        };
        model.add(first, header.tensors)?;
        if paths.len() > 1 {
            for (shard, tensors) in model.open_siblings(&paths, HEADER_MAX.0 - header.len.0)? {
                model.add(shard, tensors)?;
            }
        }
        check_tensor_count(path, &model.metadata, model.tensors.len())?;
        model.check_unchanged()?;
        Ok(model)
    }

    /// Opens and checks the shards after the first, whose headers may have `budget` bytes together.
    fn open_siblings(&self, paths: &[PathBuf], mut budget: u64) -> Result<Vec<(Shard, Vec<TensorInfo>)>, GgufError> {
        let first = (paths[0].as_path(), &self.metadata);
        check_member(1, first, first)?;
        let mut siblings = Vec::with_capacity(paths.len() - 1);
        for (path, number) in paths.iter().skip(1).zip(2..) {
            let shard = open_sibling(path, number, paths.len() as u64)?;
            let header = shard.read_header(Bytes(budget))?;
            budget -= header.len.0;
            check_member(number, (path, &header.metadata), first)?;
            siblings.push((shard, header.tensors));
        }
        Ok(siblings)
    }

    /// Appends a shard with its tensors, whose names must be new.
    fn add(&mut self, mut shard: Shard, tensors: Vec<TensorInfo>) -> Result<(), GgufError> {
        let base = self.logical_size.checked_round_up(SHARD_ALIGN);
        let end = base.and_then(|base| base.checked_add(shard.size()));
        let (Some(base), Some(end)) = (base, end) else {
            return Err(GgufError::TooLarge { file: shard.name() });
        };
        shard.set_base(FileOffset(base.0));
        self.logical_size = end;
        for tensor in tensors {
            match self.by_name.entry(tensor.name.clone()) {
                Entry::Vacant(entry) => entry.insert(self.tensors.len()),
                Entry::Occupied(entry) => {
                    let first = self.shards[self.tensors[*entry.get()].shard].name();
                    let error = SplitError::DuplicateTensor { tensor: tensor.name, first, second: shard.name() };
                    return Err(error.into());
                }
            };
            self.tensors.push(TensorInfo { shard: self.shards.len(), ..tensor });
        }
        self.shards.push(shard);
        Ok(())
    }

    /// The kind of model: the metadata key `general.architecture`.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// The first shard's metadata. The others have only what describes the split.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in order of shard and table.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor with this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).map(|&index| &self.tensors[index])
    }

    /// The files, in order.
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Length of the logical model: all shards laid end to end, each at a multiple of [`SHARD_ALIGN`].
    pub fn logical_size(&self) -> Bytes {
        self.logical_size
    }

    /// Fills `out` from a shard of this model. Blocks on the disk; several threads may read at once.
    ///
    /// # Panics
    /// When there is no such shard.
    pub fn read_at(&self, shard: usize, offset: FileOffset, out: &mut [u8]) -> Result<(), GgufError> {
        self.shards[shard].read_at(offset, out)
    }

    /// The bytes of a tensor of this model. For tools and tests; a loader reads in pieces. Blocks on the disk.
    ///
    /// # Panics
    /// When the tensor is of another model and its shard does not exist here.
    pub fn read_tensor(&self, tensor: &TensorInfo) -> Result<Vec<u8>, GgufError> {
        let mut bytes = vec![0; tensor.len.index()];
        self.read_at(tensor.shard, tensor.offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Refuses when any file is not what it was when it was opened.
    pub fn check_unchanged(&self) -> Result<(), GgufError> {
        self.shards.iter().try_for_each(Shard::check_unchanged)
    }
}

fn architecture(first: &Shard, metadata: &Metadata) -> Result<String, GgufError> {
    match metadata.str(ARCHITECTURE_KEY) {
        Ok(Some(name)) => Ok(name.to_owned()),
        Ok(None) => Err(GgufError::NoArchitecture { file: first.name() }),
        Err(source) => Err(GgufError::Value { file: first.name(), source }),
    }
}

fn open_sibling(path: &Path, number: u64, count: u64) -> Result<Shard, GgufError> {
    Shard::open(path).map_err(|error| match error {
        GgufError::Open { source, .. } => {
            SplitError::Missing { number, count, file: FileName::of(path), source }.into()
        }
        other => other,
    })
}
