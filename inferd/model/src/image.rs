//! A bank's state as bytes: what outlives the process.

use ds4_units::{Bytes, Tokens};
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
