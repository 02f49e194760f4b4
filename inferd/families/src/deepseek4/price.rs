//! What a conversation costs: the most that its bank ever holds.

use super::bank::checkpoints_most;
use super::layout::BankLayout;
use super::shape::Shape;
use ds4_kernels::backend::Backend;
use ds4_kernels::bank::{BLOCK_TOKENS, BankSizes};
use ds4_model::BankPrice;
use ds4_units::{Bytes, Tokens};

/// Prices on this backend, for a model of this shape, with a draft block or without.
pub(super) fn of<B: Backend>(shape: &Shape, with_draft: bool) -> BankPrice {
    let sizes = BankLayout::new::<B::Kv>(shape, with_draft).sizes;
    Box::new(move |tokens| price::<B>(sizes, tokens))
}

/// Blocks and the recurrent part as the backend takes memory for them, and every checkpoint that is kept beside them.
pub(super) fn price<B: Backend>(sizes: BankSizes, tokens: Tokens) -> Bytes {
    let bank = B::bank_memory(sizes, tokens.index().div_ceil(BLOCK_TOKENS));
    let checkpoints = checkpoints_most(tokens) as u64 * B::checkpoint_memory(sizes).0;
    Bytes(bank.0 + checkpoints)
}
