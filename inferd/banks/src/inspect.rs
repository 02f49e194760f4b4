//! Looking at a file without a model.

use crate::disk::ReadFile;
use crate::format::{FileFault, Remembered, SaveReason};
use crate::identity::{Geometry, IdentityDigest};
use crate::name::Name;
use crate::store::{Part, Wanted, read_front, read_part};
use crate::transcript::Transcript;
use ds4_units::Bytes;
use std::io;

/// What the beginning of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// What it was saved for.
    pub reason: SaveReason,
    /// What else it depends on.
    pub identity: IdentityDigest,
    /// Tokens of the conversation.
    pub tokens: u32,
    /// The longest conversation of the worker that saved it.
    pub context: u32,
    /// When, in Unix seconds.
    pub created: u64,
    /// The file it continues.
    pub continues: Option<Name>,
    /// Files before it.
    pub chain: u32,
    /// Blocks in the file, the first one and how many.
    pub blocks: (u32, u32),
    /// Tokens of a block.
    pub block_tokens: u32,
    /// Bytes of a block.
    pub block_bytes: Bytes,
    /// Bytes of the recurrent part.
    pub recurrent_bytes: Bytes,
    /// Bytes of what is remembered of its answers.
    pub remembered_bytes: Bytes,
    /// Bytes of the rendered text.
    pub text_bytes: Bytes,
}

/// Reads a file's beginning. The outer error is the disk's, the inner one the file's.
pub fn summarize(file: &dyn ReadFile) -> io::Result<Result<Summary, FileFault>> {
    let read = match read_front(file) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(FileFault::Cut { what: "file" }),
        other => other?,
    };
    Ok(read.map(|(header, front)| Summary {
        reason: header.reason,
        identity: front.identity,
        tokens: front.tokens,
        context: header.context,
        created: header.created,
        continues: front.parent.map(|parent| parent.name),
        chain: front.chain,
        blocks: (front.first_block, front.blocks()),
        block_tokens: front.block_tokens,
        block_bytes: Bytes(front.block_bytes),
        recurrent_bytes: Bytes(front.recurrent_bytes),
        remembered_bytes: Bytes(front.tools_bytes),
        text_bytes: Bytes(header.text_bytes.into()),
    }))
}

/// Checks every byte of a file against what the file itself says, and returns what it holds. The outer error is the
/// disk's, the inner one the file's. Allocates no more than a few times the file's length.
pub fn verify(file: &dyn ReadFile, name: Name) -> io::Result<Result<Transcript, FileFault>> {
    Ok(read(file, name, Wanted::All)?.map(|part| part.transcript))
}

/// What was said in a file's conversation, and what is remembered of its answers: these sections are checked, the
/// bank's bytes not read. Errors as those of [`verify`].
pub fn read_said(file: &dyn ReadFile, name: Name) -> io::Result<Result<(Transcript, Vec<Remembered>), FileFault>> {
    Ok(read(file, name, Wanted::Record)?.map(|part| (part.transcript, part.remembered)))
}

fn read(file: &dyn ReadFile, name: Name, wanted: Wanted) -> io::Result<Result<Part, FileFault>> {
    let front = match read_front(file) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(FileFault::Cut { what: "file" }),
        other => other?,
    };
    let front = match front {
        Ok((_, front)) => front,
        Err(fault) => return Ok(Err(fault)),
    };
    let geometry = Geometry {
        block_tokens: front.block_tokens.max(1),
        block_bytes: usize::try_from(front.block_bytes).unwrap_or(usize::MAX),
        recurrent_bytes: usize::try_from(front.recurrent_bytes).unwrap_or(usize::MAX),
        context: u32::MAX,
        vocabulary: u32::MAX,
    };
    read_part(file, name, front.identity, &geometry, wanted)
}
