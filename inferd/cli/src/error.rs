//! Why there is no answer.

use ds4_api::ApiError;
use ds4_banks::FolderError;
use ds4_boot::BootError;
use ds4_engine::{Refused, RequestFault};
use ds4_host::{CpuError, Exit, LoggingError};
use ds4_model::PromptError;
use std::io;
use std::path::PathBuf;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Cpu(#[from] CpuError),
    #[error(transparent)]
    Logging(#[from] LoggingError),
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
    #[error("cannot read the question from standard input: {0}")]
    Question(io::Error),
    #[error(transparent)]
    Boot(#[from] BootError),
    #[error(transparent)]
    Prompt(#[from] PromptError),
    #[error("cannot start the engine thread: {0}")]
    Thread(io::Error),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Fault(#[from] RequestFault),
    #[error("cannot write the answer: {0}")]
    Output(io::Error),
    #[error("{}: {reason}", .path.display())]
    Dump { path: PathBuf, reason: String },
    #[error("--kv-disk-dir: {0}")]
    Folder(#[from] FolderError),
    #[error("cannot read {}: {source}", .path.display())]
    KvFolder { path: PathBuf, source: io::Error },
    #[error("{}: a server writes to this folder; stop it, or let it keep to its budget", .path.display())]
    KvInUse { path: PathBuf },
    #[error("{name:?}: {problem}")]
    KvName { name: String, problem: &'static str },
    #[error("{from}: {reason}")]
    Request { from: String, reason: String },
    #[error("the request would be refused: {0}")]
    Refusal(#[from] ApiError),
}

impl CliError {
    /// The process's exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            CliError::Cpu(_) | CliError::Logging(_) | CliError::Refused(_) | CliError::Prompt(_) => Exit::Usage,
            CliError::Boot(error) => error.exit(),
            CliError::Folder(_) | CliError::KvName { .. } | CliError::Request { .. } | CliError::Refusal(_) => {
                Exit::Usage
            }
            CliError::KvInUse { .. } => Exit::LockHeld,
            CliError::KvFolder { .. } => Exit::Failed,
            CliError::Thread(_) | CliError::Fault(_) => Exit::Engine,
            CliError::Signals(_) | CliError::Question(_) | CliError::Output(_) | CliError::Dump { .. } => Exit::Failed,
        }
    }
}
