//! Checks ranges that somebody else kept against the digests that their manifest states, without reading a file.

#[cfg(feature = "cuda")]
use crate::backing::DeviceBacking;
use crate::backing::{Held, MatrixShape, Spot};
use crate::destination::Destination;
use crate::error::LoadError;
use crate::identity::{LEAF, leaf_root};
use crate::verify::Verify;
use ds4_gpu::SharedRange;
use ds4_manifest::{Artifact, Digest, Place, Tensor, WeightsManifest};
use ds4_units::{Bytes, Layout};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Host memory hashed for a sample: a fraction of a second.
const HOST_SAMPLE: Bytes = Bytes::mib(256);

/// One tensor to be hashed where it lies.
struct Wanted<'m> {
    tensor: &'m Tensor,
    place: Place,
    split: Option<MatrixShape>,
}

/// Hashes tensors of `manifest` where they lie in `ranges` and compares them with what the manifest says: of a sample the
/// smallest of every range, else all. Blocks.
pub fn check_kept(
    manifest: &WeightsManifest,
    ranges: &[SharedRange],
    destination: &Destination,
    how: Verify,
) -> Result<(), LoadError> {
    let mut wanted = wanted(manifest)?;
    match how {
        Verify::None => return Ok(()),
        Verify::Full => {}
        Verify::Sample => {
            wanted.sort_by_key(|wanted| (wanted.place.range, wanted.tensor.dims.iter().product::<u64>()));
            wanted.dedup_by_key(|wanted| wanted.place.range);
            if matches!(destination, Destination::Host) {
                let mut left = HOST_SAMPLE.0;
                wanted.retain(|wanted| {
                    let fits = wanted.place.len.0 <= left;
                    left -= if fits { wanted.place.len.0 } else { 0 };
                    fits
                });
            }
        }
    }
    let pieces: Vec<Vec<Held>> = wanted.iter().map(pieces).collect();
    let all = pieces.concat();
    let digests = match destination {
        Destination::Host => on_host(ranges, &all)?,
        #[cfg(feature = "cuda")]
        Destination::Device(gpu) => on_device(gpu, ranges, &all)?,
    };
    let mut rest = digests.as_slice();
    for (wanted, pieces) in wanted.iter().zip(&pieces) {
        let (leaves, others) = rest.split_at(pieces.len());
        rest = others;
        let found = leaf_root(file_len(wanted.tensor), leaves);
        if found != wanted.tensor.leaf_root {
            let (tensor, range) = (wanted.tensor.name.clone(), wanted.place.range as usize);
            return Err(LoadError::Verify { tensor, range, offset: 0, file: wanted.tensor.leaf_root, memory: found });
        }
    }
    Ok(())
}

fn wanted(manifest: &WeightsManifest) -> Result<Vec<Wanted<'_>>, LoadError> {
    let artifacts: BTreeMap<(&str, &str), &Artifact> = manifest
        .artifacts
        .iter()
        .map(|artifact| ((artifact.model.as_str(), artifact.tensor.as_str()), artifact))
        .collect();
    let mut wanted = Vec::new();
    for model in &manifest.models {
        for tensor in &model.tensors {
            if let Some(place) = tensor.place {
                wanted.push(Wanted { tensor, place, split: None });
            } else if let Some(artifact) = artifacts.get(&(model.id.as_str(), tensor.name.as_str())) {
                let unknown = || LoadError::Artifacts { layout: artifact.layout.clone() };
                if Layout::from_name(&artifact.layout) != Some(Layout::Split) {
                    return Err(unknown());
                }
                let shape = MatrixShape::of(tensor.kind, &tensor.dims).ok_or_else(unknown)?;
                wanted.push(Wanted { tensor, place: artifact.place, split: Some(shape) });
            }
        }
    }
    Ok(wanted)
}

/// The leaves of a tensor in the file's order. A manifest is read only if types and dimensions give a length.
fn pieces(wanted: &Wanted<'_>) -> Vec<Held> {
    let len = file_len(wanted.tensor).0;
    let piece = |start: u64| Held {
        range: wanted.place.range as usize,
        spot: Spot { offset: wanted.place.offset.0, split: wanted.split, start },
        len: (len - start).min(LEAF.0) as usize,
    };
    (0..len).step_by(LEAF.index()).map(piece).collect()
}

fn file_len(tensor: &Tensor) -> Bytes {
    tensor.kind.byte_len(tensor.dims.iter().product()).unwrap_or_default()
}

fn on_host(ranges: &[SharedRange], pieces: &[Held]) -> Result<Vec<Digest>, LoadError> {
    let digest = |bytes: &mut Vec<u8>, piece: &Held| match (&ranges[piece.range], piece.spot.split) {
        (SharedRange::Host(range), None) => {
            let bytes = &mut bytes[..piece.len];
            range.read_at(piece.spot.offset + piece.spot.start, bytes)?;
            Ok(Digest::of(bytes))
        }
        _ => Err(LoadError::Artifacts { layout: Layout::Split.name().to_owned() }),
    };
    pieces.par_iter().map_init(|| vec![0; LEAF.index()], digest).collect()
}

#[cfg(feature = "cuda")]
fn on_device(gpu: &ds4_gpu::cuda::Gpu, ranges: &[SharedRange], pieces: &[Held]) -> Result<Vec<Digest>, LoadError> {
    use ds4_gpu::cuda::{Access, Mapping, PhysAlloc};
    let map = |range: &SharedRange| {
        let memory = PhysAlloc::import(gpu, range.fd(), range.len())?;
        Ok(Mapping::alone(std::sync::Arc::new(memory), Access::ReadOnly)?)
    };
    let mappings = ranges.iter().map(map).collect::<Result<Vec<_>, LoadError>>()?;
    DeviceBacking::new(gpu)?.digests_of(&mappings.iter().collect::<Vec<_>>(), pieces)
}
