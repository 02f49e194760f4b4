//! A plan as data: where every tensor of every model lies, and what becomes of each byte.

use crate::role::Role;
use ds4_manifest::Place;
use ds4_units::{Bytes, FileOffset, TensorType};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Where everything will lie. Equal inputs give equal plans, on every machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Always [`Plan::SCHEMA`].
    pub schema: String,
    /// Ranges grow to about this size.
    pub span: Bytes,
    /// Ranges take whole multiples of this.
    pub granularity: Bytes,
    /// The models, in order of role.
    pub models: Vec<PlannedModel>,
    /// Tensors in other layouts.
    pub artifacts: Vec<PlannedArtifact>,
    /// The ranges, each at the index that is its id.
    pub ranges: Vec<PlannedRange>,
    /// Sums over the tables above.
    pub totals: Totals,
}

/// One model of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedModel {
    /// What it is for.
    pub role: Role,
    /// All its tensors, in order of shard and offset.
    pub tensors: Vec<PlannedTensor>,
}

/// One tensor of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedTensor {
    /// Its name.
    pub name: String,
    /// How its elements are stored in the file.
    pub kind: TensorType,
    /// Dimensions, the contiguous one first.
    pub dims: Vec<u64>,
    /// The shard that holds it.
    pub shard: usize,
    /// Where it starts in that shard.
    pub offset: FileOffset,
    /// Bytes in the file.
    pub len: Bytes,
    /// What becomes of those bytes.
    pub residency: Residency,
}

/// What becomes of a tensor's bytes. Every byte of every tensor has exactly one of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Residency {
    /// Resident as they are in the file.
    Raw {
        /// Where.
        place: Place,
    },
    /// The same bytes of the file as another tensor, and resident once for both.
    Shared {
        /// Where.
        place: Place,
        /// The tensor that is counted as raw.
        with: String,
    },
    /// Resident in another layout only.
    Replaced {
        /// Index into [`Plan::artifacts`].
        artifact: usize,
    },
    /// Resident as they are in the file and in another layout.
    RawAndArtifact {
        /// Where the file's bytes lie.
        place: Place,
        /// Index into [`Plan::artifacts`].
        artifact: usize,
    },
    /// Not resident.
    Skipped {
        /// Why nothing needs it.
        reason: String,
    },
}

impl Residency {
    /// Where the file's bytes lie, if they are resident.
    pub fn place(&self) -> Option<Place> {
        match self {
            Residency::Raw { place } | Residency::Shared { place, .. } | Residency::RawAndArtifact { place, .. } => {
                Some(*place)
            }
            Residency::Replaced { .. } | Residency::Skipped { .. } => None,
        }
    }
}

/// One tensor in another layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedArtifact {
    /// The model of the source tensor.
    pub role: Role,
    /// The source tensor.
    pub tensor: String,
    /// Name of the layout.
    pub layout: String,
    /// Whether the file's bytes are not resident because of it.
    pub replaces_raw: bool,
    /// The source tensor of the artifact that has the same bytes in the same place, if this one is not the first.
    pub shared_with: Option<String>,
    /// Where it lies.
    pub place: Place,
}

/// How tensors lie in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Each at a multiple of 2 MiB.
    PerTensor,
    /// Close together, at multiples of 256 bytes.
    Packed,
}

/// One range of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedRange {
    /// Its number, from 0.
    pub id: u32,
    /// The model whose tensors it holds.
    pub role: Role,
    /// How they lie in it.
    pub placement: Placement,
    /// Bytes up to the end of its last tensor.
    pub len: Bytes,
    /// Bytes it takes: `len`, rounded up to the granularity. The length of the shareable range.
    pub allocated: Bytes,
}

/// Sums over a plan. `raw + shared + replaced + skipped` are the bytes of all tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Bytes resident as they are in the file.
    pub raw: Bytes,
    /// Bytes of tensors that share another's.
    pub shared: Bytes,
    /// Bytes of the file that are resident in another layout only.
    pub replaced: Bytes,
    /// Bytes that are not resident.
    pub skipped: Bytes,
    /// Bytes of all artifacts.
    pub artifacts: Bytes,
    /// Bytes that all ranges take.
    pub allocated: Bytes,
    /// Number of tensors.
    pub tensors: u64,
    /// Number of ranges.
    pub ranges: u64,
}

impl Plan {
    /// The schema's name and version.
    pub const SCHEMA: &str = "ds4.plan/1";

    /// The model with this role.
    pub fn model(&self, role: Role) -> Option<&PlannedModel> {
        self.models.iter().find(|model| model.role == role)
    }

    /// Bytes that loading reads from the files: every tensor's, those that are shared once.
    pub fn bytes_to_read(&self) -> Bytes {
        sum([self.totals.raw, self.totals.replaced, self.totals.skipped].into_iter())
    }

    /// The sums over the tables as they are.
    pub fn count(&self) -> Totals {
        let mut totals = Totals {
            artifacts: sum(self.artifacts.iter().filter(|a| a.shared_with.is_none()).map(|a| a.place.len)),
            allocated: sum(self.ranges.iter().map(|range| range.allocated)),
            ranges: self.ranges.len() as u64,
            ..Totals::default()
        };
        let mut seen = BTreeSet::new();
        for tensor in self.models.iter().flat_map(|model| &model.tensors) {
            let class = match &tensor.residency {
                Residency::Replaced { artifact } if self.artifacts[*artifact].shared_with.is_some() => {
                    &mut totals.shared
                }
                Residency::Replaced { .. } => &mut totals.replaced,
                Residency::Skipped { .. } => &mut totals.skipped,
                Residency::Raw { place }
                | Residency::Shared { place, .. }
                | Residency::RawAndArtifact { place, .. } => {
                    if seen.insert(*place) {
                        &mut totals.raw
                    } else {
                        &mut totals.shared
                    }
                }
            };
            *class = sum([*class, tensor.len].into_iter());
            totals.tensors += 1;
        }
        totals
    }
}

/// The sum, held at the largest value: no machine has room for a plan that gets there.
fn sum(sizes: impl Iterator<Item = Bytes>) -> Bytes {
    Bytes(sizes.fold(0, |total: u64, size| total.saturating_add(size.0)))
}
