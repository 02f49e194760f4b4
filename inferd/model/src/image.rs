//! A bank's state as bytes: what outlives the process.

use ds4_units::{BankId, Bytes, TokenId, Tokens};
use std::sync::Arc;

/// One block's bytes, shared with the bank where the backend can.
pub type BlockBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A bank at one frontier. Nobody outside the family interprets the bytes.
#[derive(Clone)]
pub struct BankImage {
    /// Blocks, in order.
    pub blocks: Vec<BlockBytes>,
    /// What is not append-only.
    pub recurrent: Vec<u8>,
}

/// A stored bank on its way into a model, a part at a time: its image was checked, on whatever thread.
pub struct Import {
    tokens: Vec<TokenId>,
    image: BankImage,
    /// The bank that is being filled, once there is one.
    pub bank: Option<BankId>,
    /// Blocks that it has.
    pub blocks: usize,
}

/// Looks at a stored bank of so many tokens; says what is wrong with bytes that no bank can have.
pub type ImageCheck = Arc<dyn Fn(Tokens, &BankImage) -> Result<(), String> + Send + Sync>;

impl Import {
    /// An import of a bank of these tokens, whose image the model's [`ImageCheck`] has found to be right.
    pub fn of_checked(tokens: Vec<TokenId>, image: BankImage) -> Import {
        Import { tokens, image, bank: None, blocks: 0 }
    }

    /// What the bank will hold.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Its bytes.
    pub fn image(&self) -> &BankImage {
        &self.image
    }
}

/// How a model lays out its banks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BankFormat {
    /// Names everything the bytes depend on besides weights and tokens. Banks of another layout are of no use.
    pub layout: String,
    /// Tokens of one block.
    pub block_tokens: Tokens,
    /// One block.
    pub block: Bytes,
    /// The recurrent part.
    pub recurrent: Bytes,
}
