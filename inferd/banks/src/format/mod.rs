//! The bytes of a file.
//!
//! All numbers little-endian. The frame is the published KVC container: 48-byte header, u32 text length, the rendered
//! text, the payload, a tool map. The payload is ours, version 16:
//!
//! ```text
//! front     fixed size: magic, version, what the index needs to know, checksums of header and table
//! table     per section: kind, CRC-32, length
//! sections  record (pieces and token ids), recurrent part, blocks in order
//! ```
//!
//! Sections follow each other without gaps, so every byte of a file is under the front's CRC, a section's CRC or, the
//! text, the SHA-1 in the file's name. A file holds either all blocks of its conversation or, when it continues
//! another file's, those from `first_block` on.

mod bytes;
mod front;
mod header;
mod record;
mod table;
mod tools;

pub(crate) use front::{FRONT_LEN, Front, Parent};
pub use header::SaveReason;
pub(crate) use header::{HEAD_LEN, Header};
pub(crate) use record::{decode_record, encode_record};
pub(crate) use table::{Section, SectionKind, decode_table, encode_table, table_len};
pub use tools::Remembered;
pub(crate) use tools::{RememberedId, decode_tools, encode_tools};

use thiserror::Error;

/// Why a file is not used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum FileFault {
    #[error("written by another program or version ({what} is {found})")]
    Foreign { what: &'static str, found: u32 },
    #[error("{what} is {found}; it must be {wanted}")]
    Value { what: &'static str, found: u64, wanted: u64 },
    #[error("{what} is {found}; the most is {max}")]
    TooLarge { what: &'static str, found: u64, max: u64 },
    #[error("{what} is cut off")]
    Cut { what: &'static str },
    #[error("{what} has checksum {found:08x}, stated is {stated:08x}")]
    Checksum { what: &'static str, found: u32, stated: u32 },
    #[error("the text is not the one that the file is named after")]
    Name,
    #[error("the record: {0}")]
    Record(String),
    #[error("the front's keys are not those of the record")]
    Keys,
    #[error("its first {tokens} tokens are not those of the file it continues")]
    Parent { tokens: u32 },
    #[error("the model refused its contents: {0}")]
    Contents(String),
}

impl FileFault {
    /// Whether the file is somebody else's, to be left alone.
    pub fn is_foreign(&self) -> bool {
        matches!(self, FileFault::Foreign { .. })
    }
}

pub(crate) fn expect(what: &'static str, found: u64, wanted: u64) -> Result<(), FileFault> {
    if found == wanted { Ok(()) } else { Err(FileFault::Value { what, found, wanted }) }
}

fn at_most(what: &'static str, found: u64, max: u64) -> Result<(), FileFault> {
    if found <= max { Ok(()) } else { Err(FileFault::TooLarge { what, found, max }) }
}

pub(crate) fn check_crc(what: &'static str, bytes: &[u8], stated: u32) -> Result<(), FileFault> {
    let found = crc32fast::hash(bytes);
    if found == stated { Ok(()) } else { Err(FileFault::Checksum { what, found, stated }) }
}
