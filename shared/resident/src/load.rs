//! From files to sealed ranges, with the content identity computed on the way.

use crate::disk::{Disk, ModelFiles};
use crate::error::LoadError;
use crate::identity::{ContentIdentity, TensorIdentity, leaf_root};
use crate::memory::MemorySource;
use crate::plan::{Plan, PlannedModel, PlannedRange, PlannedTensor, Residency};
use crate::planner::{PlanOptions, TensorTable, plan};
use crate::role::Role;
use crate::watch::Watch;
use crate::work::{Piece, Reading, pieces, run};
use ds4_gguf::{Model, TensorInfo};
use ds4_gpu::{HostRange, SealedRange};
use ds4_manifest::Digest;
use ds4_units::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// What shapes loading beside the plan.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Begins the names of the ranges that `/proc/PID/fd` shows; at most 200 bytes.
    pub name: String,
    /// What must stay available, see [`crate::HOST_TRIP_FLOOR`].
    pub trip_floor: Bytes,
}

/// What each model of a set is.
pub type Identities = Vec<(Role, ContentIdentity)>;

/// Weights in memory. Dropping it frees what no other process holds.
#[derive(Debug)]
pub struct Resident {
    /// The ranges, each at the index that is its id in the plan. Each is as long as the plan's `allocated`.
    pub ranges: Vec<SealedRange>,
    /// What each model is.
    pub identities: Identities,
    /// How loading went.
    pub report: LoadReport,
}

impl Resident {
    /// What the model with this role is.
    pub fn identity(&self, role: Role) -> Option<&ContentIdentity> {
        self.identities.iter().find(|(there, _)| *there == role).map(|(_, identity)| identity)
    }
}

/// How loading went.
#[derive(Clone, Copy, Debug)]
pub struct LoadReport {
    /// Bytes read from files.
    pub bytes: Bytes,
    /// How long it took.
    pub elapsed: Duration,
    /// Files that were read around the page cache.
    pub direct_files: usize,
    /// Files that were read through it.
    pub cached_files: usize,
}

impl LoadReport {
    /// Bytes per second.
    pub fn rate(&self) -> f64 {
        self.bytes.0 as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Loads what `plan` says from `models`, which must be those it was made of. Blocks until everything is in memory, with
/// threads of its own. All or nothing: an error frees what was loaded.
///
/// Beside the ranges it needs one buffer per thread ([`crate::staging_bytes`]). Memory is observed before each range.
/// The files are proved unchanged at the end; a file that shrinks or changes on the way is an error.
pub fn load(
    plan: &Plan,
    models: &[(Role, &Model)],
    options: &LoadOptions,
    memory: &dyn MemorySource,
    reading: &Reading<'_>,
) -> Result<Resident, LoadError> {
    let started = Instant::now();
    if let Some(first) = plan.artifacts.first() {
        return Err(LoadError::Artifacts { count: plan.artifacts.len(), layout: first.layout.clone() });
    }
    let mut files = Vec::with_capacity(plan.models.len());
    for planned in &plan.models {
        let model = fitting_model(planned, models)?;
        files.push(ModelFiles::open(model, |text| reading.progress.note(text)));
    }
    let disks = files.iter().map(|files| files as &dyn Disk).collect();
    let loader = Loader { plan, disks, reading, done: AtomicU64::new(0) };
    let (ranges, identities) = loader.load(options, memory)?;
    let direct_files = files.iter().map(ModelFiles::direct_files).sum();
    let all_files: usize = models.iter().map(|(_, model)| model.shards().len()).sum();
    let report = LoadReport {
        bytes: Bytes(loader.done.into_inner()),
        elapsed: started.elapsed(),
        direct_files,
        cached_files: all_files - direct_files,
    };
    Ok(Resident { ranges, identities, report })
}

/// Computes what a model is by reading all of it, without keeping it. Blocks, with threads of its own.
pub fn identify(model: &Model, reading: &Reading<'_>) -> Result<ContentIdentity, LoadError> {
    let table = TensorTable { role: Role::Base, tensors: model.tensors() };
    let plan = plan(&[table], &PlanOptions::default())?;
    let files = ModelFiles::open(model, |text| reading.progress.note(text));
    let loader = Loader { plan: &plan, disks: vec![&files], reading, done: AtomicU64::new(0) };
    let mut roots = BTreeMap::new();
    loader.read(0, None, |tensor| !matches!(tensor.residency, Residency::Shared { .. }), &mut roots)?;
    files.check_unchanged()?;
    Ok(identity(&plan.models[0], &roots))
}

/// Leaf roots of the tensors read so far, by name.
type Roots<'p> = BTreeMap<&'p str, Digest>;

/// What one load works with. The disks are those of the plan's models, in the same order.
pub(crate) struct Loader<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) disks: Vec<&'a dyn Disk>,
    pub(crate) reading: &'a Reading<'a>,
    pub(crate) done: AtomicU64,
}

