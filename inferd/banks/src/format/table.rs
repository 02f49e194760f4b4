//! The table of sections.

use super::bytes::Cursor;
use super::{FRONT_LEN, FileFault, Front, HEAD_LEN, Header, at_most, check_crc, expect};
use crate::limits::TOOLS_BYTES_MAX;

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SectionKind {
    Record,
    Recurrent,
    Block,
    Tools,
}

/// A section and where it lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) kind: SectionKind,
    pub(crate) crc: u32,
    pub(crate) len: u64,
    pub(crate) offset: u64,
}

impl SectionKind {
    fn code(self) -> u32 {
        match self {
            SectionKind::Record => 1,
            SectionKind::Recurrent => 2,
            SectionKind::Block => 3,
            SectionKind::Tools => 4,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            SectionKind::Record => "record",
            SectionKind::Recurrent => "recurrent part",
            SectionKind::Block => "block",
            SectionKind::Tools => "tool map",
        }
    }
}

const ENTRY: usize = 16;

/// Bytes of a table of so many sections.
pub(crate) fn table_len(sections: u32) -> usize {
    sections as usize * ENTRY
}

/// The table of these sections, given in the order of the file.
pub(crate) fn encode_table(sections: &[(SectionKind, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(sections.len() * ENTRY);
    for (kind, content) in sections {
        bytes.extend(kind.code().to_le_bytes());
        bytes.extend(crc32fast::hash(content).to_le_bytes());
        bytes.extend((content.len() as u64).to_le_bytes());
    }
    bytes
}

/// Reads the table and checks that its sections are the ones that `front` promises and fill the file.
pub(crate) fn decode_table(
    bytes: &[u8],
    header: &Header,
    front: &Front,
    file_len: u64,
) -> Result<Vec<Section>, FileFault> {
    check_crc("table", bytes, front.table_crc)?;
    let mut cursor = Cursor::new("table", bytes);
    let mut offset = HEAD_LEN as u64 + u64::from(header.text_bytes) + FRONT_LEN as u64 + bytes.len() as u64;
    let blocks = front.blocks() as usize;
    let mut sections = Vec::with_capacity(front.sections as usize);
    for index in 0..front.sections as usize {
        let kind = match index {
            0 => SectionKind::Record,
            1 => SectionKind::Recurrent,
            _ if index < 2 + blocks => SectionKind::Block,
            _ => SectionKind::Tools,
        };
        expect("kind of section", cursor.u32()?.into(), kind.code().into())?;
        let (crc, len) = (cursor.u32()?, cursor.u64()?);
        match kind {
            SectionKind::Record => at_most("length of the record", len, 8 + 16 * u64::from(front.tokens))?,
            SectionKind::Recurrent => expect("length of the recurrent part", len, front.recurrent_bytes)?,
            SectionKind::Block => expect("length of a block", len, front.block_bytes)?,
            SectionKind::Tools => {
                expect("length of the tool map", len, front.tools_bytes)?;
                at_most("length of the tool map", len, TOOLS_BYTES_MAX.0)?;
            }
        }
        sections.push(Section { kind, crc, len, offset });
        offset = offset.checked_add(len).ok_or(FileFault::Cut { what: "table" })?;
    }
    cursor.end()?;
    expect("length of the file", file_len, offset)?;
    Ok(sections)
}
