//! What can go wrong with a shareable range.

use ds4_units::Bytes;
use std::io;
use thiserror::Error;

/// Why a range cannot be made, filled, sealed, taken over or mapped.
#[derive(Debug, Error)]
pub enum RangeError {
    /// A range without bytes.
    #[error("range {name:?} would have no bytes")]
    Empty {
        /// The range.
        name: String,
    },
    /// The operating system refused to make it; too many open files is the usual reason.
    #[error("cannot create range {name:?} of {len}: {source}")]
    Create {
        /// The range.
        name: String,
        /// Its length.
        len: Bytes,
        /// The cause.
        source: io::Error,
    },
    /// A write that would go past the end.
    #[error("range {name:?} has {} bytes; {count} bytes at {offset} do not fit", len.0)]
    PastEnd {
        /// The range.
        name: String,
        /// Its length.
        len: Bytes,
        /// Where the write was to start.
        offset: u64,
        /// How much it was to write.
        count: usize,
    },
    /// The operating system refused to write; no memory is the usual reason.
    #[error("cannot write range {name:?} at {offset}: {source}")]
    Write {
        /// The range.
        name: String,
        /// Where the write was to start.
        offset: u64,
        /// The cause.
        source: io::Error,
    },
    /// The operating system refused to seal it.
    #[error("cannot seal range {name:?}: {source}")]
    Seal {
        /// The range.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// Another descriptor could not be made; too many open files is the usual reason.
    #[error("cannot copy the file descriptor of a range: {source}")]
    Export {
        /// The cause.
        source: io::Error,
    },
    /// A received descriptor is no sealable memory at all.
    #[error("the received file descriptor is not sealable memory: {source}")]
    NotMemory {
        /// The cause.
        source: io::Error,
    },
    /// A received range that somebody could still change.
    #[error("the received range is not sealed against {missing}, so its bytes could still change")]
    NotSealed {
        /// The operations that are still possible.
        missing: String,
    },
    /// A received range of another length.
    #[error("the received range has {} bytes; {} were announced", found.0, announced.0)]
    Length {
        /// What it has.
        found: Bytes,
        /// What was said.
        announced: Bytes,
    },
    /// Memory that another process, or another part of this one, still changes.
    #[error("somebody who is alive holds it")]
    InUse,
    /// The operating system refused to map it.
    #[error("cannot map a range of {len}: {source}")]
    Map {
        /// Its length.
        len: Bytes,
        /// The cause.
        source: io::Error,
    },
    /// The bytes could not be read back.
    #[error("cannot read a range at {offset}: {source}")]
    Read {
        /// Where the read was to start.
        offset: u64,
        /// The cause.
        source: io::Error,
    },
}
