//! Why loading stops.

use crate::memory::MemoryError;
use crate::planner::PlanError;
use crate::role::Role;
use ds4_gguf::GgufError;
use ds4_gpu::{MemoryError as DeviceReadError, RangeError};
use ds4_manifest::Digest;
use ds4_units::Bytes;
use thiserror::Error;

/// What kind of failure it is, for exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadFailure {
    /// A model's file.
    ModelFile,
    /// Memory or file descriptors.
    Memory,
    /// The device or its driver.
    Device,
    /// The caller asked to stop.
    Cancelled,
    /// Anything else.
    Other,
}

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
    /// The plan has tensors in a layout that nothing here builds in this kind of memory.
    #[error("the plan has tensors in layout {layout:?}, which this kind of memory cannot be filled with")]
    Artifacts {
        /// The layout.
        layout: String,
    },
    /// Memory does not have what the file has.
    #[error(
        "tensor {tensor:?} is not in memory as it is in the file: range {range}, byte {offset} of the tensor: the file \
         has {file}, memory has {memory}"
    )]
    Verify {
        /// The tensor.
        tensor: String,
        /// Its range.
        range: usize,
        /// Where the differing leaf starts in the tensor.
        offset: u64,
        /// Digest of the file's leaf.
        file: Digest,
        /// Digest of the leaf in memory.
        memory: Digest,
    },
    /// Rows are not where their layout has them.
    #[error("tensor {tensor:?} is not laid out as it should be from row {first_row} on")]
    Layout {
        /// The tensor.
        tensor: String,
        /// The first row compared.
        first_row: usize,
    },
    /// Memory of a device cannot be read.
    #[error(transparent)]
    Device(#[from] DeviceReadError),
    /// The device or its driver refused.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] ds4_gpu::cuda::CudaError),
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

impl LoadError {
    /// What kind of failure it is.
    pub fn failure(&self) -> LoadFailure {
        match self {
            LoadError::File(_) | LoadError::OtherModel { .. } | LoadError::Plan(_) => LoadFailure::ModelFile,
            LoadError::Range(_) | LoadError::MemoryVanished { .. } => LoadFailure::Memory,
            LoadError::Cancelled => LoadFailure::Cancelled,
            LoadError::Verify { .. } | LoadError::Layout { .. } | LoadError::Device(_) => LoadFailure::Device,
            #[cfg(feature = "cuda")]
            LoadError::Cuda(error) if error.is_out_of_memory() => LoadFailure::Memory,
            #[cfg(feature = "cuda")]
            LoadError::Cuda(_) => LoadFailure::Device,
            LoadError::Artifacts { .. } | LoadError::Memory(_) => LoadFailure::Other,
        }
    }
}
