//! Requests that begin alike and come together: the beginning is computed once.
//!
//! A request whose prompt begins as one that is being computed waits until that beginning is in the other's bank, which
//! is no later than it could have computed it itself, and goes on from a copy.

use crate::running::Running;
use crate::scheduler::Waiting;
use ds4_units::BankId;

/// Tokens that following must save: less is computed sooner than waited for.
const SAVED_MIN: usize = 128;

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Following {
    pub(crate) bank: BankId,
    /// Tokens in that bank.
    pub(crate) until: usize,
}

/// The progress of another request that this one is to wait for, if any. The other one must stop there for a moment, so
/// that its bank can be copied at that very token. `cached` says how many tokens the request would have without waiting.
pub(crate) fn leader(waiting: &Waiting, running: &[Running], cached: impl FnOnce() -> usize) -> Option<Following> {
    if waiting.request.prompt_logprobs {
        return None;
    }
    let is_ahead = |following: &Following| {
        running.iter().any(|leader| leader.bank == following.bank && leader.computed() < following.until)
    };
    if let Some(following) = waiting.following.filter(is_ahead) {
        return Some(following);
    }
    let prompt = &waiting.request.prompt;
    let ahead = running.iter().filter(|leader| leader.is_filling()).map(|leader| {
        let overlap = leader.record().0.overlap(prompt);
        // The last token is always computed: its logits choose the first of the answer.
        Following { bank: leader.bank, until: overlap.reused.index().min(overlap.total.index().saturating_sub(1)) }
    });
    let best = ahead.max_by_key(|following| following.until)?;
    (best.until >= SAVED_MIN && is_ahead(&best) && best.until >= cached() + SAVED_MIN).then_some(best)
}
