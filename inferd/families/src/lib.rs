//! Model families: everything about one architecture in one folder.
//!
//! A family is one entry of the table below and one folder beside this file. The rest of the worker asks a family, and
//! never which family it is.

pub mod deepseek4;

use ds4_import::{ComputeDevice, Weights};
use ds4_model::{BindOptions, DraftSource, Family, FamilyError, Model};

/// Every family this build runs.
const FAMILIES: [&dyn Family; 1] = [&deepseek4::DeepSeek4Family];

/// The family of an architecture.
pub fn find(architecture: &str) -> Option<&'static dyn Family> {
    FAMILIES.into_iter().find(|family| family.architecture() == architecture)
}

/// The architectures this build runs.
pub fn architectures() -> Vec<&'static str> {
    FAMILIES.iter().map(|family| family.architecture()).collect()
}

/// Whether this build has kernels for the device: asked before anything is loaded for it.
pub fn check_device(device: &ComputeDevice) -> Result<(), FamilyError> {
    match device {
        ComputeDevice::Cpu => Ok(()),
        #[cfg(feature = "cuda")]
        ComputeDevice::Gpu(gpu) => {
            ds4_kernels::cuda::check(gpu).map_err(|error| FamilyError::Device(error.to_string()))
        }
    }
}

/// Checks a file and binds its weights to a runnable model, with a draft block if there is one.
pub fn bind(
    file: &ds4_gguf::Model,
    weights: &Weights,
    draft: Option<DraftSource<'_>>,
    options: &BindOptions,
) -> Result<Box<dyn Model>, FamilyError> {
    let unknown = || FamilyError::UnknownArchitecture {
        found: file.architecture().to_owned(),
        supported: architectures().join(", "),
    };
    find(file.architecture()).ok_or_else(unknown)?.bind(file, weights, draft, options)
}
