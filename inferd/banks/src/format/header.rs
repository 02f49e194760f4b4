//! The published header and the length of the text behind it.

use super::bytes::Cursor;
use super::{FileFault, expect};
use crate::limits::TEXT_MAX;

const LEN: usize = 48;
/// Header and text length.
pub(crate) const HEAD_LEN: usize = LEN + 4;

const CONTAINER_VERSION: u8 = 1;
/// In the byte that others use for the layout of their payload: it makes them leave our files alone.
const PAYLOAD_BYTE: u8 = 16;
const FLAG_TOOLS: u8 = 1;

/// Why a conversation was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveReason {
    /// A prompt that nothing was known of, at the end of its first question.
    Cold,
    /// A conversation grew.
    Continued,
    /// Its bank was needed for another conversation, or its request ended.
    Evict,
    /// The worker stopped.
    Shutdown,
}

impl SaveReason {
    const fn code(self) -> u8 {
        match self {
            SaveReason::Cold => 1,
            SaveReason::Continued => 2,
            SaveReason::Evict => 3,
            SaveReason::Shutdown => 4,
        }
    }

    fn from_code(code: u8) -> Option<SaveReason> {
        use SaveReason::*;
        [Cold, Continued, Evict, Shutdown].into_iter().find(|reason| reason.code() == code)
    }

    /// All of them, in the order of their counts.
    pub const ALL: &[SaveReason] = &[SaveReason::Cold, SaveReason::Continued, SaveReason::Evict, SaveReason::Shutdown];

    /// The published spelling.
    pub const fn name(self) -> &'static str {
        match self {
            SaveReason::Cold => "cold",
            SaveReason::Continued => "continued",
            SaveReason::Evict => "evict",
            SaveReason::Shutdown => "shutdown",
        }
    }
}

/// Header and text length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) reason: SaveReason,
    pub(crate) has_tools: bool,
    pub(crate) tokens: u32,
    pub(crate) context: u32,
    /// Unix seconds. Later use is told by the file's time, so that files never change.
    pub(crate) created: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) text_bytes: u32,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEAD_LEN] {
        let mut head = [0; HEAD_LEN];
        head[..3].copy_from_slice(b"KVC");
        head[3] = CONTAINER_VERSION;
        head[5] = self.reason.code();
        head[6] = if self.has_tools { FLAG_TOOLS } else { 0 };
        head[8..12].copy_from_slice(&self.tokens.to_le_bytes());
        head[16..20].copy_from_slice(&self.context.to_le_bytes());
        head[20] = PAYLOAD_BYTE;
        head[24..32].copy_from_slice(&self.created.to_le_bytes());
        head[32..40].copy_from_slice(&self.created.to_le_bytes());
        head[40..48].copy_from_slice(&self.payload_bytes.to_le_bytes());
        head[48..].copy_from_slice(&self.text_bytes.to_le_bytes());
        head
    }

    pub(crate) fn decode(head: &[u8; HEAD_LEN]) -> Result<Header, FileFault> {
        let mut cursor = Cursor::new("header", head);
        let foreign = |what, found: u32| Err(FileFault::Foreign { what, found });
        let [k, v, c] = cursor.array()?;
        if [k, v, c] != *b"KVC" {
            return foreign("magic", u32::from_le_bytes([k, v, c, 0]));
        }
        let version = cursor.u8()?;
        if version != CONTAINER_VERSION {
            return foreign("container version", version.into());
        }
        if head[20] != PAYLOAD_BYTE {
            return foreign("payload version", head[20].into());
        }
        expect("quantisation", cursor.u8()?.into(), 0)?;
        let reason = cursor.u8()?;
        let reason = SaveReason::from_code(reason).ok_or(FileFault::Value {
            what: "save reason",
            found: reason.into(),
            wanted: SaveReason::Continued.code().into(),
        })?;
        let flags = cursor.u8()?;
        expect("extension flags", (flags & !FLAG_TOOLS).into(), 0)?;
        expect("model id", cursor.u8()?.into(), 0)?;
        let tokens = cursor.u32()?;
        expect("hit count", cursor.u32()?.into(), 0)?;
        let context = cursor.u32()?;
        cursor.u8()?;
        let [a, b, c] = cursor.array()?;
        expect("reserved bytes", u32::from_le_bytes([a, b, c, 0]).into(), 0)?;
        let created = cursor.u64()?;
        expect("last used", cursor.u64()?, created)?;
        let (payload_bytes, text_bytes) = (cursor.u64()?, cursor.u32()?);
        if u64::from(text_bytes) > TEXT_MAX.0 {
            return Err(FileFault::TooLarge { what: "text", found: text_bytes.into(), max: TEXT_MAX.0 });
        }
        Ok(Header { reason, has_tools: flags & FLAG_TOOLS != 0, tokens, context, created, payload_bytes, text_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        reason: SaveReason::Evict,
        has_tools: true,
        tokens: 4096,
        context: 32_768,
        created: 1_764_547_200,
        payload_bytes: 0x0102_0304_0506,
        text_bytes: 77,
    };

    #[test]
    fn the_header_has_the_published_bytes() {
        let bytes = HEADER.encode();
        assert_eq!(
            hex::encode(bytes),
            "4b564301000301000010000000000000008000001000000080da2c690000000080da2c69000000000605040302010000\
             4d000000"
        );
        assert_eq!(Header::decode(&bytes).unwrap(), HEADER);
    }

    #[test]
    fn files_of_other_programs_and_versions_are_foreign() {
        for (at, value) in [(0, b'G'), (3, 2), (20, 0), (20, 2)] {
            let mut bytes = HEADER.encode();
            bytes[at] = value;
            assert!(Header::decode(&bytes).unwrap_err().is_foreign());
        }
    }
}
