//! Why memory was not promised, in words a client can act on.

use crate::class::labels;
use crate::{Quote, Verdict};
use ds4_units::{Bytes, Tokens};
use std::time::Duration;

labels! {
    /// Why, as metrics and clients spell it.
    Reason {
        /// More than the plan allows.
        ClassBudget = "class_budget",
        /// Not enough free now.
        LiveHeadroom = "live_headroom",
        /// Memory could not be measured.
        ObsRetry = "obs_retry",
        /// The machine cannot measure memory.
        Unsupported = "unsupported",
        /// The account contradicts itself.
        Fault = "fault",
        /// The machine is running out of memory, whoever takes it.
        Pressure = "pressure",
    }
}

impl Reason {
    /// Whether the same request may succeed later.
    pub fn retryable(self) -> bool {
        matches!(self, Reason::LiveHeadroom | Reason::ObsRetry | Reason::Pressure)
    }
}

/// A request that was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// Bytes that are missing.
    pub deficit: Bytes,
    /// Tokens, prompt and answer together, that would have been admitted.
    pub max_admissible_tokens: Tokens,
    /// When there may be room, as far as that is known: when what runs now has ended.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// The refusal of a quote that admits nothing; `None` for one that does.
    pub fn of(quote: &Quote, max_admissible_tokens: Tokens) -> Option<Refusal> {
        let reason = match quote.verdict {
            Verdict::Admit => return None,
            Verdict::RefuseClass => Reason::ClassBudget,
            Verdict::RefuseLive => Reason::LiveHeadroom,
            Verdict::RetryObservation => Reason::ObsRetry,
            Verdict::Unsupported => Reason::Unsupported,
            Verdict::Fault => Reason::Fault,
        };
        Some(Refusal { reason, deficit: quote.deficit, max_admissible_tokens, retry_after: None })
    }

    /// The refusal while the machine is running out of memory.
    pub fn of_pressure() -> Refusal {
        let (deficit, max_admissible_tokens) = (Bytes::ZERO, Tokens(0));
        Refusal { reason: Reason::Pressure, deficit, max_admissible_tokens, retry_after: None }
    }

    fn text(&self) -> String {
        let tokens = self.max_admissible_tokens.0;
        let deficit = self.deficit;
        match self.reason {
            Reason::ClassBudget => format!(
                "the conversation needs {deficit} more than all conversations may hold here, whoever ends; with at most \
                 {tokens} tokens, prompt and answer together, it fits"
            ),
            Reason::LiveHeadroom => format!(
                "{deficit} of memory are missing now; try again later, or with at most {tokens} tokens, prompt and \
                 answer together"
            ),
            Reason::ObsRetry => "free memory could not be measured; try again".into(),
            Reason::Unsupported => "this machine cannot say how much memory is free".into(),
            Reason::Pressure => "the machine is running out of memory; try again later".into(),
            Reason::Fault => "the memory account contradicts itself; this is a defect, please report it".into(),
        }
    }
}

/// The most tokens whose price is within `budget`, up to `most`. `price` never falls as tokens grow.
pub fn most_tokens_within(budget: Bytes, most: Tokens, price: impl Fn(Tokens) -> Bytes) -> Tokens {
    let (mut fits, mut above) = (0, most.0 + 1);
    if price(Tokens(0)) > budget {
        return Tokens(0);
    }
    while above - fits > 1 {
        let middle = fits + (above - fits) / 2;
        if price(Tokens(middle)) <= budget {
            fits = middle;
        } else {
            above = middle;
        }
    }
    Tokens(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_tokens_are_found_exactly() {
        // Blocks of 128 tokens at 1,000 bytes each, and 500 bytes for the conversation itself.
        let price = |tokens: Tokens| Bytes(500 + u64::from(tokens.0.div_ceil(128)) * 1000);
        let most = |budget| most_tokens_within(Bytes(budget), Tokens(4096), price).0;
        assert_eq!([most(499), most(500), most(1499), most(1500), most(2600)], [0, 0, 0, 128, 256]);
        assert_eq!([most(32_499), most(32_500), most(u64::MAX)], [3968, 4096, 4096]);
    }

    #[test]
    fn only_what_time_can_mend_is_retryable() {
        let retryable: Vec<&str> =
            Reason::ALL.iter().filter(|reason| reason.retryable()).map(|reason| reason.name()).collect();
        assert_eq!(retryable, ["live_headroom", "obs_retry", "pressure"]);
    }
}
