//! Conversations on disk.
//!
//! A [`Store`] keeps banks of one [`Identity`] in a subfolder of a folder that is this user's alone. A conversation is
//! saved at a frontier as one file, which is written under another name, made to last, then renamed, and never changed
//! again. A later frontier of the same conversation is a second file with only the blocks that are new: files form
//! chains, and every file of a chain can be restored to and branched from. A prompt finds the longest conversation
//! that it begins with by its pieces; every byte of what is restored is checked before anybody uses it.
//!
//! [`Service`] puts the disk on threads of its own, behind bounded queues. The crate knows nothing of models: bank
//! bytes come through [`BankBytes`] and leave in [`Loaded`].

mod catalog;
mod disk;
mod folder;
mod format;
mod identity;
mod index;
mod inspect;
mod keys;
pub mod limits;
mod name;
mod service;
mod snapshot;
mod stats;
mod store;
mod transcript;

pub use catalog::{Catalog, Described, Entry, Listed};
pub use disk::{Disk, FileFacts, ReadFile, SyncMode, WriteFile};
pub use folder::{Folder, FolderError};
pub use format::{FileFault, Remembered, SaveReason};
pub use identity::{Geometry, Identity, IdentityDigest};
pub use inspect::{Summary, read_said, summarize, verify};
pub use name::Name;
pub use service::{LoadTicket, Service, Unusable};
pub use snapshot::{BankBytes, Found, Kept, Loaded, SavePlan, Snapshot};
pub use stats::{Eviction, HitKind, Miss, Quarantine, Stats};
pub use store::{LoadError, NotSaved, Saved, Store, StoreOptions};
pub use transcript::{Piece, PieceEnd, PieceKind, Transcript, TranscriptError};
