//! The time, and when things happened to a request. Times decide which banks are kept, and nothing about an answer.

use crate::{ReuseKind, Timings};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What tells the engine the time by which it keeps banks for those who will come back.
#[derive(Clone)]
pub struct Watch(Arc<dyn Fn() -> Instant + Send + Sync>);

impl Watch {
    /// A watch of one's own: a test's, usually.
    pub fn new(now: impl Fn() -> Instant + Send + Sync + 'static) -> Watch {
        Watch(Arc::new(now))
    }

    pub(crate) fn now(&self) -> Instant {
        (self.0)()
    }
}

impl Default for Watch {
    /// The machine's.
    fn default() -> Watch {
        Watch::new(Instant::now)
    }
}

pub(crate) struct Clock {
    submitted: Instant,
    started: Instant,
    prefilled: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
    /// When the answer got its last token so far.
    last_taken: Option<Instant>,
}

impl Clock {
    /// The request has its bank now.
    pub(crate) fn start(submitted: Instant) -> Clock {
        let (prefilled, first_token, last_token, last_taken) = Default::default();
        Clock { submitted, started: Instant::now(), prefilled, first_token, last_token, last_taken }
    }

    /// The logits of the last prompt token are there.
    pub(crate) fn prefilled(&mut self) {
        self.prefilled.get_or_insert_with(Instant::now);
    }

    /// A token was drawn.
    pub(crate) fn token(&mut self) {
        let now = Instant::now();
        self.first_token.get_or_insert(now);
        self.last_token = Some(now);
    }

    /// The answer has one more token; how long after the one before it.
    pub(crate) fn taken(&mut self) -> Option<Duration> {
        let now = Instant::now();
        self.last_taken.replace(now).map(|before| now - before)
    }

    pub(crate) fn timings(&self, reuse: ReuseKind) -> Timings {
        let decode = match (self.first_token, self.last_token) {
            (Some(first), Some(last)) => last - first,
            _ => Duration::ZERO,
        };
        Timings {
            queued: self.started - self.submitted,
            prefill: self.prefilled.map_or(Duration::ZERO, |at| at - self.started),
            first_token: self.first_token.map(|at| at - self.submitted),
            decode,
            reuse,
            guesses: 0,
            guesses_right: 0,
        }
    }
}
