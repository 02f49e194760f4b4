//! The published tool map: ids of tool calls and what the model wrote for each.
//!
//! Reasoning that clients do not send back is kept in it too, under ids that no call has.

use super::bytes::Cursor;
use super::{FileFault, expect};
use crate::limits::{TOOL_CALLS_MAX, TOOL_ID_MAX};
use sha1::{Digest as _, Sha1};

const VERSION: u8 = 1;

/// A part of an answer as it was sampled, and what it is found by. Opaque to the store.
#[derive(Clone, PartialEq, Eq)]
pub struct Remembered {
    /// The id given to the client, or what else names it.
    pub id: String,
    /// What the model wrote.
    pub written: Vec<u8>,
}

/// A digest of an id: which parts a file has, in little memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RememberedId([u8; 8]);

impl Remembered {
    pub(crate) fn digest(&self) -> RememberedId {
        let digest: [u8; 20] = Sha1::digest(&self.id).into();
        RememberedId(std::array::from_fn(|at| digest[at]))
    }

    /// Memory it takes, roughly.
    pub(crate) fn bytes(&self) -> usize {
        self.id.len() + self.written.len()
    }
}

/// The map's bytes; none for no calls.
pub(crate) fn encode_tools(calls: &[&Remembered]) -> Vec<u8> {
    if calls.is_empty() {
        return Vec::new();
    }
    let mut bytes = b"KTM".to_vec();
    bytes.push(VERSION);
    bytes.extend((calls.len() as u32).to_le_bytes());
    for call in calls {
        bytes.extend((call.id.len() as u32).to_le_bytes());
        bytes.extend((call.written.len() as u32).to_le_bytes());
        bytes.extend(call.id.as_bytes());
        bytes.extend(&call.written);
    }
    bytes
}

pub(crate) fn decode_tools(bytes: &[u8]) -> Result<Vec<Remembered>, FileFault> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let mut cursor = Cursor::new("tool map", bytes);
    let [k, t, m, version] = cursor.array()?;
    expect("magic of the tool map", u32::from_le_bytes([k, t, m, 0]).into(), 0x4d_544b)?;
    expect("version of the tool map", version.into(), VERSION.into())?;
    let count = cursor.count(8)?;
    if count > TOOL_CALLS_MAX {
        return Err(FileFault::TooLarge { what: "tool calls", found: count as u64, max: TOOL_CALLS_MAX as u64 });
    }
    let mut calls = Vec::with_capacity(count);
    for _ in 0..count {
        let (id, written) = (cursor.u32()? as usize, cursor.u32()? as usize);
        if id > TOOL_ID_MAX {
            return Err(FileFault::TooLarge { what: "id of a tool call", found: id as u64, max: TOOL_ID_MAX as u64 });
        }
        let id = std::str::from_utf8(cursor.take(id)?)
            .map_err(|_| FileFault::Record("an id of a tool call is not text".into()))?;
        calls.push(Remembered { id: id.to_owned(), written: cursor.take(written)?.to_vec() });
    }
    cursor.end()?;
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tool_map_has_the_published_bytes() {
        let calls = [Remembered { id: "call_1".into(), written: b"<x>".to_vec() }];
        let bytes = encode_tools(&calls.iter().collect::<Vec<_>>());
        assert_eq!(bytes, b"KTM\x01\x01\0\0\0\x06\0\0\0\x03\0\0\0call_1<x>");
        assert!(decode_tools(&bytes).unwrap() == calls);
        assert!(encode_tools(&[]).is_empty());
    }

    #[test]
    fn a_cut_tool_map_is_refused_at_every_length() {
        let bytes = encode_tools(&[&Remembered { id: "call_1".into(), written: b"<x>".to_vec() }]);
        for len in 1..bytes.len() {
            assert!(decode_tools(&bytes[..len]).is_err(), "{len}");
        }
    }
}
