//! From files to final ranges, with the content identity computed on the way or from what has arrived.

mod loader;

#[cfg(feature = "cuda")]
use crate::backing::DeviceBacking;
use crate::backing::HostBacking;
use crate::destination::Destination;
use crate::disk::{Disk, ModelFiles};
use crate::error::LoadError;
use crate::identity::ContentIdentity;
use crate::memory::MemorySource;
use crate::plan::{Plan, PlannedModel, PlannedTensor};
use crate::planner::{PlanOptions, TensorTable, plan};
use crate::role::Role;
use crate::verify::Verify;
use crate::work::Reading;
use ds4_gguf::{Model, TensorInfo};
use ds4_gpu::SharedRange;
use ds4_manifest::Digest;
use ds4_units::Bytes;
use loader::Loaded;
pub(crate) use loader::{Loader, Read};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// What shapes loading beside the plan.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where weights go.
    pub destination: Destination,
    /// Begins the names of the ranges that `/proc/PID/fd` shows; at most 200 bytes.
    pub name: String,
    /// What must stay available, see [`crate::HOST_TRIP_FLOOR`].
    pub trip_floor: Bytes,
    /// How much of what was loaded is compared with the files once more.
    pub verify: Verify,
}

/// What each model of a set is.
pub type Identities = Vec<(Role, ContentIdentity)>;

/// Weights in memory. Dropping it frees what no other process holds.
#[derive(Debug)]
pub struct Resident {
    /// The ranges, each at the index that is its id in the plan. Each is as long as the plan's `allocated`.
    pub ranges: Vec<SharedRange>,
    /// What each model is.
    pub identities: Identities,
    /// Roots over the leaves of the artifacts' own bytes, in the order of the plan's artifacts.
    pub artifact_roots: Vec<Digest>,
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
    /// A load that had nothing to read, because everything was in memory.
    pub fn nothing_read(elapsed: Duration) -> LoadReport {
        LoadReport { bytes: Bytes::ZERO, elapsed, direct_files: 0, cached_files: 0 }
    }

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
    let mut files = Vec::with_capacity(plan.models.len());
    for planned in &plan.models {
        let model = fitting_model(planned, models)?;
        files.push(ModelFiles::open(model, |text| reading.progress.note(text)));
    }
    let disks = files.iter().map(|files| files as &dyn Disk).collect();
    let loader = Loader { plan, disks, reading, done: AtomicU64::new(0) };
    let loaded = match &options.destination {
        Destination::Host => loader.load(&HostBacking, options, memory)?,
        #[cfg(feature = "cuda")]
        Destination::Device(gpu) => loader.load(&DeviceBacking::new(gpu)?, options, memory)?,
    };
    let direct_files = files.iter().map(ModelFiles::direct_files).sum();
    let all_files: usize = models.iter().map(|(_, model)| model.shards().len()).sum();
    let report = LoadReport {
        bytes: loaded.bytes,
        elapsed: started.elapsed(),
        direct_files,
        cached_files: all_files - direct_files,
    };
    let Loaded { ranges, identities, artifact_roots, .. } = loaded;
    Ok(Resident { ranges, identities, artifact_roots, report })
}

/// Computes what a model is by reading all of it, without keeping it. Blocks, with threads of its own.
pub fn identify(model: &Model, reading: &Reading<'_>) -> Result<ContentIdentity, LoadError> {
    let table = TensorTable { role: Role::Base, tensors: model.tensors() };
    let plan = plan(&[table], &PlanOptions::default())?;
    let files = ModelFiles::open(model, |text| reading.progress.note(text));
    let loader = Loader { plan: &plan, disks: vec![&files], reading, done: AtomicU64::new(0) };
    let identities = loader.identify()?;
    files.check_unchanged()?;
    identities.into_iter().next().map(|(_, identity)| identity).ok_or(LoadError::Cancelled)
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
