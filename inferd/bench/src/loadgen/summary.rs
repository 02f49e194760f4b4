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
    /// From arrival to the first text.
    pub(crate) first_token: Latencies,
    /// Between one text and the next.
    pub(crate) between_tokens: Latencies,
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
            between_tokens: Latencies::new(answered().flat_map(gaps).collect()),
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
    request.felt.texts.first().map(|&first| first - request.arrived)
}

pub(crate) fn whole(request: &Request) -> Duration {
    request.felt.ended - request.arrived
}

/// Tokens a second from the last first text to the first last text, and the time between them; `None` when the answers
/// were never all being written.
fn all_writing(answered: &[&Request]) -> Option<(f64, Duration)> {
    let from = answered.iter().map(|request| request.felt.texts.first()).max()??;
    let until = answered.iter().map(|request| request.felt.texts.last()).min()??;
    let time = until.checked_duration_since(*from).filter(|time| !time.is_zero())?;
    let within = |request: &&Request| {
        let texts = &request.felt.texts;
        let share = texts.iter().filter(|text| *from < **text && **text <= *until).count() as f64 / texts.len() as f64;
        // A piece of text is a token or a few.
        share * request.felt.usage.completion as f64
    };
    Some((answered.iter().map(within).sum::<f64>() / time.as_secs_f64(), time))
}

fn gaps(request: &Request) -> impl Iterator<Item = Duration> {
    request.felt.texts.windows(2).map(|pair| pair[1] - pair[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Felt;
    use crate::sse::Usage;
    use std::time::Instant;

    #[test]
    fn the_rate_while_all_write_counts_only_what_came_then() {
        let start = Instant::now();
        let request = |times: &[u64]| {
            let texts: Vec<Instant> = times.iter().map(|&ms| start + Duration::from_millis(ms)).collect();
            let usage = Usage { completion: times.len() as u64, ..Usage::default() };
            let felt = Felt { ended: start, texts, usage, end: End::Answered };
            Request { index: 0, arrived: start, felt }
        };
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
