//! How many conversations fit, decided at boot.

use crate::{Floors, Observation};
use ds4_units::{Bytes, Tokens};
use std::fmt;

/// What conversations cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BankPrices {
    /// The longest conversation.
    pub context: Tokens,
    /// One of that length.
    pub full: Bytes,
    /// An empty one.
    pub empty: Bytes,
}

/// How many conversations there may be, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BankPlan {
    /// Conversations that run or are kept warm at once.
    pub banks: usize,
    /// Of these, conversations of full length that fit at once.
    pub full_length: usize,
    /// What all of them together may hold.
    pub budget: Bytes,
    /// Costs the plan was made with.
    pub prices: BankPrices,
    /// Bytes that one more of full length would need beyond the budget.
    pub next_needs: Bytes,
}

/// Conversations when the operator names no number and contexts are short.
const BANKS_MOST: usize = 32;
/// Fewest when the operator names no number: each of them may stay short.
const BANKS_FEWEST: usize = 4;
/// Up to this context every conversation is cheap.
const SHORT_CONTEXT: Tokens = Tokens(16 * 1024);

/// Plans for `asked` conversations, or for as many as the machine carries well: 32 of up to 16 Ki tokens; of longer
/// ones as many as fit at full length, but 4 to 32.
///
/// The budget is all that is free above the floors. Conversations are charged as they grow, so more of them than fit
/// at full length are no lie; each one's growth is decided when it comes.
pub fn plan_banks(observation: &Observation, floors: &Floors, prices: BankPrices, asked: Option<usize>) -> BankPlan {
    let kept = floors.floor.0.saturating_add(floors.substrate_outstanding.0);
    let budget = Bytes(observation.free.0.saturating_sub(kept));
    let full_length = budget.0.checked_div(prices.full.0).map_or(BANKS_MOST, |count| count as usize);
    let banks = asked.unwrap_or(if prices.context <= SHORT_CONTEXT {
        BANKS_MOST
    } else {
        full_length.clamp(BANKS_FEWEST, BANKS_MOST)
    });
    let next = prices.full.0.saturating_mul(full_length as u64 + 1);
    BankPlan { banks, full_length, budget, prices, next_needs: Bytes(next.saturating_sub(budget.0)) }
}

impl fmt::Display for BankPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "banks={} budget={} full_length={} of {} at {} tokens; one more of that length needs {} more",
            self.banks, self.budget, self.full_length, self.prices.full, self.prices.context.0, self.next_needs
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    fn plan(free: u64, context: u32, full: u64, asked: Option<usize>) -> BankPlan {
        let floors = Floors { floor: Bytes(100), substrate_outstanding: Bytes(20) };
        let prices = BankPrices { context: Tokens(context), full: Bytes(full), empty: Bytes(1) };
        plan_banks(&Observation::of(Source::MemAvailable, Bytes(free)), &floors, prices, asked)
    }

    #[test]
    fn long_conversations_are_counted_by_what_fits_at_full_length() {
        let plan = plan(120 + 1050, 262_144, 100, None);
        assert_eq!((plan.banks, plan.full_length, plan.budget, plan.next_needs), (10, 10, Bytes(1050), Bytes(50)));
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
        assert_eq!((plan.budget, plan.full_length, plan.next_needs), (Bytes::ZERO, 0, Bytes(100)));
    }
}
