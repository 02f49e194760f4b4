//! Which kept conversations to give up for memory. Planned first and done only if it helps: nobody loses a conversation
//! for a request that is refused all the same.

use ds4_units::{BankId, Bytes};

/// A kept conversation, and what giving it up brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub(crate) bank: BankId,
    pub(crate) brings: Bytes,
}

/// The conversations whose memory covers `deficit`; `None` when all of them do not. They come in the order in which they
/// are to be given up: the least recently used first. The last one is the smallest of those that cover what is missing
/// then.
pub(crate) fn plan(deficit: Bytes, victims: impl IntoIterator<Item = Victim>) -> Option<Vec<BankId>> {
    let mut left: Vec<Victim> = victims.into_iter().collect();
    let mut missing = deficit.0;
    let mut chosen = Vec::new();
    while missing > 0 {
        let enough = left.iter().enumerate().filter(|(_, victim)| victim.brings.0 >= missing);
        let next = enough.min_by_key(|(at, victim)| (victim.brings, *at)).map_or(0, |(at, _)| at);
        if left.is_empty() {
            return None;
        }
        let victim = left.remove(next);
        missing = missing.saturating_sub(victim.brings.0);
        chosen.push(victim.bank);
    }
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(deficit: u64, brings: &[u64]) -> Option<Vec<u32>> {
        let victims =
            brings.iter().enumerate().map(|(bank, &bytes)| Victim { bank: BankId(bank as u32), brings: Bytes(bytes) });
        plan(Bytes(deficit), victims).map(|banks| banks.into_iter().map(|bank| bank.0).collect())
    }

    #[test]
    fn the_oldest_go_first_and_the_last_is_the_smallest_that_is_enough() {
        assert_eq!(planned(0, &[5]), Some(vec![]));
        assert_eq!(planned(10, &[4, 4, 4, 4]), Some(vec![0, 1, 2]));
        assert_eq!(planned(10, &[30, 12, 11, 40]), Some(vec![2]));
        assert_eq!(planned(10, &[4, 8, 7, 6]), Some(vec![0, 3]));
        assert_eq!(planned(10, &[10, 10]), Some(vec![0]));
    }

    #[test]
    fn nothing_is_given_up_when_all_together_are_not_enough() {
        assert_eq!(planned(10, &[4, 5]), None);
        assert_eq!(planned(1, &[]), None);
        assert_eq!(planned(5, &[0, 0, 5]), Some(vec![2]));
    }
}
