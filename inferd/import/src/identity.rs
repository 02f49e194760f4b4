//! Whether an owner's weights are the wanted ones.

use crate::attach::AttachOptions;
use crate::error::{ImportError, first_path};
use ds4_gguf::Model as GgufModel;
use ds4_gpu::Memory;
use ds4_manifest::{Digest, Model, ModelFile, Place, Tensor};
use ds4_resident::{ContentIdentity, ContentRoot, LEAF, LoadError, Reading, TensorIdentity, identify, leaf_root};
use ds4_units::Bytes;
use std::collections::BTreeSet;

/// Bytes hashed to see that ranges arrived in the right order and whole; less than a hundredth of a second.
const SAMPLE_MAX: Bytes = Bytes::mib(16);
/// The largest tensor taken into the sample.
const SAMPLE_TENSOR_MAX: Bytes = Bytes::mib(4);

/// The identity that the manifest states, proved to follow from its tensor table.
pub(crate) fn stated_identity(model: &Model) -> Result<ContentRoot, ImportError> {
    let tensors = model.tensors.iter().map(|tensor| TensorIdentity {
        name: tensor.name.clone(),
        kind: tensor.kind,
        dims: tensor.dims.clone(),
        leaf_root: tensor.leaf_root,
    });
    let computed = ContentIdentity::of(tensors.collect()).root;
    let stated = ContentRoot::from(model.content_root);
    if computed == stated { Ok(stated) } else { Err(ImportError::IdentityTable { stated, computed }) }
}

/// Checks that the owner's model is the one in the worker's file.
///
/// Architecture and tensor tables are compared first. If the files are the very ones that the owner loaded, unchanged,
/// that is all; else the worker's file is read and its content compared, which takes as long as loading it.
pub(crate) fn check_own_file(
    model: &Model,
    stated: ContentRoot,
    own: &GgufModel,
    options: &AttachOptions<'_>,
) -> Result<(), ImportError> {
    let owner_path = first_path(&model.files);
    let own_path = own.shards().first().map_or_else(String::new, |shard| shard.path().display().to_string());
    if model.arch != own.architecture() {
        let (owner, own) = (model.arch.clone(), own.architecture().to_owned());
        return Err(ImportError::Architecture { owner, owner_path, own, own_path });
    }
    if let Some(difference) = first_difference(&model.tensors, own) {
        return Err(ImportError::TensorTable { owner_path, own_path, difference });
    }
    if own.shards().iter().map(stamp).eq(model.files.iter().map(ModelStamp::of)) {
        return Ok(());
    }
    options.progress.note("the worker's file is not the one that the owner read: comparing contents");
    let reading = Reading { threads: Reading::default_threads(), progress: options.progress, cancel: options.cancel };
    let computed = identify(own, &reading).map_err(|error| match error {
        LoadError::Cancelled => ImportError::Cancelled,
        error => ImportError::OwnFile(Box::new(error)),
    })?;
    if computed.root == stated {
        return Ok(());
    }
    Err(ImportError::Content { owner: stated, owner_path, own: computed.root, own_path })
}

/// What tells an unchanged file. Its path does not: the same file has many.
#[derive(PartialEq)]
struct ModelStamp(u64, u64, Bytes, i64, i64);

impl ModelStamp {
    fn of(file: &ModelFile) -> ModelStamp {
        ModelStamp(file.dev, file.ino, file.size, file.mtime_ns, file.ctime_ns)
    }
}

fn stamp(shard: &ds4_gguf::Shard) -> ModelStamp {
    let stamp = shard.stamp();
    ModelStamp(stamp.device, stamp.inode, stamp.size, stamp.mtime_ns, stamp.ctime_ns)
}

fn first_difference(owner: &[Tensor], own: &GgufModel) -> Option<String> {
    for tensor in owner {
        let Some(info) = own.tensor(&tensor.name) else {
            return Some(format!("only the owner has {:?}", tensor.name));
        };
        if (tensor.kind, &tensor.dims) != (info.kind, &info.dims) {
            let Tensor { name, kind, dims, .. } = tensor;
            return Some(format!("{name:?} is {kind} {dims:?} there and {} {:?} here", info.kind, info.dims));
        }
    }
    let names: BTreeSet<&str> = owner.iter().map(|tensor| tensor.name.as_str()).collect();
    let more = own.tensors().iter().find(|info| !names.contains(info.name.as_str()))?;
    Some(format!("only the worker has {:?}", more.name))
}

/// Hashes the smallest tensor of each range, as far as that is quick, and compares it with its digest. That the bytes
/// cannot have changed since is what the seals are for; this finds ranges that are mixed up or empty.
pub(crate) fn check_sample(model: &Model, ranges: &[Memory]) -> Result<(), ImportError> {
    let placed = model.tensors.iter().filter_map(|tensor| Some((tensor, tensor.place?)));
    let mut tensors: Vec<(&Tensor, Place)> = placed.collect();
    tensors.sort_by_key(|(_, place)| (place.range, place.len, place.offset));
    tensors.dedup_by_key(|(_, place)| place.range);
    let mut left = SAMPLE_MAX.0;
    for (tensor, place) in tensors {
        if place.len > SAMPLE_TENSOR_MAX || place.len.0 > left {
            continue;
        }
        left -= place.len.0;
        let unresolved = || ImportError::Unresolved { tensor: tensor.name.clone() };
        let end = place.offset.checked_add(place.len).ok_or_else(unresolved)?.index();
        let range = ranges.get(place.range as usize).ok_or_else(unresolved)?;
        let bytes = range.read(place.offset.index()..end)?;
        let leaves: Vec<Digest> = bytes.chunks(LEAF.index()).map(Digest::of).collect();
        if leaf_root(place.len, &leaves) != tensor.leaf_root {
            return Err(ImportError::Corrupt { tensor: tensor.name.clone(), range: place.range });
        }
    }
    Ok(())
}
