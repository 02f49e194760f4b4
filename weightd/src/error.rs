//! Why an owner ends, and with which exit code.

use crate::backend::BackendError;
use crate::listener::ListenError;
use crate::lock::LockError;
use crate::stale::StaleError;
use ds4_gguf::GgufError;
use ds4_host::Exit;
use ds4_manifest::PublishError;
use ds4_resident::{LoadError, LoadFailure, MemoryError, PlanError, PreflightRefused};
use ds4_wire::KeeperError;
use std::io;
use thiserror::Error;

/// Why an owner ended other than as asked.
#[derive(Debug, Error)]
pub enum OwnerError {
    /// The lock was not taken.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// An earlier owner's manifest is in the way.
    #[error(transparent)]
    Stale(#[from] StaleError),
    /// The socket was not opened.
    #[error(transparent)]
    Broker(#[from] ListenError),
    /// The GPU cannot be used.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The keeper does not do its part.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    /// The model's files cannot be opened.
    #[error(transparent)]
    Model(#[from] GgufError),
    /// The tensors cannot be laid out.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Memory cannot be observed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Memory does not suffice.
    #[error("{0}; to load anyway: --no-preflight")]
    Preflight(#[from] PreflightRefused),
    /// There are more ranges than this process may have descriptors for.
    #[error(
        "the plan has {ranges} ranges, which take {need} file descriptors, and this process may have {have}: raise \
         the hard limit (LimitNOFILE= in the unit, ulimit -Hn in a shell), or use larger ranges (--span-mb)"
    )]
    FdLimit {
        /// Ranges of the plan.
        ranges: u64,
        /// Descriptors needed.
        need: u64,
        /// Descriptors allowed.
        have: u64,
    },
    /// Loading failed.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A signal, or a client, asked for a shutdown before the weights were ready.
    #[error("stopped before the weights were ready")]
    Aborted,
    /// The broker's socket does not answer its own owner.
    #[error("the broker does not answer: {reason}")]
    SelfCheck {
        /// What came instead.
        reason: String,
    },
    /// The manifest was not published, or not taken back.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The system refused something basic.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl OwnerError {
    /// The exit code.
    pub fn exit(&self) -> Exit {
        match self {
            OwnerError::Lock(LockError::Held { .. }) | OwnerError::Broker(ListenError::InUse { .. }) => Exit::LockHeld,
            OwnerError::Stale(StaleError::Live { .. }) => Exit::LockHeld,
            OwnerError::Publish(PublishError::Taken { .. }) => Exit::LockHeld,
            OwnerError::Lock(LockError::Unusable { .. }) | OwnerError::Broker(_) => Exit::Usage,
            OwnerError::Stale(StaleError::TextForm { .. }) => Exit::Usage,
            OwnerError::Stale(_) => Exit::StaleState,
            OwnerError::Model(_) | OwnerError::Plan(_) => Exit::ModelFile,
            OwnerError::Preflight(_) | OwnerError::FdLimit { .. } => Exit::Memory,
            OwnerError::Load(error) => match error.failure() {
                LoadFailure::ModelFile => Exit::ModelFile,
                LoadFailure::Memory => Exit::Memory,
                LoadFailure::Device => Exit::Device,
                LoadFailure::Cancelled => Exit::Aborted,
                LoadFailure::Other => Exit::Failed,
            },
            #[cfg(not(feature = "cuda"))]
            OwnerError::Backend(BackendError::NotBuilt) => Exit::Usage,
            #[cfg(feature = "cuda")]
            OwnerError::Backend(_) => Exit::Device,
            OwnerError::Aborted => Exit::Aborted,
            OwnerError::Memory(_)
            | OwnerError::Keeper(_)
            | OwnerError::SelfCheck { .. }
            | OwnerError::Publish(_)
            | OwnerError::System { .. } => Exit::Failed,
        }
    }
}
