//! What the engine did since it started, readable from any thread.

use crate::ReuseKind;
use crate::running::End;
use ds4_banks::{Stats as DiskStats, Store};
use ds4_governor::Governor;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters behind [`Stats`].
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: Counter,)* }

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
    /// Prompt tokens computed.
    prefilled_computed,
    /// Prompt tokens that needed no computing.
    prefilled_cached,
    /// Answer tokens whose rows were computed.
    decoded,
    /// Steps.
    steps,
    /// Steps with at least one answer row.
    decode_steps,
    /// Steps that the model refused.
    step_faults,
    /// Kept conversations given up for memory.
    reclaimed_banks,
    /// Requests that have a bank now.
    running,
    /// Kept conversations now.
    warm,
    /// Conversations there may be at once.
    banks,
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

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(crate) fn admitted(&self, reuse: ReuseKind, cached: usize) {
        let kind = match reuse {
            ReuseKind::Cold => &self.admits_cold,
            ReuseKind::Exact => &self.admits_exact,
            ReuseKind::Partial => &self.admits_partial,
            ReuseKind::Fork => &self.admits_fork,
            ReuseKind::Disk => &self.admits_disk,
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
    /// Requests taken and not ended: waiting and running ones.
    pub fn inflight(&self) -> u64 {
        self.started.saturating_sub(self.completed + self.failed + self.canceled + self.refused)
    }
}

/// Where a running engine can be looked at. Reading never makes the engine wait.
#[derive(Clone, Debug)]
pub struct Observatory {
    pub(crate) counters: Arc<Counters>,
    pub(crate) governor: Governor,
    pub(crate) store: Option<Arc<Store>>,
}

impl Observatory {
    /// The totals now. Each is exact; together they are of about one moment.
    pub fn stats(&self) -> Stats {
        self.counters.read()
    }

    /// What the conversations on disk did; `None` without a folder for them.
    pub fn disk(&self) -> Option<DiskStats> {
        self.store.as_ref().map(|store| store.stats())
    }

    /// The memory account.
    pub fn governor(&self) -> &Governor {
        &self.governor
    }
}
