//! How many conversations fit, decided at boot.

use crate::{Floors, Observation};
use ds4_units::{Bytes, Tokens};
use std::fmt;

/// Conversations of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthPlan {
    /// Tokens of each, prompt and answer together.
    pub tokens: Tokens,
    /// What one of them costs.
    pub price: Bytes,
    /// How many fit at once.
    pub fit: usize,
}

/// How many conversations there may be, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BankPlan {
    /// Conversations that run or are kept warm at once.
    pub banks: usize,
    /// What all of them together may hold.
    pub budget: Bytes,
    /// What an empty one costs.
    pub empty: Bytes,
    /// Conversations by their length, the shortest first; the last is the longest there may be.
    pub lengths: Vec<LengthPlan>,
    /// The last of them.
    pub full: LengthPlan,
    /// Bytes that one more of full length would need beyond the budget.
    pub next_needs: Bytes,
    /// The operator asked for so many banks.
    pub asked: bool,
}

/// A plan that cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum PlanError {
    #[error(
        "one conversation of {} tokens needs {needs}, and there are {budget} for all: a shorter context fits, or a lower \
         floor", .context.0
    )]
    Context { context: Tokens, needs: Bytes, budget: Bytes },
    #[error("{banks} conversations need {needs} before they hold a token, and there are {budget} for all")]
    Banks { banks: usize, needs: Bytes, budget: Bytes },
}

/// Conversations when the operator names no number and contexts are short.
const BANKS_MOST: usize = 32;
/// Fewest when the operator names no number: each of them may stay short.
const BANKS_FEWEST: usize = 4;
/// Up to this context every conversation is cheap.
const SHORT_CONTEXT: Tokens = Tokens(16 * 1024);
/// Lengths that a plan names beside the longest.
const LENGTHS: [u32; 4] = [1 << 10, 1 << 12, 1 << 14, 1 << 16];

/// Plans for `asked` conversations, or for as many as the machine carries well: 32 of up to 16 Ki tokens; of longer
/// ones as many as fit at full length, but 4 to 32. `price` is what a conversation of so many tokens costs.
///
/// The budget is all that is free above the floors. Conversations are charged as they grow, so more of them than fit
/// at full length are no lie; each one's growth is decided when it comes.
pub fn plan_banks(
    observation: &Observation,
    floors: &Floors,
    context: Tokens,
    price: impl Fn(Tokens) -> Bytes,
    asked: Option<usize>,
) -> BankPlan {
    let kept = floors.floor.0.saturating_add(floors.substrate_outstanding.0);
    let budget = Bytes(observation.free.0.saturating_sub(kept));
    let length = |tokens: Tokens| {
        let price = price(tokens);
        LengthPlan { tokens, price, fit: budget.0.checked_div(price.0).map_or(BANKS_MOST, |count| count as usize) }
    };
    let shorter = LENGTHS.into_iter().map(Tokens).filter(|&tokens| tokens < context);
    let lengths: Vec<LengthPlan> = shorter.chain([context]).map(length).collect();
    let full = length(context);
    let auto = if context <= SHORT_CONTEXT { BANKS_MOST } else { full.fit.clamp(BANKS_FEWEST, BANKS_MOST) };
    let next = full.price.0.saturating_mul(full.fit as u64 + 1);
    BankPlan {
        banks: asked.unwrap_or(auto),
        budget,
        empty: price(Tokens(0)),
        lengths,
        full,
        next_needs: Bytes(next.saturating_sub(budget.0)),
        asked: asked.is_some(),
    }
}

impl BankPlan {
    /// Whether the plan can be kept: at least one conversation may grow to the whole context, and as many as were asked
    /// for may begin.
    ///
    /// # Errors
    /// What is missing, with the numbers.
    pub fn check(&self) -> Result<(), PlanError> {
        let budget = self.budget;
        if self.full.fit == 0 {
            return Err(PlanError::Context { context: self.full.tokens, needs: self.full.price, budget });
        }
        let needs = Bytes(self.empty.0.saturating_mul(self.banks as u64));
        if self.asked && needs > budget {
            return Err(PlanError::Banks { banks: self.banks, needs, budget });
        }
        Ok(())
    }
}

impl fmt::Display for BankPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LengthPlan { tokens, price, fit } = self.full;
        write!(
            f,
            "banks={} budget={} full_length={fit} of {price} at {} tokens; one more of that length needs {} more",
            self.banks, self.budget, tokens.0, self.next_needs
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    fn plan(free: u64, context: u32, full: u64, asked: Option<usize>) -> BankPlan {
        let floors = Floors { floor: Bytes(100), substrate_outstanding: Bytes(20) };
        let price = move |tokens: Tokens| if tokens.0 == context { Bytes(full) } else { Bytes(1) };
        let observation = Observation::of(Source::MemAvailable, Bytes(free));
        plan_banks(&observation, &floors, Tokens(context), price, asked)
    }

    #[test]
    fn long_conversations_are_counted_by_what_fits_at_full_length() {
        let plan = plan(120 + 1050, 262_144, 100, None);
        assert_eq!((plan.banks, plan.full.fit, plan.budget, plan.next_needs), (10, 10, Bytes(1050), Bytes(50)));
        let lengths: Vec<u32> = plan.lengths.iter().map(|length| length.tokens.0).collect();
        assert_eq!(lengths, [1024, 4096, 16_384, 65_536, 262_144]);
        assert_eq!(plan.check(), Ok(()));
    }

    #[test]
    fn short_ones_are_many_and_an_asked_number_stands() {
        assert_eq!(plan(1000, 16_384, 100, None).banks, 32);
        assert_eq!(plan(1000, 262_144, 1_000_000, None).banks, 4);
        assert_eq!(plan(1 << 40, 262_144, 100, None).banks, 32);
        assert_eq!(plan(1000, 262_144, 100, Some(7)).banks, 7);
    }

    #[test]
    fn below_the_floor_there_is_no_budget() {
        let plan = plan(50, 262_144, 100, None);
        assert_eq!((plan.budget, plan.full.fit, plan.next_needs), (Bytes::ZERO, 0, Bytes(100)));
    }

    #[test]
    fn a_plan_that_cannot_be_kept_says_what_is_missing() {
        let short = plan(120 + 99, 262_144, 100, None).check();
        let (context, needs, budget) = (Tokens(262_144), Bytes(100), Bytes(99));
        assert_eq!(short, Err(PlanError::Context { context, needs, budget }));
        let many = plan(120 + 100, 262_144, 100, Some(101)).check();
        assert_eq!(many, Err(PlanError::Banks { banks: 101, needs: Bytes(101), budget: Bytes(100) }));
    }
}