impl<'a> Loader<'a> {
    /// Fills and seals all ranges, and reads the tensors that are in none for their identity.
    pub(crate) fn load(
        &self,
        options: &LoadOptions,
        memory: &dyn MemorySource,
    ) -> Result<(Vec<SealedRange>, Identities), LoadError> {
        let watch = Watch::start(memory, options.trip_floor)?;
        let mut roots: Vec<Roots<'_>> = vec![Roots::new(); self.plan.models.len()];
        let mut ranges = Vec::with_capacity(self.plan.ranges.len());
        for range in &self.plan.ranges {
            watch.check(range)?;
            ranges.push(self.fill(range, options, &mut roots)?);
        }
        let mut identities = Vec::with_capacity(self.plan.models.len());
        for (index, (model, roots)) in self.plan.models.iter().zip(&mut roots).enumerate() {
            self.read(index, None, |tensor| tensor.residency.place().is_none(), roots)?;
            self.disks[index].check_unchanged()?;
            identities.push((model.role, identity(model, roots)));
        }
        Ok((ranges, identities))
    }

    fn fill(
        &self,
        range: &PlannedRange,
        options: &LoadOptions,
        roots: &mut [Roots<'a>],
    ) -> Result<SealedRange, LoadError> {
        let name = format!("{}-{}-{:03}", options.name, range.role, range.id);
        let host = HostRange::create(&name, range.allocated)?;
        let is_here = |tensor: &PlannedTensor| match &tensor.residency {
            Residency::Raw { place } | Residency::RawAndArtifact { place, .. } => place.range == range.id,
            _ => false,
        };
        let in_range = |(_, model): &(usize, &PlannedModel)| model.role == range.role;
        for (index, _) in self.plan.models.iter().enumerate().filter(in_range) {
            self.read(index, Some(&host), is_here, &mut roots[index])?;
        }
        Ok(host.seal()?)
    }

    /// Reads the tensors of one model that `wanted` picks, into `range` if there is one, and adds their leaf roots.
    fn read(
        &self,
        model: usize,
        range: Option<&HostRange>,
        wanted: impl Fn(&PlannedTensor) -> bool,
        roots: &mut Roots<'a>,
    ) -> Result<(), LoadError> {
        let tensors: Vec<&PlannedTensor> = self.plan.models[model].tensors.iter().filter(|t| wanted(t)).collect();
        let place = |tensor: &PlannedTensor| range.and(tensor.residency.place());
        let all: Vec<Piece> = tensors.iter().flat_map(|tensor| pieces(tensor, place(tensor))).collect();
        let digests = run(self.disks[model], &all, range, self.reading, &self.done)?;
        let mut rest = digests.as_slice();
        for tensor in tensors {
            let (leaves, others) = rest.split_at(pieces(tensor, None).count());
            roots.insert(&tensor.name, leaf_root(tensor.len, leaves));
            rest = others;
        }
        Ok(())
    }
}

/// The identity of a model all of whose tensors have a root, or share their bytes with one that has.
fn identity(model: &PlannedModel, roots: &Roots<'_>) -> ContentIdentity {
    let tensors = model.tensors.iter().map(|tensor| {
        let read_as = match &tensor.residency {
            Residency::Shared { with, .. } => with,
            _ => &tensor.name,
        };
        let leaf_root = roots[read_as.as_str()];
        TensorIdentity { name: tensor.name.clone(), kind: tensor.kind, dims: tensor.dims.clone(), leaf_root }
    });
    ContentIdentity::of(tensors.collect())
}

/// The model that this part of a plan was made of.
fn fitting_model<'m>(planned: &PlannedModel, models: &[(Role, &'m Model)]) -> Result<&'m Model, LoadError> {
    let role = planned.role;
    let other = |what: String| LoadError::OtherModel { role, what };
    let found = models.iter().find(|(there, _)| *there == role);
    let (_, model) = found.ok_or_else(|| other("it is not given".to_owned()))?;
    if model.tensors().len() != planned.tensors.len() {
        return Err(other(format!("{} tensors planned, {} there", planned.tensors.len(), model.tensors().len())));
    }
    let differs = |tensor: &&PlannedTensor| model.tensor(&tensor.name).is_none_or(|info| !is_same(tensor, info));
    match planned.tensors.iter().find(differs) {
        Some(tensor) => Err(other(format!("tensor {:?} is not the one planned", tensor.name))),
        None => Ok(model),
    }
}

fn is_same(planned: &PlannedTensor, info: &TensorInfo) -> bool {
    let place = (planned.shard, planned.offset, planned.len);
    planned.kind == info.kind && planned.dims == info.dims && place == (info.shard, info.offset, info.len)
}

#[cfg(test)]
mod faults;
