//! From a GGUF file to resident, shareable ranges. The owner and a worker that loads for itself use the same code.
//!
//! - [`plan`] decides where every tensor lies: a pure function, printed as JSON by `--print-plan json`.
//! - [`preflight`] adds up what loading will need and compares it with what the machine has ([`MemorySource`]).
//! - [`load`] reads the files into sealed ranges and computes the content identity on the way.
//! - [`check_kept`] proves ranges that outlived the owner who loaded them, without a file.
//! - [`ContentIdentity`] names the content: equal for the same tensors, wherever they lie; different when one byte
//!   is. [`identify`] computes it without keeping anything in memory.

mod backing;
mod cgroup;
mod destination;
mod disk;
mod error;
mod identity;
mod kept;
mod load;
mod memory;
mod placement;
mod plan;
mod planner;
mod preflight;
mod role;
mod staging;
mod verify;
mod watch;
mod work;

pub use destination::{Destination, all_split};
pub use error::{LoadError, LoadFailure};
pub use identity::{ContentIdentity, ContentRoot, LEAF, TensorIdentity, leaf_root};
pub use kept::check_kept;
pub use load::{Identities, LoadOptions, LoadReport, Resident, identify, load};
pub use memory::{
    Budget, BudgetSource, GroupLimit, MemoryError, MemorySource, Observation, ProcessMemory, SystemMemory,
};
pub use plan::{Placement, Plan, PlannedArtifact, PlannedModel, PlannedRange, PlannedTensor, Residency, Totals};
pub use planner::{ArtifactRequest, PlanError, PlanOptions, SkipRequest, TensorTable, plan};
pub use preflight::{HOST_RESERVE, Preflight, PreflightRefused, Remedy, Row, preflight};
pub use role::Role;
pub use staging::staging_bytes;
pub use verify::Verify;
pub use watch::HOST_TRIP_FLOOR;
pub use work::{Progress, Reading};
