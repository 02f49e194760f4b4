//! Loading into one kind of memory.

use super::{Identities, LoadOptions};
use crate::backing::{Backing, Held, HostBacking, Lane, MatrixShape, Spot};
use crate::disk::Disk;
use crate::error::LoadError;
use crate::identity::{ContentIdentity, LEAF, TensorIdentity, leaf_root};
use crate::memory::MemorySource;
use crate::plan::{Plan, PlannedModel, PlannedRange, PlannedTensor, Residency};
use crate::verify::{Arrived, verify};
use crate::watch::Watch;
use crate::work::{Piece, Reading, pieces, run};
use ds4_gpu::SharedRange;
use ds4_manifest::{Digest, Place};
use ds4_units::{Bytes, Layout};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

/// What one load works with. The disks are those of the plan's models, in the same order.
pub(crate) struct Loader<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) disks: Vec<&'a dyn Disk>,
    pub(crate) reading: &'a Reading<'a>,
    pub(crate) done: AtomicU64,
}

/// What came of it.
pub(crate) struct Loaded {
    pub(crate) ranges: Vec<SharedRange>,
    pub(crate) identities: Identities,
    pub(crate) artifact_roots: Vec<Digest>,
    /// Bytes read.
    pub(crate) bytes: Bytes,
}

/// A piece that was read: of which tensor of which model, and what is known of its digest.
pub(crate) struct Read<'p> {
    pub(crate) model: usize,
    pub(crate) tensor: &'p PlannedTensor,
    pub(crate) piece: Piece,
    /// The range it went to.
    pub(crate) range: Option<usize>,
    pub(crate) digest: Option<Digest>,
}

impl<'a> Loader<'a> {
    /// Fills all ranges, reads the tensors that are in none for their identity, and makes the ranges final.
    pub(crate) fn load<B: Backing>(
        &self,
        backing: &B,
        options: &LoadOptions,
        memory: &dyn MemorySource,
    ) -> Result<Loaded, LoadError> {
        let watch = Watch::start(memory, options.trip_floor)?;
        let mut lanes = self.lanes(backing)?;
        let mut reads = Vec::new();
        let mut ranges = Vec::with_capacity(self.plan.ranges.len());
        for planned in &self.plan.ranges {
            watch.check(planned)?;
            let name = format!("{}-{}-{:03}", options.name, planned.role, planned.id);
            let range = backing.create(&name, planned.allocated)?;
            self.read(Some((planned, &range)), &mut lanes, &mut reads)?;
            ranges.push(range);
        }
        self.read(None, &mut lanes, &mut reads)?;
        lanes.iter_mut().try_for_each(Lane::finish)?;
        drop(lanes);
        self.reading.progress.verifying();
        let digests = self.digests(backing, &ranges, &reads)?;
        let arrived = Arrived { reads: &reads, digests: &digests, ranges: &ranges };
        verify(backing, self, &arrived, options.verify)?;
        let artifact_roots = self.artifact_roots(backing, &ranges)?;
        self.disks.iter().try_for_each(|disk| disk.check_unchanged())?;
        let identities = self.identities(&reads, &digests);
        let ranges = ranges.into_iter().map(|range| backing.share(range)).collect::<Result<_, LoadError>>()?;
        let bytes = Bytes(self.done.load(std::sync::atomic::Ordering::Relaxed));
        Ok(Loaded { ranges, identities, artifact_roots, bytes })
    }

    /// Reads everything, keeps nothing.
    pub(crate) fn identify(&self) -> Result<Identities, LoadError> {
        let mut lanes = self.lanes(&HostBacking)?;
        let mut reads = Vec::new();
        for (model, planned) in self.plan.models.iter().enumerate() {
            let tensors = planned.tensors.iter().filter(|tensor| self.is_read(tensor));
            let unplaced: Vec<_> = tensors.map(|tensor| (tensor, None)).collect();
            self.read_tensors(model, &unplaced, None, &mut lanes, &mut reads)?;
        }
        let digests = self.digests(&HostBacking, &[], &reads)?;
        Ok(self.identities(&reads, &digests))
    }

    fn lanes<B: Backing>(&self, backing: &B) -> Result<Vec<B::Lane>, LoadError> {
        let most = self.plan.bytes_to_read().0.div_ceil(LEAF.0).max(1);
        let threads = self.reading.threads.clamp(1, usize::try_from(most).unwrap_or(usize::MAX));
        (0..threads).map(|_| backing.lane()).collect()
    }

    /// Reads the tensors of a range into it, or those that are in none.
    fn read<L: Lane<Range: Sync>>(
        &self,
        range: Option<(&PlannedRange, &L::Range)>,
        lanes: &mut [L],
        reads: &mut Vec<Read<'a>>,
    ) -> Result<(), LoadError> {
        for (model, planned) in self.plan.models.iter().enumerate() {
            let mut wanted = Vec::new();
            for tensor in planned.tensors.iter().filter(|tensor| self.is_read(tensor)) {
                match (self.spot(tensor)?, range) {
                    (Some((place, spot)), Some((range, _))) if place.range == range.id => {
                        wanted.push((tensor, Some(spot)));
                    }
                    (None, None) => wanted.push((tensor, None)),
                    _ => {}
                }
            }
            self.read_tensors(model, &wanted, range, lanes, reads)?;
        }
        Ok(())
    }

