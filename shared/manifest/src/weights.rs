//! The run-time weights manifest as data. Field order is the order in the file.

use crate::{Digest, InstanceId};
use ds4_units::{Bytes, TensorType};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What an owner holds and how to reach it.
///
/// A value that came from [`WeightsManifest::parse`] is consistent: places lie inside their ranges and do not overlap,
/// sizes follow from type and dimensions, totals add up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightsManifest {
    /// Always [`WeightsManifest::SCHEMA`].
    pub schema: String,
    /// The owner process.
    pub instance: InstanceId,
    /// Counts what was published at this path, from 1.
    pub generation: u64,
    /// Whether new workers may attach.
    pub state: State,
    /// When the weights became ready, in seconds since 1970 UTC.
    pub created_at: u64,
    /// The owner process as the kernel knows it.
    pub owner: Owner,
    /// Where the ranges live.
    pub device: Device,
    /// How to ask for the ranges.
    pub broker: Broker,
    /// The models held, each with its tensor table.
    pub models: Vec<Model>,
    /// Tensors stored in another layout than the file's.
    pub artifacts: Vec<Artifact>,
    /// The shareable ranges, in order of their id; ids count from 0.
    pub ranges: Vec<Range>,
    /// What a reader must be able to do, in order of the capability's name.
    pub needs: Vec<Need>,
    /// Sums over the tables above.
    pub totals: Totals,
    /// The flags that shaped the plan, as typed.
    pub plan_flags: Vec<String>,
}

/// Whether an owner takes new workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Workers may attach.
    Ready,
    /// The owner is shutting down.
    Draining,
}

/// An owner process, named so that a reused process id is not taken for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// Process id, in the owner's process namespace.
    pub pid: u32,
    /// Start time in clock ticks after boot (field 22 of `/proc/PID/stat`).
    pub start_time_ticks: u64,
    /// The kernel's boot id.
    pub boot_id: String,
    /// The user it runs as.
    pub uid: u32,
    /// Version of the owner's program.
    pub exe_version: String,
}

/// Where ranges live.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// `memfd` or `vmm`.
    pub backend: String,
    /// The device's name for people.
    pub name: String,
    /// The GPU's UUID; absent for host memory.
    pub uuid: Option<String>,
    /// Allocation granularity of ranges.
    pub granularity: Bytes,
}

/// The owner's socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Broker {
    /// Absolute path of the socket.
    pub path: String,
    /// Lowest protocol version it speaks.
    pub proto_min: u32,
    /// Highest protocol version it speaks.
    pub proto_max: u32,
}

/// One model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Its role, for instance `base` or `mtp`.
    pub id: String,
    /// The architecture its metadata names.
    pub arch: String,
    /// Its shards in order.
    pub files: Vec<ModelFile>,
    /// Size of all shards laid end to end, each at a multiple of `shard_align`.
    pub logical_size: Bytes,
    /// Alignment of shards in the logical model.
    pub shard_align: Bytes,
    /// Root of the content identity tree: names, types, dimensions and bytes of all tensors.
    pub content_root: Digest,
    /// The tensor table, in name order.
    pub tensors: Vec<Tensor>,
}

/// One file of a model as it was when it was loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// Its path, for people.
    pub path: String,
    /// Device number of its file system.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Its size.
    pub size: Bytes,
    /// Last modification, in nanoseconds since 1970 UTC.
    pub mtime_ns: i64,
    /// Last status change, in nanoseconds since 1970 UTC.
    pub ctime_ns: i64,
}

/// One tensor of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// Its name in the file.
    pub name: String,
    /// How its elements are stored in the file.
    pub kind: TensorType,
    /// Dimensions in file order, the contiguous one first.
    pub dims: Vec<u64>,
    /// Root over the 2 MiB leaves of its file bytes.
    pub leaf_root: Digest,
    /// Where its file bytes lie; absent when an artifact replaces them.
    pub place: Option<Place>,
}

/// A piece of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The range's id.
    pub range: u32,
    /// Where in the range it starts, a multiple of 256.
    pub offset: Bytes,
    /// Its length.
    pub len: Bytes,
}

/// A tensor in another layout than the file's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    /// The layout; a reader needs the capability of this name.
    pub layout: String,
    /// Id of the model of the source tensor.
    pub model: String,
    /// Name of the source tensor.
    pub tensor: String,
    /// Whether the source tensor's file bytes are not resident because of it.
    pub replaces_raw: bool,
    /// Root over the 2 MiB leaves of the artifact's own bytes.
    pub leaf_root: Digest,
    /// Where it lies.
    pub place: Place,
}

/// One shareable piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// Its number, equal to its position in the list.
    pub id: u32,
    /// Bytes in use.
    pub len: Bytes,
    /// Bytes it takes from the device.
    pub allocated: Bytes,
}

/// A capability that a reader must have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// The capability's name.
    pub capability: String,
    /// The owner flag that would avoid the need.
    pub avoid_with: String,
}

/// Sums, so that a reader can tell a complete table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    /// Resident file bytes of all tensors; bytes that two tensors share count once.
    pub raw: Bytes,
    /// Bytes of all artifacts; bytes that two share count once.
    pub artifacts: Bytes,
    /// Bytes taken from the device by all ranges.
    pub allocated: Bytes,
    /// Number of tensors in all models.
    pub tensors: u64,
    /// Number of ranges.
    pub ranges: u64,
}

impl WeightsManifest {
    /// The schema's name and version.
    pub const SCHEMA: &str = "ds4.weights/2";

    /// The model with this id.
    pub fn model(&self, id: &str) -> Option<&Model> {
        self.models.iter().find(|model| model.id == id)
    }

    /// The sums over the tables as they are.
    pub fn count(&self) -> Totals {
        let tensors = self.models.iter().flat_map(|model| &model.tensors);
        let raw: BTreeSet<Place> = tensors.clone().filter_map(|tensor| tensor.place).collect();
        let artifacts: BTreeSet<Place> = self.artifacts.iter().map(|artifact| artifact.place).collect();
        Totals {
            raw: sum(raw.iter().map(|place| place.len)),
            artifacts: sum(artifacts.iter().map(|place| place.len)),
            allocated: sum(self.ranges.iter().map(|range| range.allocated)),
            tensors: tensors.count() as u64,
            ranges: self.ranges.len() as u64,
        }
    }
}

/// The sum, held at the largest value: a table that overflows 64 bits then fails the comparison with its totals.
fn sum(sizes: impl Iterator<Item = Bytes>) -> Bytes {
    Bytes(sizes.fold(0u64, |total, len| total.saturating_add(len.0)))
}
