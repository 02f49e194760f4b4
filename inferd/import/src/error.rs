//! Why weights cannot be attached. Every message names what to do.

use crate::device::MapError;
use ds4_gpu::MemoryError;
use ds4_manifest::{ManifestError, TrustError};
use ds4_resident::{ContentRoot, LoadError};
use ds4_units::Bytes;
use ds4_wire::{Phase, Refusal, WireError};
use std::path::PathBuf;
use thiserror::Error;

/// What kind of failure it is, for exit codes and for deciding what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportFailure {
    /// There is no owner, or it is not ready yet. Waiting may help.
    NotReady,
    /// The owner went away in the middle.
    OwnerLost,
    /// The owner's weights are not the wanted ones.
    Mismatch,
    /// Anything else: a setting, permissions, limits, a damaged manifest.
    Refused,
    /// The caller asked to stop.
    Cancelled,
}

/// Why weights cannot be attached.
#[derive(Debug, Error)]
pub enum ImportError {
    /// Neither a manifest nor an owner that is loading.
    #[error(
        "there is no owner: {} does not exist. Start one with ds4-weightd --base MODEL, or leave out --weights to \
         load the model in this process", .manifest.display()
    )]
    NoOwner {
        /// Where the manifest would be.
        manifest: PathBuf,
    },
    /// The owner is still loading.
    #[error("the owner is not ready: {phase}. Wait for it with --wait SECS")]
    NotReady {
        /// How far it is.
        phase: Phase,
    },
    /// The owner is shutting down.
    #[error("the owner is shutting down. Start another, and wait for it with --wait SECS")]
    Draining,
    /// The manifest names an owner that is gone.
    #[error(
        "{} is stale: its owner, pid {pid}, no longer serves {}. Start ds4-weightd again; it replaces the manifest",
        .manifest.display(), .socket.display()
    )]
    Stale {
        /// The manifest.
        manifest: PathBuf,
        /// The owner's process id.
        pid: u32,
        /// Its socket.
        socket: PathBuf,
    },
    /// The manifest cannot be read.
    #[error("{}: {source}", .path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        source: ManifestError,
    },
    /// The manifest must not be believed.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The owner runs as a user who is not trusted.
    #[error("the owner's socket {} belongs to uid {uid}, who is not trusted: name it with --weights-uid {uid}", .socket.display())]
    OwnerUser {
        /// The socket.
        socket: PathBuf,
        /// The user behind it.
        uid: u32,
    },
    /// The owner does not let this user attach.
    #[error("the owner refuses uid {uid}: {rule}. Run as that user, or start the owner with --allow-uid {uid}")]
    PeerRefused {
        /// This process's user, as the owner saw it.
        uid: u32,
        /// The owner's rule.
        rule: String,
    },
    /// The weights are in a kind of memory that this worker does not read.
    #[error(
        "the owner holds the weights in {backend} memory of {device}, and this worker computes in {own}: start the \
         owner with --backend {want} on the worker's device, or the worker on the owner's (CUDA_VISIBLE_DEVICES may \
         hide or renumber GPUs)"
    )]
    Device {
        /// The owner's backend.
        backend: String,
        /// Its device, with UUID if it has one.
        device: String,
        /// Where this worker computes.
        own: String,
        /// The backend that would suit.
        want: &'static str,
    },
    /// The owner holds other models.
    #[error("the owner holds {have}, not {want}")]
    UnknownModel {
        /// What it holds.
        have: String,
        /// What is wanted.
        want: String,
    },
    /// The weights are in a layout that this worker cannot read.
    #[error("the weights need {capability:?}, which this worker does not have: start the owner with {avoid_with}")]
    MissingCapability {
        /// The layout.
        capability: String,
        /// The owner flag that would avoid it.
        avoid_with: String,
    },
    /// The architectures differ.
    #[error(
        "the owner holds a {owner:?} model ({owner_path}) and the worker's file is {own:?} ({own_path}): start the \
         owner with ds4-weightd --base {own_path}"
    )]
    Architecture {
        /// The owner's.
        owner: String,
        /// The owner's file.
        owner_path: String,
        /// The worker's.
        own: String,
        /// The worker's file.
        own_path: String,
    },
    /// The tensor tables differ.
    #[error(
        "the owner's model ({owner_path}) is not the worker's ({own_path}): {difference}. Start the owner with \
         ds4-weightd --base {own_path}"
    )]
    TensorTable {
        /// The owner's file.
        owner_path: String,
        /// The worker's file.
        own_path: String,
        /// The first difference.
        difference: String,
    },
    /// Names, types and sizes agree, the bytes do not.
    #[error(
        "the owner's weights are not those of the worker's file, though names and sizes agree: the owner holds \
         {owner} ({owner_path}), the file has {own} ({own_path}). Start the owner again with ds4-weightd --base \
         {own_path}"
    )]
    Content {
        /// Content of the owner's model.
        owner: ContentRoot,
        /// The owner's file.
        owner_path: String,
        /// Content of the worker's file.
        own: ContentRoot,
        /// The worker's file.
        own_path: String,
    },
    /// The worker's file cannot be read for comparison.
    #[error("cannot compare the weights with the worker's file: {0}")]
    OwnFile(Box<LoadError>),
    /// The manifest's content identity does not follow from its table.
    #[error("the manifest says the content is {stated}, but its tensors give {computed}: restart the owner")]
    IdentityTable {
        /// What the manifest says.
        stated: ContentRoot,
        /// What its table gives.
        computed: ContentRoot,
    },
    /// Another owner, or another generation, answers than the manifest names.
    #[error("the manifest and the owner disagree: {0}. Try again; if it stays, restart the owner")]
    Generation(Refusal),
    /// The owner's table of ranges is not the manifest's.
    #[error("range {id}: the manifest says {manifest:?} bytes, the owner {owner:?}: restart the owner")]
    RangeTable {
        /// The range.
        id: u32,
        /// Its length in the manifest, if it is there.
        manifest: Option<u64>,
        /// Its length by the owner, if it is there.
        owner: Option<u64>,
    },
    /// A received range is not what it must be.
    #[error("range {id}: {source}")]
    Range {
        /// The range.
        id: u32,
        /// What is wrong.
        source: MapError,
    },
    /// A tensor is in no range.
    #[error("tensor {tensor:?} is in none of the imported ranges: restart the owner")]
    Unresolved {
        /// The tensor.
        tensor: String,
    },
    /// Bytes of a tensor cannot be read back.
    #[error(transparent)]
    Read(#[from] MemoryError),
    /// The bytes of a tensor are not those that its digest names.
    #[error("tensor {tensor:?} in range {range} has other bytes than its digest says: restart the owner")]
    Corrupt {
        /// The tensor.
        tensor: String,
        /// Its range.
        range: u32,
    },
    /// This process may not have enough file descriptors.
    #[error(
        "attaching takes {need} file descriptors, and this process may have {have}: raise LimitNOFILE= (ulimit -n)"
    )]
    FdLimit {
        /// Descriptors needed at a time.
        need: u64,
        /// Descriptors allowed.
        have: u64,
    },
    /// The owner went away in the middle.
    #[error("the owner went away while its weights were being attached ({0})")]
    OwnerLost(WireError),
    /// The connection failed.
    #[error("the exchange with the owner failed: {0}")]
    Wire(WireError),
    /// The owner refused for a reason that a right client does not cause.
    #[error("the owner refused: {0}")]
    Refused(Refusal),
    /// The owner answered something else than was asked.
    #[error("the owner answered something else than was asked ({asked}): use owner and worker of one version")]
    WrongReply {
        /// What was asked.
        asked: &'static str,
    },
    /// The caller asked to stop.
    #[error("stopped while attaching")]
    Cancelled,
}

