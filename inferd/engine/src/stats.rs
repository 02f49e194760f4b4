//! What the engine did since it started, readable from any thread.

use crate::ReuseKind;
use crate::engine::Queue;
use crate::rates::{Notes, Rates, Work};
use crate::running::End;
use ds4_banks::{Stats as DiskStats, Store};
use ds4_governor::{Governor, Reason};
use ds4_parking::Stats as ParkedStats;
use ds4_units::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters behind [`Stats`].
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
            /// Requests that memory could not carry, by reason.
            pub(crate) refusals: [Counter; Reason::ALL.len()],
            /// When requests got their banks, to say how long the next will wait.
            turnover: Mutex<Turnover>,
            /// What was done by when, to say how fast it goes.
            notes: OnceLock<Mutex<Notes>>,
        }

        /// Totals since the start, and what is there now, at one moment.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Stats { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            fn read(&self) -> Stats {
                Stats { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Requests taken.
    started,
    /// Requests answered to their end.
    completed,
    /// Requests that ended with a fault.
    failed,
    /// Requests whose readers left.
    canceled,
    /// Requests that memory could not carry.
    refused,
    /// Requests that began with an empty bank.
    admits_cold,
    /// Requests that went on where a kept conversation had ended.
    admits_exact,
    /// Requests that went on from inside a kept conversation, in its bank.
    admits_partial,
    /// Requests that went on from a copy of another conversation's beginning.
    admits_fork,
    /// Requests that went on where a conversation restored from disk had ended.
    admits_disk,
    /// Requests that went on with a conversation of a killed worker, in its memory.
    admits_adopted,
    /// Conversations of killed workers that could not be computed with.
    adopted_doubted,
    /// Prompt tokens computed.
    prefilled_computed,
    /// Prompt tokens that needed no computing.
    prefilled_cached,
    /// Answer tokens whose rows were computed.
    decoded,
    /// Guesses whose rows were computed.
    guesses,
    /// Guesses that were what was drawn.
    guesses_right,
    /// Times that guesses for an answer did not pay any more.
    guesses_quenched,
    /// Steps.
    steps,
    /// Steps with at least one answer row.
    decode_steps,
    /// Steps that the model refused.
    step_faults,
    /// Kept conversations given up for memory.
    reclaimed_banks,
    /// Bytes they held.
    reclaimed_bytes,
    /// Requests that had to compute what a conversation had held which was given up in the last ten minutes, and no other
    /// holds.
    refaults,
    /// Tokens of their prompts that were computed again.
    refault_tokens,
    /// Times that an idle conversation was asked for what it does not need.
    trims,
    /// Bytes they gave back.
    trimmed_bytes,
    /// Answers that were granted memory for more than they were charged for at first, each time.
    extensions_granted,
    /// Answers that were not, and so ended for their length.
    extensions_refused,
    /// Requests that have a bank now.
    running,
    /// Kept conversations now.
    warm,
    /// Conversations there may be at once.
    banks,
    /// Tokens in banks now.
    tokens_held,
    /// Blocks of tokens that these fill, the last of each conversation in part.
    blocks_held,
    /// Bytes that banks take now.
    bytes_held,
    /// Bytes that a token of the longest conversation is charged.
    bytes_priced,
}

