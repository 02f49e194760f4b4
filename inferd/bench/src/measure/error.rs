//! Why nothing was measured.

use ds4_boot::BootError;
use ds4_engine::{Refused, RequestFault};
use ds4_host::{CpuError, Exit, LoggingError};
use ds4_units::Tokens;
use std::io;
use std::path::PathBuf;

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error(transparent)]
    Cpu(#[from] CpuError),
    #[error(transparent)]
    Logging(#[from] LoggingError),
    #[error(transparent)]
    Boot(#[from] BootError),
    #[cfg(feature = "cuda")]
    #[error("the ceilings cannot be measured: {0}")]
    Ceilings(String),
    #[error("{} cannot be read: {cause}", .path.display())]
    Read { path: PathBuf, cause: String },
    #[error("cannot write {}: {cause}", .path.display())]
    Write { path: PathBuf, cause: String },
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error("the prompt's text has no tokens")]
    NoTokens,
    #[error("--ctx-max {} is below --ctx-start {}: there is nothing to measure", .last.0, .first.0)]
    NoFrontier { first: Tokens, last: Tokens },
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Fault(#[from] RequestFault),
}

impl BenchError {
    /// The process's exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            BenchError::Cpu(_) | BenchError::Logging(_) | BenchError::Refused(_) => Exit::Usage,
            BenchError::NoTokens | BenchError::NoFrontier { .. } => Exit::Usage,
            BenchError::Boot(error) => error.exit(),
            #[cfg(feature = "cuda")]
            BenchError::Ceilings(_) => Exit::Device,
            BenchError::Thread(_) | BenchError::Fault(_) => Exit::Engine,
            BenchError::Read { .. } | BenchError::Write { .. } => Exit::Failed,
        }
    }
}
