//! Why there is no model to run.

use ds4_gguf::{GgufError, ValueError};
use ds4_host::Exit;
use ds4_import::{ImportError, ImportFailure, SelfLoadError};
use ds4_model::FamilyError;
use ds4_resident::LoadFailure;
use std::path::PathBuf;

/// Why there is no model to run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum BootError {
    #[error("no model: name a GGUF file with -m FILE, or an owner's manifest with --weights MANIFEST")]
    NoModel,
    #[error("--ctx {asked} is more than the {trained} tokens that the model was trained for")]
    ContextTooLong { asked: u32, trained: u32 },
    #[error("{}: the owner holds no base model", .path.display())]
    NoBaseModel { path: PathBuf },
    #[error("--mtp {}: {source}", ds4_host::printable_path(.path))]
    Draft { path: PathBuf, source: Box<BootError> },
    #[error("--mtp-draft {ahead}: there is no draft block to guess with; name its file with --mtp FILE")]
    NoDraft { ahead: u8 },
    #[error("{problem}")]
    Device { problem: String },
    #[error("{problem}: fewer conversations or a lower floor do not help; --prefill-chunk may")]
    Memory { problem: String },
    #[error(transparent)]
    File(Box<GgufError>),
    #[error("metadata: {0}")]
    Metadata(#[from] ValueError),
    #[error(transparent)]
    Family(#[from] FamilyError),
    #[error(transparent)]
    Import(Box<ImportError>),
    #[error(transparent)]
    SelfLoad(Box<SelfLoadError>),
}

impl From<GgufError> for BootError {
    fn from(error: GgufError) -> BootError {
        BootError::File(Box::new(error))
    }
}

impl From<Box<ImportError>> for BootError {
    fn from(error: Box<ImportError>) -> BootError {
        BootError::Import(error)
    }
}

impl From<SelfLoadError> for BootError {
    fn from(error: SelfLoadError) -> BootError {
        BootError::SelfLoad(Box::new(error))
    }
}

impl BootError {
    /// The process's exit code.
    pub fn exit(&self) -> Exit {
        match self {
            BootError::Draft { source, .. } => source.exit(),
            BootError::NoModel
            | BootError::NoDraft { .. }
            | BootError::ContextTooLong { .. }
            | BootError::Family(FamilyError::UnknownPromptProfile { .. }) => Exit::Usage,
            BootError::Device { .. } | BootError::Family(FamilyError::Device(_)) => Exit::Device,
            BootError::Memory { .. } => Exit::Memory,
            BootError::NoBaseModel { .. } => Exit::ImportRefused,
            BootError::File(_) | BootError::Metadata(_) | BootError::Family(_) => Exit::ModelFile,
            BootError::Import(error) => match error.failure() {
                ImportFailure::OwnerLost => Exit::OwnerLost,
                ImportFailure::Mismatch => Exit::WeightsMismatch,
                ImportFailure::Cancelled => Exit::Aborted,
                ImportFailure::NotReady | ImportFailure::Refused => Exit::ImportRefused,
            },
            BootError::SelfLoad(error) => self_load_exit(error),
        }
    }
}

fn self_load_exit(error: &SelfLoadError) -> Exit {
    match error {
        SelfLoadError::Plan(_) | SelfLoadError::Unresolved { .. } => Exit::ModelFile,
        SelfLoadError::Preflight(_) | SelfLoadError::Map(_) => Exit::Memory,
        SelfLoadError::Memory(_) => Exit::Failed,
        SelfLoadError::Load(error) => match error.failure() {
            LoadFailure::ModelFile => Exit::ModelFile,
            LoadFailure::Memory => Exit::Memory,
            LoadFailure::Device => Exit::Device,
            LoadFailure::Cancelled => Exit::Aborted,
            LoadFailure::Other => Exit::Failed,
        },
    }
}
