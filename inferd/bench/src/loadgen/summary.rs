//! From what every request felt to a few numbers.

use crate::client::End;
use crate::run::{Outcome, Request};
use std::collections::BTreeMap;
use std::time::Duration;

/// Durations in order, for percentiles.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    fn new(mut all: Vec<Duration>) -> Latencies {
        all.sort();
        Latencies(all)
    }

    /// The smallest value that so many percent do not exceed (nearest rank); `None` without values.
    pub(crate) fn percentile(&self, percent: f64) -> Option<Duration> {
        let rank = (percent / 100.0 * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.max(1) - 1).copied()
    }

    pub(crate) fn all(&self) -> &[Duration] {
        &self.0
    }
}

/// What a run comes to.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub(crate) requests: usize,
    /// How requests ended that were not answered, and how many did.
    pub(crate) failures: BTreeMap<End, usize>,
    /// From the first arrival to the last end.
    pub(crate) wall: Duration,
    /// From arrival to the first piece of the answer.
    pub(crate) first_token: Latencies,
    /// Between one token and the next: those of a piece share the time since the piece before.
    pub(crate) between_tokens: Latencies,
    /// Between one piece and the next.
    pub(crate) between_pieces: Latencies,
    /// From arrival to the end.
    pub(crate) whole: Latencies,
    /// Tokens a second while every answer was being written, and for how long that was.
    pub(crate) all_writing: Option<(f64, Duration)>,
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) completion_tokens: u64,
}

impl Summary {
    /// Latencies are those of answered requests: a refusal is quick and must not look like speed.
    pub(crate) fn of(outcome: &Outcome) -> Summary {
        let answered = || outcome.requests.iter().filter(|request| request.felt.end == End::Answered);
        let mut failures = BTreeMap::new();
        for request in outcome.requests.iter().filter(|request| request.felt.end != End::Answered) {
            *failures.entry(request.felt.end.clone()).or_default() += 1;
        }
        let last = outcome.requests.iter().map(|request| request.felt.ended).max();
        let sum = |count: fn(&Request) -> u64| answered().map(count).sum();
        Summary {
            requests: outcome.requests.len(),
            failures,
            wall: last.map_or(Duration::ZERO, |last| last - outcome.started),
            first_token: Latencies::new(answered().filter_map(first_token).collect()),
            between_tokens: Latencies::new(answered().flat_map(token_gaps).collect()),
            between_pieces: Latencies::new(answered().flat_map(|request| gaps(request).map(|(gap, _)| gap)).collect()),
            whole: Latencies::new(answered().map(whole).collect()),
            all_writing: all_writing(&answered().collect::<Vec<_>>()),
            prompt_tokens: sum(|request| request.felt.usage.prompt),
            cached_tokens: sum(|request| request.felt.usage.cached),
            completion_tokens: sum(|request| request.felt.usage.completion),
        }
    }

    pub(crate) fn failed(&self) -> usize {
        self.failures.values().sum()
    }
}

pub(crate) fn first_token(request: &Request) -> Option<Duration> {
    request.felt.pieces.first().map(|first| first.at - request.arrived)
}

pub(crate) fn whole(request: &Request) -> Duration {
    request.felt.ended - request.arrived
}

/// Tokens a second from the last first piece to the first last piece, and the time between them; `None` when the answers
/// were never all being written.
fn all_writing(answered: &[&Request]) -> Option<(f64, Duration)> {
    let from = answered.iter().map(|request| request.felt.pieces.first().map(|piece| piece.at)).max()??;
    let until = answered.iter().map(|request| request.felt.pieces.last().map(|piece| piece.at)).min()??;
    let time = until.checked_duration_since(from).filter(|time| !time.is_zero())?;
    let within = |request: &&Request| -> f64 {
        request.felt.arrivals().filter(|&(at, _)| from < at && at <= until).map(|(_, tokens)| tokens).sum()
    };
    Some((answered.iter().map(within).sum::<f64>() / time.as_secs_f64(), time))
}

/// Times between pieces, and the tokens that the later one brought.
fn gaps(request: &Request) -> impl Iterator<Item = (Duration, f64)> {
    let arrivals = request.felt.arrivals();
    arrivals.clone().zip(arrivals.skip(1)).map(|((before, _), (at, tokens))| (at - before, tokens))
}

fn token_gaps(request: &Request) -> impl Iterator<Item = Duration> {
    gaps(request).flat_map(|(gap, tokens)| {
        let tokens = tokens.round().max(1.0);
        std::iter::repeat_n(gap.div_f64(tokens), tokens as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Felt, Piece};
    use crate::sse::Usage;
    use std::time::Instant;

    fn request(start: Instant, pieces: &[(u64, Option<usize>)]) -> Request {
        let at = |ms| start + Duration::from_millis(ms);
        let pieces: Vec<Piece> = pieces.iter().map(|&(ms, tokens)| Piece { at: at(ms), tokens }).collect();
        let usage = Usage { completion: 8, ..Usage::default() };
        Request { index: 0, arrived: start, felt: Felt { ended: start, pieces, usage, end: End::Answered } }
    }

    #[test]
    fn tokens_that_come_together_are_counted_and_the_first_piece_is_before_the_time_measured() {
        let start = Instant::now();
        // A token every 10 ms, of which some have no text of their own, and five before the first piece.
        let counted = request(start, &[(50, Some(5)), (60, Some(1)), (80, Some(2)), (110, Some(3))]);
        let (rate, time) = all_writing(&[&counted]).unwrap();
        assert_eq!((rate.round(), time), (100.0, Duration::from_millis(60)));
        assert!(token_gaps(&counted).all(|gap| gap == Duration::from_millis(10)));
        assert_eq!(token_gaps(&counted).count(), 6);
        let longest = gaps(&counted).map(|(gap, _)| gap).max();
        assert_eq!(longest, Some(Duration::from_millis(30)));
        // A server that does not count: eight tokens in four pieces.
        let uncounted = request(start, &[(50, None), (60, None), (80, None), (110, None)]);
        assert_eq!(all_writing(&[&uncounted]).unwrap().0.round(), 100.0);
    }

    #[test]
    fn the_rate_while_all_write_counts_only_what_came_then() {
        let start = Instant::now();
        let request = |times: &[u64]| request(start, &times.iter().map(|&ms| (ms, Some(1))).collect::<Vec<_>>());
        // Both write from 100 to 300 ms: two tokens of the first and four of the second.
        let (first, second) = (request(&[100, 200, 300, 400]), request(&[50, 100, 150, 200, 250, 300]));
        let (rate, time) = all_writing(&[&first, &second]).unwrap();
        assert_eq!((rate.round(), time), (30.0, Duration::from_millis(200)));
        assert_eq!(all_writing(&[&first, &request(&[500, 600])]), None);
        assert_eq!(all_writing(&[]), None);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let latencies = Latencies::new((1..=10).rev().map(Duration::from_millis).collect());
        let percentile = |percent| latencies.percentile(percent).unwrap().as_millis();
        assert_eq!([0.0, 50.0, 90.0, 91.0, 100.0].map(percentile), [1, 5, 9, 10, 10]);
        assert_eq!(Latencies::default().percentile(50.0), None);
    }
}
