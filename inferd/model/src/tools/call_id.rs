//! Ids of tool calls.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::fmt;

/// The id of a tool call: 16 bytes that clients see as 32 hexadecimal digits behind a prefix of their protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId([u8; 16]);

impl CallId {
    /// A new id from the operating system's generator.
    pub fn draw() -> CallId {
        let mut bytes = [0; 16];
        ChaCha8Rng::from_os_rng().fill_bytes(&mut bytes);
        CallId(bytes)
    }

    /// The id with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> CallId {
        CallId(bytes)
    }

    /// As a client spells it: `call_` and 32 digits, `toolu_` and 32 digits.
    pub fn with_prefix(self, prefix: &str) -> String {
        format!("{prefix}{:032x}", u128::from_be_bytes(self.0))
    }

    /// Reads what [`CallId::with_prefix`] printed, whatever the prefix. Ids that others drew are `None`.
    pub fn parse(id: &str) -> Option<CallId> {
        let digits = id.get(id.len().checked_sub(32)?..)?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let value = digits.bytes().all(is_digit).then(|| u128::from_str_radix(digits, 16).ok())??;
        Some(CallId(value.to_be_bytes()))
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallId({})", self.with_prefix(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_back_behind_any_prefix() {
        let id = CallId::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        assert_eq!(id.with_prefix("call_"), "call_000102030405060708090a0b0c0d0eff");
        for prefix in ["call_", "toolu_", "", "fc|"] {
            assert_eq!(CallId::parse(&id.with_prefix(prefix)), Some(id));
        }
    }

    #[test]
    fn ids_that_others_drew_are_none() {
        for id in ["", "call_1", "call_00112233445566778899AABBCCDDEEFF", "é00112233445566778899aabbccddee+f"] {
            assert_eq!(CallId::parse(id), None, "{id}");
        }
    }

    #[test]
    fn drawn_ids_differ() {
        assert_ne!(CallId::draw(), CallId::draw());
    }
}
