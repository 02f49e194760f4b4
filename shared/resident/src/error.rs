//! Why loading stops.

use crate::memory::MemoryError;
use crate::planner::PlanError;
use crate::role::Role;
use ds4_gguf::GgufError;
use ds4_gpu::RangeError;
use ds4_units::Bytes;
use thiserror::Error;

/// Why loading stopped. Everything that was loaded is freed by then.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A file cannot be read, or is not what it was.
    #[error(transparent)]
    File(#[from] GgufError),
    /// A range cannot be made, filled or sealed.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// The plan is of other models.
    #[error("the plan does not fit the {role} model: {what}")]
    OtherModel {
        /// The model.
        role: Role,
        /// What does not fit.
        what: String,
    },
    /// The tensors of a model cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan has tensors in other layouts, which nothing here builds.
    #[error("the plan has {count} artifacts, the first in layout {layout:?}; this backend builds none")]
    Artifacts {
        /// How many.
        count: usize,
        /// Layout of the first.
        layout: String,
    },
    /// It was told to stop.
    #[error("loading was stopped")]
    Cancelled,
    /// Memory cannot be observed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Somebody else took the memory that preflight had counted on.
    #[error(
        "memory ran low while loading: range {range} needs {need} and {floor} must stay free, but {budget} leaves \
         {available}; the largest processes are {largest}"
    )]
    MemoryVanished {
        /// The range that was not loaded.
        range: u32,
        /// Its size.
        need: Bytes,
        /// What must stay free.
        floor: Bytes,
        /// What is available, less what has been swapped out since loading began.
        available: Bytes,
        /// Who says so.
        budget: String,
        /// Who holds most memory now.
        largest: String,
    },
}
