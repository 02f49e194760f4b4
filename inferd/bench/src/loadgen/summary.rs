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

fn gaps(request: &Request) -> impl Iterator<Item = Duration> {
    request.felt.texts.windows(2).map(|pair| pair[1] - pair[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let latencies = Latencies::new((1..=10).rev().map(Duration::from_millis).collect());
        let percentile = |percent| latencies.percentile(percent).unwrap().as_millis();
        assert_eq!([0.0, 50.0, 90.0, 91.0, 100.0].map(percentile), [1, 5, 9, 10, 10]);
        assert_eq!(Latencies::default().percentile(50.0), None);
    }
}
