//! How fast it went lately: totals are noted from time to time, and a rate is a difference of two.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What "lately" means.
const WINDOW: Duration = Duration::from_secs(60);

/// Between two notes. A rate is as wrong as what happens in this time.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// Work since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Answer tokens computed.
    pub(crate) decoded: u64,
    /// Steps that computed some.
    pub(crate) decode_steps: u64,
    /// Prompt tokens computed.
    pub(crate) prefilled: u64,
}

/// How fast it went in the last 60 seconds, or since the engine started if that is shorter. Time in which nothing was
/// asked for counts as well.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Answer tokens a second.
    pub decoded: f64,
    /// Prompt tokens computed a second.
    pub prefilled: f64,
    /// Answer tokens for each step that computed any, of all requests together; 0 without such a step.
    pub tokens_per_step: f64,
}

/// Notes of the last [`WINDOW`], oldest first; never empty, and one of them is as old as the window when there is one.
#[derive(Debug)]
pub(crate) struct Notes(VecDeque<(Instant, Work)>);

impl Notes {
    pub(crate) fn new(now: Instant) -> Notes {
        Notes(VecDeque::from([(now, Work::default())]))
    }

    /// So much was done until `now`. To be called often, in quiet too.
    pub(crate) fn note(&mut self, now: Instant, work: Work) {
        if self.0.back().is_some_and(|&(at, _)| now.saturating_duration_since(at) < NOTE_EVERY) {
            return;
        }
        self.0.push_back((now, work));
        while self.0.get(1).is_some_and(|&(at, _)| now.saturating_duration_since(at) >= WINDOW) {
            self.0.pop_front();
        }
    }

    /// How fast it went until `now`.
    pub(crate) fn rates(&self, now: Instant, work: Work) -> Rates {
        let old = |(at, _): &&(Instant, Work)| now.saturating_duration_since(*at) >= WINDOW;
        let Some(&(since, before)) = self.0.iter().rev().find(old).or(self.0.front()) else { return Rates::default() };
        let seconds = now.saturating_duration_since(since).max(NOTE_EVERY).as_secs_f64();
        let decoded = work.decoded.saturating_sub(before.decoded) as f64;
        let steps = work.decode_steps.saturating_sub(before.decode_steps) as f64;
        Rates {
            decoded: decoded / seconds,
            prefilled: work.prefilled.saturating_sub(before.prefilled) as f64 / seconds,
            tokens_per_step: if steps > 0.0 { decoded / steps } else { 0.0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An engine that computes 50 prompt tokens, and 20 answer tokens in 10 steps, in every one of so many seconds.
    fn busy(notes: &mut Notes, start: Instant, seconds: u64) -> (Instant, Work) {
        let work = |second: u64| Work { decoded: 20 * second, decode_steps: 10 * second, prefilled: 50 * second };
        for tenth in 0..10 * seconds {
            notes.note(start + Duration::from_millis(100 * tenth), work(tenth / 10));
        }
        (start + Duration::from_secs(seconds), work(seconds))
    }

    #[test]
    fn a_steady_engine_has_its_rate_from_the_first_seconds_on_and_few_notes() {
        for seconds in [2, 30, 600] {
            let start = Instant::now();
            let mut notes = Notes::new(start);
            let (now, work) = busy(&mut notes, start, seconds);
            let rates = notes.rates(now, work);
            assert_eq!((rates.decoded, rates.prefilled, rates.tokens_per_step), (20.0, 50.0, 2.0), "{seconds} s");
            assert!(notes.0.len() <= 62, "{}", notes.0.len());
        }
    }

    #[test]
    fn what_was_done_longer_ago_is_forgotten_and_a_pause_counts() {
        let start = Instant::now();
        let mut notes = Notes::new(start);
        let (stopped, work) = busy(&mut notes, start, 30);
        let after = |second: u64| stopped + Duration::from_secs(second);
        (0..=30).for_each(|second| notes.note(after(second), work));
        assert_eq!(notes.rates(after(30), work).decoded, 10.0);
        (31..=60).for_each(|second| notes.note(after(second), work));
        assert_eq!(notes.rates(after(60), work), Rates::default());
        assert_eq!(Notes::new(start).rates(start, Work::default()), Rates::default());
    }
}
