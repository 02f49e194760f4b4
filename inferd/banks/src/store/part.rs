//! One file's part of a conversation, read and checked as a whole.

use super::scan::read_front;
use crate::disk::ReadFile;
use crate::format::{
    FRONT_LEN, FileFault, Front, HEAD_LEN, Header, Remembered, Section, SectionKind, check_crc, decode_record,
    decode_table, decode_tools, expect, table_len,
};
use crate::identity::{Geometry, IdentityDigest};
use crate::keys::Keys;
use crate::name::Name;
use crate::transcript::Transcript;
use std::io;

/// What is wanted of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Everything.
    All,
    /// All but the recurrent part, which another file has.
    Blocks,
    /// Text, record and tool map: what was said.
    Record,
}

impl Wanted {
    fn includes(self, kind: SectionKind) -> bool {
        match kind {
            SectionKind::Record | SectionKind::Tools => true,
            SectionKind::Recurrent => self == Wanted::All,
            SectionKind::Block => self != Wanted::Record,
        }
    }
}

/// What a file holds.
pub(crate) struct Part {
    pub(crate) keys: Keys,
    pub(crate) transcript: Transcript,
    pub(crate) first_block: u32,
    /// From `first_block` on.
    pub(crate) blocks: Vec<Vec<u8>>,
    pub(crate) recurrent: Vec<u8>,
    pub(crate) remembered: Vec<Remembered>,
}

impl Part {
    /// This part, which begins at block 0, with the one that continues it.
    pub(crate) fn continued_by(mut self, next: Part) -> Result<Part, FileFault> {
        let tokens = self.transcript.len();
        if !next.transcript.tokens().starts_with(self.transcript.tokens())
            || next.first_block as usize > self.blocks.len()
        {
            return Err(FileFault::Parent { tokens });
        }
        // The block that the earlier one ended in is there again.
        self.blocks.truncate(next.first_block as usize);
        self.blocks.extend(next.blocks);
        self.remembered.extend(next.remembered);
        Ok(Part { blocks: self.blocks, remembered: self.remembered, first_block: 0, ..next })
    }
}

/// Reads a file and checks every byte of it. What it may allocate is bounded by the worker's own sizes and by the
/// file's length. The outer error is the disk's, the inner one the file's.
pub(crate) fn read_part(
    file: &dyn ReadFile,
    name: Name,
    identity: IdentityDigest,
    geometry: &Geometry,
    wanted: Wanted,
) -> io::Result<Result<Part, FileFault>> {
    split(read_checked(file, name, identity, geometry, wanted))
}

/// The disk's errors outside, the file's inside.
fn split<T>(read: Result<T, ReadFault>) -> io::Result<Result<T, FileFault>> {
    match read {
        Ok(part) => Ok(Ok(part)),
        Err(ReadFault::File(fault)) => Ok(Err(fault)),
        Err(ReadFault::Disk(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Ok(Err(FileFault::Cut { what: "file" }))
        }
        Err(ReadFault::Disk(error)) => Err(error),
    }
}

enum ReadFault {
    Disk(io::Error),
    File(FileFault),
}

impl From<io::Error> for ReadFault {
    fn from(error: io::Error) -> ReadFault {
        ReadFault::Disk(error)
    }
}

impl From<FileFault> for ReadFault {
    fn from(fault: FileFault) -> ReadFault {
        ReadFault::File(fault)
    }
}

fn read_checked(
    file: &dyn ReadFile,
    name: Name,
    identity: IdentityDigest,
    geometry: &Geometry,
    wanted: Wanted,
) -> Result<Part, ReadFault> {
    let (header, front) = read_front(file)??;
    front.check(identity, geometry)?;
    let len = file.len()?;
    let text_end = HEAD_LEN as u64 + u64::from(header.text_bytes);
    let table_at = text_end + FRONT_LEN as u64;
    let table_bytes = table_len(front.sections);
    // Before anything of a stated size is allocated.
    let blocks = u64::from(front.blocks()).saturating_mul(front.block_bytes);
    let least = (table_at + table_bytes as u64).saturating_add(blocks).saturating_add(front.recurrent_bytes);
    if len < least {
        return Err(FileFault::Cut { what: "file" }.into());
    }
    let sections = read_table(file, &header, &front, len)?;
    let text = read(file, HEAD_LEN as u64, header.text_bytes as usize)?;
    if Name::of_text(&text) != name {
        return Err(FileFault::Name.into());
    }
    let (mut record, mut recurrent, mut tools) = (Vec::new(), Vec::new(), Vec::new());
    let mut blocks = Vec::with_capacity(front.blocks() as usize);
    for section in sections.iter().filter(|section| wanted.includes(section.kind)) {
        let content = read_section(file, section)?;
        match section.kind {
            SectionKind::Record => record = content,
            SectionKind::Recurrent => recurrent = content,
            SectionKind::Block => blocks.push(content),
            SectionKind::Tools => tools = content,
        }
    }
    expect("payload", header.payload_bytes, (len - text_end).saturating_sub(front.tools_bytes))?;
    let transcript = decode_record(&record, text, geometry.vocabulary)?;
    expect("tokens of the record", transcript.len().into(), front.tokens.into())?;
    let keys = Keys::of(&transcript);
    if keys != front.keys {
        return Err(FileFault::Keys.into());
    }
    let remembered = decode_tools(&tools)?;
    Ok(Part { keys, transcript, first_block: front.first_block, blocks, recurrent, remembered })
}

fn read_table(file: &dyn ReadFile, header: &Header, front: &Front, len: u64) -> Result<Vec<Section>, ReadFault> {
    let at = (HEAD_LEN + FRONT_LEN) as u64 + u64::from(header.text_bytes);
    Ok(decode_table(&read(file, at, table_len(front.sections))?, header, front, len)?)
}

/// What a file remembers of its answers, without the rest of it. Its front was checked.
pub(super) fn read_remembered(
    file: &dyn ReadFile,
    header: &Header,
    front: &Front,
    len: u64,
) -> io::Result<Result<Vec<Remembered>, FileFault>> {
    let read = || -> Result<Vec<Remembered>, ReadFault> {
        let sections = read_table(file, header, front, len)?;
        match sections.last().filter(|section| section.kind == SectionKind::Tools) {
            Some(section) => Ok(decode_tools(&read_section(file, section)?)?),
            None => Ok(Vec::new()),
        }
    };
    split(read())
}

fn read_section(file: &dyn ReadFile, section: &Section) -> Result<Vec<u8>, ReadFault> {
    let content = read(file, section.offset, section.len as usize)?;
    check_crc(section.kind.name(), &content, section.crc)?;
    Ok(content)
}

fn read(file: &dyn ReadFile, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}