    fn read_tensors<L: Lane<Range: Sync>>(
        &self,
        model: usize,
        wanted: &[(&'a PlannedTensor, Option<Spot>)],
        range: Option<(&PlannedRange, &L::Range)>,
        lanes: &mut [L],
        reads: &mut Vec<Read<'a>>,
    ) -> Result<(), LoadError> {
        let of_tensor = |&(tensor, spot): &(&'a PlannedTensor, Option<Spot>)| {
            pieces(tensor, spot).map(move |piece| (tensor, piece))
        };
        let all: Vec<(&PlannedTensor, Piece)> = wanted.iter().flat_map(of_tensor).collect();
        let only_pieces: Vec<Piece> = all.iter().map(|(_, piece)| *piece).collect();
        let into = range.map(|(_, range)| range);
        let digests = run(self.disks[model], &only_pieces, into, lanes, self.reading, &self.done)?;
        let range = range.map(|(planned, _)| planned.id as usize);
        let read = |((tensor, piece), digest)| Read { model, tensor, piece, range, digest };
        reads.extend(all.into_iter().zip(digests).map(read));
        Ok(())
    }

    /// Whether a tensor is read at all: of those that share their bytes only the first is.
    fn is_read(&self, tensor: &PlannedTensor) -> bool {
        self.read_as(tensor) == tensor.name
    }

    /// The tensor that is read for this one.
    fn read_as<'t>(&'t self, tensor: &'t PlannedTensor) -> &'t str {
        match &tensor.residency {
            Residency::Shared { with, .. } => with,
            Residency::Replaced { artifact } => {
                self.plan.artifacts[*artifact].shared_with.as_deref().unwrap_or(&tensor.name)
            }
            _ => &tensor.name,
        }
    }

    /// Where a tensor goes, if it is resident.
    fn spot(&self, tensor: &PlannedTensor) -> Result<Option<(Place, Spot)>, LoadError> {
        let as_it_is = |place: Place| (place, Spot { offset: place.offset.0, split: None, start: 0 });
        match &tensor.residency {
            Residency::Raw { place } | Residency::Shared { place, .. } => Ok(Some(as_it_is(*place))),
            Residency::Skipped { .. } => Ok(None),
            Residency::RawAndArtifact { artifact, .. } => {
                Err(LoadError::Artifacts { layout: self.plan.artifacts[*artifact].layout.clone() })
            }
            Residency::Replaced { artifact } => {
                let artifact = &self.plan.artifacts[*artifact];
                let unknown = || LoadError::Artifacts { layout: artifact.layout.clone() };
                let shape = MatrixShape::of(tensor.kind, &tensor.dims).ok_or_else(unknown)?;
                let (place, split) = match Layout::from_name(&artifact.layout) {
                    Some(Layout::Split) => (artifact.place, Some(shape)),
                    _ => return Err(unknown()),
                };
                Ok(Some((place, Spot { offset: place.offset.0, split, start: 0 })))
            }
        }
    }

    /// The digest of every read, those that are missing from what has arrived.
    fn digests<B: Backing>(
        &self,
        backing: &B,
        ranges: &[B::Range],
        reads: &[Read<'_>],
    ) -> Result<Vec<Digest>, LoadError> {
        let missing: Vec<Held> = reads.iter().filter(|read| read.digest.is_none()).filter_map(Read::held).collect();
        let mut found = backing.digests(ranges, &missing)?.into_iter();
        let digest = |read: &Read<'_>| read.digest.or_else(|| found.next()).ok_or(LoadError::Cancelled);
        reads.iter().map(digest).collect()
    }

    fn artifact_roots<B: Backing>(&self, backing: &B, ranges: &[B::Range]) -> Result<Vec<Digest>, LoadError> {
        let leaves_of = |place: Place| {
            (0..place.len.0).step_by(LEAF.index()).map(move |start| Held {
                range: place.range as usize,
                spot: Spot { offset: place.offset.0, split: None, start },
                len: (place.len.0 - start).min(LEAF.0) as usize,
            })
        };
        let firsts: BTreeMap<Place, usize> =
            self.plan.artifacts.iter().map(|artifact| artifact.place).zip(0..).collect();
        let leaves: Vec<Held> = firsts.keys().flat_map(|place| leaves_of(*place)).collect();
        let digests = backing.digests(ranges, &leaves)?;
        let mut rest = digests.as_slice();
        let mut roots = BTreeMap::new();
        for place in firsts.keys() {
            let (leaves, others) = rest.split_at(leaves_of(*place).count());
            roots.insert(*place, leaf_root(place.len, leaves));
            rest = others;
        }
        Ok(self.plan.artifacts.iter().map(|artifact| roots[&artifact.place]).collect())
    }

    /// What every model is, from the digests of all reads.
    fn identities(&self, reads: &[Read<'_>], digests: &[Digest]) -> Identities {
        let mut leaves: Vec<BTreeMap<&str, Vec<Digest>>> = vec![BTreeMap::new(); self.plan.models.len()];
        for (read, digest) in reads.iter().zip(digests) {
            leaves[read.model].entry(&read.tensor.name).or_default().push(*digest);
        }
        let identity = |(model, leaves): (&PlannedModel, BTreeMap<&str, Vec<Digest>>)| {
            let tensors = model.tensors.iter().map(|tensor| {
                let leaves = leaves.get(self.read_as(tensor)).map_or(&[][..], Vec::as_slice);
                let leaf_root = leaf_root(tensor.len, leaves);
                TensorIdentity { name: tensor.name.clone(), kind: tensor.kind, dims: tensor.dims.clone(), leaf_root }
            });
            (model.role, ContentIdentity::of(tensors.collect()))
        };
        self.plan.models.iter().zip(leaves).map(identity).collect()
    }
}

impl Read<'_> {
    /// Where it is in memory, if it is.
    pub(crate) fn held(&self) -> Option<Held> {
        Some(Held { range: self.range?, spot: self.piece.spot?, len: self.piece.len })
    }
}
