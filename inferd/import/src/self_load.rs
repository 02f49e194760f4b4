//! Loading in this process, for a worker without an owner.

use crate::Weights;
use crate::mapped::{Placed, weights};
use ds4_gguf::Model;
use ds4_gpu::{Memory, RangeError};
use ds4_resident::{
    ContentRoot, HOST_TRIP_FLOOR, LoadError, LoadOptions, LoadReport, MemoryError, PlanError, PlanOptions,
    PreflightRefused, Progress, Reading, Role, SystemMemory, TensorTable, load, plan, preflight, staging_bytes,
};
use ds4_units::{Bytes, Layout};
use std::sync::atomic::AtomicBool;
use thiserror::Error;

/// How to load.
pub struct SelfLoadOptions<'a> {
    /// Memory that must stay free.
    pub reserve: Bytes,
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
    Map(#[from] RangeError),
    /// A tensor is in no range.
    #[error("tensor {tensor:?} is in none of the loaded ranges")]
    Unresolved {
        /// The tensor.
        tensor: String,
    },
}

/// Reads a model into memory of this process, by the same plan and code as an owner. Blocks until everything is there.
pub fn self_load(model: &Model, options: &SelfLoadOptions<'_>) -> Result<SelfLoaded, SelfLoadError> {
    let table = TensorTable { role: Role::Base, tensors: model.tensors() };
    let plan = plan(&[table], &PlanOptions::default())?;
    let memory = SystemMemory::new();
    let threads = Reading::default_threads();
    preflight(&plan, staging_bytes(threads), options.reserve, &memory)?.check()?;
    let reading = Reading { threads, progress: options.progress, cancel: options.cancel };
    let load_options = LoadOptions { name: "ds4-self".to_owned(), trip_floor: HOST_TRIP_FLOOR };
    let mut resident = load(&plan, &[(Role::Base, model)], &load_options, &memory, &reading)?;
    let identity = resident.identities.swap_remove(0).1.root;
    let ranges = resident.ranges.into_iter().map(|range| Ok(Memory::host(range.map()?)));
    let ranges = ranges.collect::<Result<Vec<_>, RangeError>>()?;
    let tensors = plan.models.iter().flat_map(|model| &model.tensors).map(|tensor| Placed {
        name: &tensor.name,
        kind: tensor.kind,
        dims: &tensor.dims,
        layout: Layout::Gguf,
        place: tensor.residency.place(),
    });
    let weights = weights(&ranges, tensors).map_err(|tensor| SelfLoadError::Unresolved { tensor })?;
    Ok(SelfLoaded { weights, identity, report: resident.report })
}