/// A number that one thread changes and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: usize) {
        self.0.store(value as u64, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The usual time between two requests getting their banks while others wait.
#[derive(Clone, Copy, Debug, Default)]
struct Turnover {
    /// When the last one got its bank, or when others began to wait; nothing while nobody waits.
    last: Option<Instant>,
    /// Seconds.
    usual: Option<f64>,
}

impl Turnover {
    fn admissions(&mut self, count: usize, others_wait: bool, now: Instant) {
        if let Some(last) = self.last.filter(|_| count > 0) {
            let gap = (now - last).as_secs_f64() / count as f64;
            self.usual = Some(self.usual.map_or(gap, |usual| usual * 0.8 + gap * 0.2));
            self.last = None;
        }
        self.last = if others_wait { self.last.or(Some(now)) } else { None };
    }

    fn time_for(&self, requests: usize) -> Option<Duration> {
        Duration::try_from_secs_f64(self.usual? * requests as f64).ok()
    }
}

impl Counters {
    /// So many requests have got their banks, and others still wait or not.
    pub(crate) fn admissions(&self, count: usize, others_wait: bool) {
        self.turnover().admissions(count, others_wait, Instant::now());
    }

    /// How long it takes until so many requests have got their banks; nothing when that was never seen.
    pub(crate) fn time_for(&self, requests: usize) -> Option<Duration> {
        self.turnover().time_for(requests)
    }

    fn turnover(&self) -> MutexGuard<'_, Turnover> {
        self.turnover.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) -> Work {
        let (decoded, decode_steps) = (self.decoded.get(), self.decode_steps.get());
        Work { decoded, decode_steps, prefilled: self.prefilled_computed.get() }
    }

    /// Notes what was done until now. Called by the engine's thread every second at least, in quiet too.
    pub(crate) fn note_work(&self) {
        let now = Instant::now();
        let notes = self.notes.get_or_init(|| Mutex::new(Notes::new(now)));
        notes.lock().unwrap_or_else(PoisonError::into_inner).note(now, self.work());
    }

    fn rates(&self) -> Rates {
        let Some(notes) = self.notes.get() else { return Rates::default() };
        notes.lock().unwrap_or_else(PoisonError::into_inner).rates(Instant::now(), self.work())
    }

    /// Memory cannot carry a request.
    pub(crate) fn refused(&self, reason: Reason) {
        self.refused.add(1);
        self.refusals[reason as usize].add(1);
    }

    pub(crate) fn admitted(&self, reuse: ReuseKind, cached: usize) {
        let kind = match reuse {
            ReuseKind::Cold => &self.admits_cold,
            ReuseKind::Exact => &self.admits_exact,
            ReuseKind::Partial => &self.admits_partial,
            ReuseKind::Fork => &self.admits_fork,
            ReuseKind::Disk => &self.admits_disk,
            ReuseKind::Adopted => &self.admits_adopted,
        };
        kind.add(1);
        self.prefilled_cached.add(cached);
    }

    pub(crate) fn ended(&self, end: &End) {
        let kind = match end {
            End::Finished(..) => &self.completed,
            End::Fault(_) => &self.failed,
            End::Cancelled => &self.canceled,
        };
        kind.add(1);
    }
}

impl Stats {
    /// Requests that got a bank of this kind. Every one got a bank of some kind.
    pub fn admits(&self, kind: ReuseKind) -> u64 {
        match kind {
            ReuseKind::Cold => self.admits_cold,
            ReuseKind::Exact => self.admits_exact,
            ReuseKind::Partial => self.admits_partial,
            ReuseKind::Fork => self.admits_fork,
            ReuseKind::Disk => self.admits_disk,
            ReuseKind::Adopted => self.admits_adopted,
        }
    }
}

/// Where a running engine can be looked at. Reading never makes the engine wait.
#[derive(Clone)]
pub struct Observatory {
    pub(crate) counters: Arc<Counters>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) governor: Governor,
    pub(crate) store: Option<Arc<Store>>,
    pub(crate) parking: Option<Arc<dyn Fn() -> ParkedStats + Send + Sync>>,
}

impl Observatory {
    /// The totals now. Each is exact; together they are of about one moment.
    pub fn stats(&self) -> Stats {
        self.counters.read()
    }

    /// Requests that wait or run now, counted where they are: while nobody comes or goes, what was taken less what has
    /// ended.
    pub fn in_flight(&self) -> u64 {
        self.queue.waiting() as u64 + self.counters.running.get()
    }

    /// Bytes of answers that their readers have not taken yet.
    pub fn unread(&self) -> Bytes {
        self.queue.unread()
    }

    /// How fast it went lately.
    pub fn rates(&self) -> Rates {
        self.counters.rates()
    }

    /// What the conversations on disk did; `None` without a folder for them.
    pub fn disk(&self) -> Option<DiskStats> {
        self.store.as_ref().map(|store| store.stats())
    }

    /// Requests that memory could not carry for this reason.
    pub fn refusals(&self, reason: Reason) -> u64 {
        self.counters.refusals[reason as usize].get()
    }

    /// What was parked with a keeper; `None` where nothing is.
    pub fn parked(&self) -> Option<ParkedStats> {
        self.parking.as_ref().map(|read| read())
    }

    /// The memory account.
    pub fn governor(&self) -> &Governor {
        &self.governor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_foreseen_by_how_often_banks_came_free_while_others_waited() {
        let (mut turnover, start) = (Turnover::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        // Whoever gets a bank at once says nothing about waiting.
        turnover.admissions(3, false, at(0));
        turnover.admissions(1, true, at(100));
        assert_eq!(turnover.time_for(1), None);
        // Two got theirs 8 seconds after somebody began to wait: one in 4 seconds.
        turnover.admissions(0, true, at(105));
        turnover.admissions(2, true, at(108));
        assert_eq!(turnover.time_for(3), Some(Duration::from_secs(12)));
        // Slower now, by a fifth of the difference.
        turnover.admissions(1, false, at(117));
        assert_eq!(turnover.time_for(1), Some(Duration::from_secs(5)));
        // Nobody waited meanwhile.
        turnover.admissions(1, true, at(900));
        assert_eq!(turnover.time_for(1), Some(Duration::from_secs(5)));
    }
}
