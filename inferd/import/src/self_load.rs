//! Loading in this process, for a worker without an owner.

use crate::mapped::{Placed, weights};
use crate::{ComputeDevice, MapError, Weights};
use ds4_gguf::Model;
use ds4_resident::{
    ContentRoot, LoadError, LoadOptions, LoadReport, MemoryError, Plan, PlanError, PlannedTensor, Preflight,
    PreflightRefused, Progress, Reading, Residency, Role, TensorTable, Verify, load, plan,
};
use ds4_units::{Bytes, Layout};
use std::sync::atomic::AtomicBool;
use thiserror::Error;

/// Ranges grow to about this size.
const SPAN: Bytes = Bytes::gib(1);

/// How to load.
pub struct SelfLoadOptions<'a> {
    /// Where this process computes, and so where the weights go.
    pub device: ComputeDevice,
    /// Memory that must stay free; `None` for what an owner would leave.
    pub reserve: Option<Bytes>,
    /// Told how it goes on.
    pub progress: &'a dyn Progress,
    /// Set to true to stop.
    pub cancel: &'a AtomicBool,
}

/// Weights of this process's own.
pub struct SelfLoaded {
    /// All tensors, mapped read-only.
    pub weights: Weights,
    /// What they are.
    pub identity: ContentRoot,
    /// How loading went.
    pub report: LoadReport,
    /// Memory behind them, with what lies between tensors.
    pub memory: Bytes,
}

/// Why a model cannot be loaded.
#[derive(Debug, Error)]
pub enum SelfLoadError {
    /// Its tensors cannot be laid out.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Memory cannot be observed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Memory does not suffice.
    #[error(transparent)]
    Preflight(#[from] PreflightRefused),
    /// Loading failed.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// What was loaded cannot be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// A tensor is in no range.
    #[error("tensor {tensor:?} is in none of the loaded ranges")]
    Unresolved {
        /// The tensor.
        tensor: String,
    },
}

/// Reads a model into memory of this process, by the same plan and code as an owner. Blocks until everything is there.
pub fn self_load(model: &Model, options: &SelfLoadOptions<'_>) -> Result<SelfLoaded, SelfLoadError> {
    let destination = options.device.destination();
    let plan = planned(&[(Role::Base, model)], &options.device, options.reserve)?;
    let reading = Reading { threads: destination.threads(), progress: options.progress, cancel: options.cancel };
    let load_options = LoadOptions {
        name: "ds4-self".to_owned(),
        trip_floor: destination.trip_floor(),
        verify: Verify::Sample,
        destination: destination.clone(),
    };
    let memory = destination.memory();
    let mut resident = load(&plan, &[(Role::Base, model)], &load_options, &*memory, &reading)?;
    let identity = resident.identities.swap_remove(0).1.root;
    let behind = Bytes(plan.ranges.iter().map(|range| range.allocated.0).sum());
    let ranges = resident.ranges.into_iter().map(|range| options.device.map_own(range));
    let ranges = ranges.collect::<Result<Vec<_>, MapError>>()?;
    let tensors = plan.models.iter().flat_map(|model| &model.tensors).map(|tensor| placed(&plan, tensor));
    let weights = weights(&ranges, tensors).map_err(|tensor| SelfLoadError::Unresolved { tensor })?;
    Ok(SelfLoaded { weights, identity, report: resident.report, memory: behind })
}

/// Whether a model, and the draft block beside it, could be loaded into memory of this process now. Reads headers only
/// and takes nothing, so what others take before it loads is not foreseen.
pub fn preflight(model: &Model, draft: Option<&Model>, device: &ComputeDevice) -> Result<(), SelfLoadError> {
    let models = std::iter::once((Role::Base, model)).chain(draft.map(|draft| (Role::Mtp, draft)));
    planned(&models.collect::<Vec<_>>(), device, None).map(drop)
}

/// Where everything goes, if there is room for it beside `reserve`.
fn planned(models: &[(Role, &Model)], device: &ComputeDevice, reserve: Option<Bytes>) -> Result<Plan, SelfLoadError> {
    let destination = device.destination();
    let tables = models.iter().map(|&(role, model)| TensorTable { role, tensors: model.tensors() });
    let tables: Vec<_> = tables.collect();
    let plan = plan(&tables, &destination.plan_options(SPAN, &tables))?;
    let reserve = reserve.unwrap_or(destination.default_reserve());
    let checks = destination.preflight(&plan, reserve, destination.default_worker_min())?;
    checks.iter().try_for_each(Preflight::check)?;
    Ok(plan)
}

/// Where the plan has a tensor.
fn placed<'p>(plan: &'p Plan, tensor: &'p PlannedTensor) -> Placed<'p> {
    let (layout, place) = match &tensor.residency {
        Residency::Replaced { artifact } => {
            let artifact = &plan.artifacts[*artifact];
            // The loader has filled it, so the layout is one of ours.
            (Layout::from_name(&artifact.layout).unwrap_or(Layout::Gguf), Some(artifact.place))
        }
        residency => (Layout::Gguf, residency.place()),
    };
    Placed { name: &tensor.name, kind: tensor.kind, dims: &tensor.dims, layout, place }
}