impl ImportError {
    /// What kind of failure it is.
    pub fn failure(&self) -> ImportFailure {
        match self {
            ImportError::NoOwner { .. }
            | ImportError::NotReady { .. }
            | ImportError::Draining
            | ImportError::Stale { .. } => ImportFailure::NotReady,
            // The owner was replaced between reading the manifest and connecting: its next manifest is right.
            ImportError::Generation(_) => ImportFailure::NotReady,
            ImportError::OwnerLost(_) => ImportFailure::OwnerLost,
            ImportError::UnknownModel { .. }
            | ImportError::Architecture { .. }
            | ImportError::TensorTable { .. }
            | ImportError::Content { .. } => ImportFailure::Mismatch,
            ImportError::Cancelled => ImportFailure::Cancelled,
            _ => ImportFailure::Refused,
        }
    }

    pub(crate) fn of_wire(error: WireError) -> ImportError {
        if error.is_gone() { ImportError::OwnerLost(error) } else { ImportError::Wire(error) }
    }

    pub(crate) fn of_refusal(refusal: Refusal) -> ImportError {
        match refusal {
            Refusal::NotReady { phase } => ImportError::NotReady { phase },
            Refusal::Draining => ImportError::Draining,
            Refusal::User { uid, rule } => ImportError::PeerRefused { uid, rule },
            Refusal::UnknownModel { have, want } => ImportError::UnknownModel { have: have.join(", "), want },
            Refusal::MissingCapability { capability, avoid_with } => {
                ImportError::MissingCapability { capability, avoid_with }
            }
            refusal @ (Refusal::StaleInstance { .. } | Refusal::StaleGeneration { .. }) => {
                ImportError::Generation(refusal)
            }
            refusal => ImportError::Refused(refusal),
        }
    }
}

/// A file's size and name for messages.
pub(crate) fn first_path(files: &[ds4_manifest::ModelFile]) -> String {
    files.first().map_or_else(String::new, |file| file.path.clone())
}

/// Range lengths are sums of file sizes, which fit memory by then.
pub(crate) fn total(lens: impl Iterator<Item = Bytes>) -> Bytes {
    Bytes(lens.fold(0u64, |sum, len| sum.saturating_add(len.0)))
}
