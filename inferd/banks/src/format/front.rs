//! The fixed beginning of the payload: what the index must know of a file without reading the rest.

use super::bytes::Cursor;
use super::{FileFault, at_most, check_crc, expect};
use crate::identity::{Geometry, IdentityDigest};
use crate::keys::{Digest, Keys, PrefixKey};
use crate::limits::{CHAIN_MAX, TOKENS_MAX};
use crate::name::Name;

/// "DSV4", as published payloads begin.
const MAGIC: u32 = 0x3456_5344;
const VERSION: u32 = 16;
const HAS_WHOLE: u32 = 1;
const HAS_OPEN: u32 = 2;
const HAS_PARENT: u32 = 4;

/// Bytes of an encoded front.
pub(crate) const FRONT_LEN: usize = 224;

/// The file that a file continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) name: Name,
    /// Digest of the tokens it ends with.
    pub(crate) tokens: Digest,
}

/// What the front says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Front {
    pub(crate) sections: u32,
    pub(crate) table_crc: u32,
    pub(crate) head_crc: u32,
    pub(crate) identity: IdentityDigest,
    pub(crate) keys: Keys,
    pub(crate) tokens: u32,
    pub(crate) parent: Option<Parent>,
    /// Files that come before this one.
    pub(crate) chain: u32,
    pub(crate) first_block: u32,
    pub(crate) block_tokens: u32,
    pub(crate) block_bytes: u64,
    pub(crate) recurrent_bytes: u64,
    pub(crate) tools_bytes: u64,
}

impl Front {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let open = self.keys.open.unwrap_or(PrefixKey { pieces: [0; 20], extra: 0, tokens: [0; 20] });
        let parent = self.parent.unwrap_or(Parent { name: Name([0; 20]), tokens: [0; 20] });
        let flag = |present: bool, flag: u32| if present { flag } else { 0 };
        let flags = flag(self.keys.whole.is_some(), HAS_WHOLE)
            | flag(self.keys.open.is_some(), HAS_OPEN)
            | flag(self.parent.is_some(), HAS_PARENT);
        let mut bytes = Vec::with_capacity(FRONT_LEN);
        let numbers = [MAGIC, VERSION, self.sections, self.table_crc, self.head_crc];
        numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes.extend(self.identity.0);
        bytes.extend(flags.to_le_bytes());
        bytes.extend(self.keys.whole.unwrap_or_default());
        bytes.extend(open.pieces);
        bytes.extend(open.extra.to_le_bytes());
        bytes.extend(open.tokens);
        bytes.extend(self.keys.all_tokens);
        bytes.extend(self.tokens.to_le_bytes());
        bytes.extend(parent.name.0);
        bytes.extend(parent.tokens);
        let numbers = [self.chain, self.first_block, self.block_tokens];
        numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        let numbers = [self.block_bytes, self.recurrent_bytes, self.tools_bytes];
        numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; FRONT_LEN]) -> Result<Front, FileFault> {
        let mut cursor = Cursor::new("front", bytes);
        expect("payload magic", cursor.u32()?.into(), MAGIC.into())?;
        let version = cursor.u32()?;
        if version != VERSION {
            return Err(FileFault::Foreign { what: "payload version", found: version });
        }
        let (summed, stated) = bytes.split_at(FRONT_LEN - 4);
        check_crc("front", summed, Cursor::new("front", stated).u32()?)?;
        let (sections, table_crc, head_crc) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
        let identity = IdentityDigest(cursor.array()?);
        let flags = cursor.u32()?;
        let whole = cursor.array()?;
        let open = PrefixKey { pieces: cursor.array()?, extra: cursor.u32()?, tokens: cursor.array()? };
        let all_tokens = cursor.array()?;
        let tokens = cursor.u32()?;
        let parent = Parent { name: Name(cursor.array()?), tokens: cursor.array()? };
        Ok(Front {
            sections,
            table_crc,
            head_crc,
            identity,
            keys: Keys {
                whole: (flags & HAS_WHOLE != 0).then_some(whole),
                open: (flags & HAS_OPEN != 0).then_some(open),
                all_tokens,
            },
            tokens,
            parent: (flags & HAS_PARENT != 0).then_some(parent),
            chain: cursor.u32()?,
            first_block: cursor.u32()?,
            block_tokens: cursor.u32()?,
            block_bytes: cursor.u64()?,
            recurrent_bytes: cursor.u64()?,
            tools_bytes: cursor.u64()?,
        })
    }

    /// Blocks in this file.
    pub(crate) fn blocks(&self) -> u32 {
        self.tokens.div_ceil(self.block_tokens.max(1)).saturating_sub(self.first_block)
    }

    /// Checks that the file is of this identity and that its sizes are the worker's own, which bounds what reading it
    /// may allocate.
    pub(crate) fn check(&self, identity: IdentityDigest, geometry: &Geometry) -> Result<(), FileFault> {
        if self.identity != identity {
            return Err(FileFault::Foreign { what: "identity", found: u32::from(self.identity.0[0]) });
        }
        expect("tokens of a block", self.block_tokens.into(), geometry.block_tokens.into())?;
        expect("bytes of a block", self.block_bytes, geometry.block_bytes as u64)?;
        expect("bytes of the recurrent part", self.recurrent_bytes, geometry.recurrent_bytes as u64)?;
        at_most("tokens", self.tokens.into(), TOKENS_MAX.into())?;
        let continues = self.parent.is_some();
        let (blocks_max, chain_max) = if continues { (geometry.blocks(self.tokens), CHAIN_MAX) } else { (0, 0) };
        at_most("first block", self.first_block.into(), blocks_max.into())?;
        at_most("chain", self.chain.into(), chain_max.into())?;
        let sections = 2 + u64::from(self.blocks()) + u64::from(self.tools_bytes > 0);
        expect("sections", self.sections.into(), sections)
    }
}
