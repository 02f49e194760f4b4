//! What a conversation's state depends on besides its tokens.

use sha2::{Digest, Sha256};
use std::fmt;

/// What must be equal for a stored bank to be of use. Each identity has a subfolder of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Content root of the weights.
    pub weights: [u8; 32],
    /// Version of the prompt's rendering.
    pub renderer: String,
    /// How the bytes of a bank are laid out; the family's own words.
    pub layout: String,
}

/// The digest of an [`Identity`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdentityDigest(pub(crate) [u8; 32]);

impl Identity {
    /// Its digest. Lengths are hashed too, so no two identities give the same bytes to hash.
    pub fn digest(&self) -> IdentityDigest {
        let mut hash = Sha256::new();
        hash.update(b"ds4.kv-identity/1");
        hash.update(self.weights);
        for part in [&self.renderer, &self.layout] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        IdentityDigest(hash.finalize().into())
    }

    /// What a person reads in the subfolder.
    pub(crate) fn describe(&self) -> String {
        format!("weights {}\nrenderer {}\nlayout {}\n", hex::encode(self.weights), self.renderer, self.layout)
    }
}

impl IdentityDigest {
    /// The subfolder's name.
    pub fn folder(&self) -> String {
        hex::encode(&self.0[..16])
    }
}

impl fmt::Debug for IdentityDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.folder())
    }
}

/// Whether a subfolder's name is that of an identity.
pub(crate) fn is_identity_folder(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// The sizes that follow from an identity, and the limits of the worker that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Tokens of one block.
    pub block_tokens: u32,
    /// Bytes of one block.
    pub block_bytes: usize,
    /// Bytes of the recurrent part.
    pub recurrent_bytes: usize,
    /// The longest conversation this worker takes.
    pub context: u32,
    /// Token ids lie below this.
    pub vocabulary: u32,
}

impl Geometry {
    /// Blocks that `tokens` tokens take.
    pub fn blocks(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.block_tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_an_identity_decides_its_folder() {
        let base = Identity { weights: [1; 32], renderer: "a".into(), layout: "bc".into() };
        let moved = Identity { renderer: "ab".into(), layout: "c".into(), ..base.clone() };
        let other = Identity { weights: [2; 32], ..base.clone() };
        assert_ne!(base.digest(), moved.digest());
        assert_ne!(base.digest(), other.digest());
        assert!(is_identity_folder(&base.digest().folder()));
        assert!(!is_identity_folder("../../../../../../../../../../etc"));
    }
}
