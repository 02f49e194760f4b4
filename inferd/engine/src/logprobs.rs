//! Log-probabilities of one position, before temperature and filters.

use crate::{Logprob, PositionLogprobs};
use ds4_units::TokenId;
use std::cmp::Ordering;

/// The drawn token and the `count` likeliest of a row of finite logits.
pub(crate) fn of_position(logits: &[f32], drawn: TokenId, count: usize) -> PositionLogprobs {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    // Summed in id order, so that equal logits give equal figures everywhere.
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - f64::from(highest)).exp()).sum();
    let offset = f64::from(highest) + sum.ln();
    let logprob =
        |token: u32| Logprob { token: TokenId(token), logprob: (f64::from(logits[token as usize]) - offset) as f32 };
    let top = likeliest(logits, count).into_iter().map(logprob).collect();
    PositionLogprobs { drawn: logprob(drawn.0), top }
}

/// The ids of the `count` largest logits, largest first, ties by id. One pass that keeps what is best so far: for the
/// few alternatives that anybody asks for, most logits cost one comparison.
fn likeliest(logits: &[f32], count: usize) -> Vec<u32> {
    let mut best: Vec<u32> = Vec::with_capacity(count.min(logits.len()) + 1);
    if count == 0 {
        return best;
    }
    for (id, logit) in (0u32..).zip(logits) {
        let beats = |other: &u32| logit.total_cmp(&logits[*other as usize]) == Ordering::Greater;
        if best.len() == count && !best.last().is_some_and(beats) {
            continue;
        }
        let place = best.partition_point(|other| !beats(other));
        best.insert(place, id);
        best.truncate(count);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_one_and_come_likeliest_first() {
        let found = of_position(&[1.0, 3.0, 2.0, 3.0], TokenId(2), 10);
        assert_eq!(found.top.iter().map(|entry| entry.token.0).collect::<Vec<_>>(), [1, 3, 2, 0]);
        let sum: f64 = found.top.iter().map(|entry| f64::from(entry.logprob).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
        assert_eq!(found.drawn, found.top[2]);
    }

    #[test]
    fn the_count_is_honoured_down_to_none() {
        assert_eq!(of_position(&[0.0, 5.0, 1.0], TokenId(0), 1).top.len(), 1);
        assert!(of_position(&[0.0, 5.0, 1.0], TokenId(0), 0).top.is_empty());
        let top = of_position(&[2.0, 1.0, 2.0, 3.0, 2.0], TokenId(0), 3).top;
        assert_eq!(top.iter().map(|entry| entry.token.0).collect::<Vec<_>>(), [3, 0, 2], "ties by id");
    }
}
