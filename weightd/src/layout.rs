//! The manifest of what was loaded.

use crate::backend::{described, needs};
use crate::command::Paths;
use crate::loading::Prepared;
use crate::store::Facts;
use ds4_gguf::{FileStamp, Model, SHARD_ALIGN, Shard};
use ds4_manifest::{Artifact, Broker, Digest, ModelFile, Owner, Place, Range, State, Tensor, Totals, WeightsManifest};
use ds4_resident::{ContentIdentity, Plan, PlannedArtifact, Resident, Role};
use ds4_wire::{PROTO_MAX, PROTO_MIN};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// The manifest for `resident`, which was loaded from `models` by `plan`.
pub(crate) fn manifest(
    facts: &Facts,
    owner: Owner,
    paths: &Paths,
    prepared: &Prepared,
    plan_flags: Vec<String>,
    resident: &Resident,
) -> WeightsManifest {
    let Prepared { destination, models, plan } = prepared;
    let ranges = plan.ranges.iter().map(|range| Range { id: range.id, len: range.len, allocated: range.allocated });
    let mut manifest = WeightsManifest {
        schema: WeightsManifest::SCHEMA.to_owned(),
        instance: facts.instance,
        generation: facts.generation,
        state: State::Ready,
        created_at: now(),
        owner,
        device: described(destination),
        broker: broker(paths),
        models: resident
            .identities
            .iter()
            .filter_map(|(role, identity)| entry(*role, identity, models, plan))
            .collect(),
        artifacts: artifacts(plan, resident),
        ranges: ranges.collect(),
        needs: needs(plan),
        totals: Totals::default(),
        plan_flags,
    };
    manifest.totals = manifest.count();
    manifest
}

/// The manifest of weights that an earlier owner loaded, as this owner publishes it.
pub(crate) fn republished(manifest: WeightsManifest, facts: &Facts, owner: Owner, paths: &Paths) -> WeightsManifest {
    WeightsManifest {
        instance: facts.instance,
        generation: facts.generation,
        state: State::Ready,
        created_at: now(),
        owner,
        broker: broker(paths),
        ..manifest
    }
}

fn broker(paths: &Paths) -> Broker {
    Broker { path: paths.socket.to_string_lossy().into_owned(), proto_min: PROTO_MIN, proto_max: PROTO_MAX }
}

/// Seconds since 1970 UTC.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn artifacts(plan: &Plan, resident: &Resident) -> Vec<Artifact> {
    let artifact = |(planned, leaf_root): (&PlannedArtifact, &Digest)| Artifact {
        layout: planned.layout.clone(),
        model: planned.role.name().to_owned(),
        tensor: planned.tensor.clone(),
        replaces_raw: planned.replaces_raw,
        leaf_root: *leaf_root,
        place: planned.place,
    };
    plan.artifacts.iter().zip(&resident.artifact_roots).map(artifact).collect()
}

/// What the manifest says of one model; `None` if it is not among `models`, of which the plan was made.
fn entry(role: Role, identity: &ContentIdentity, models: &[(Role, Model)], plan: &Plan) -> Option<ds4_manifest::Model> {
    let (_, model) = models.iter().find(|(there, _)| *there == role)?;
    let planned = plan.model(role)?;
    let places: BTreeMap<&str, Option<Place>> =
        planned.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.residency.place())).collect();
    let tensors = identity.tensors.iter().map(|tensor| Tensor {
        name: tensor.name.clone(),
        kind: tensor.kind,
        dims: tensor.dims.clone(),
        leaf_root: tensor.leaf_root,
        place: places.get(tensor.name.as_str()).copied().flatten(),
    });
    Some(ds4_manifest::Model {
        id: role.name().to_owned(),
        arch: model.architecture().to_owned(),
        files: model.shards().iter().map(file).collect(),
        logical_size: model.logical_size(),
        shard_align: SHARD_ALIGN,
        content_root: identity.root.into(),
        tensors: tensors.collect(),
    })
}

fn file(shard: &Shard) -> ModelFile {
    let FileStamp { device, inode, size, mtime_ns, ctime_ns } = *shard.stamp();
    // From the root where that can be told: readers have other working directories.
    let path = std::path::absolute(shard.path()).unwrap_or_else(|_| shard.path().to_owned());
    let path = path.to_string_lossy().into_owned();
    ModelFile { path, dev: device, ino: inode, size, mtime_ns, ctime_ns }
}
