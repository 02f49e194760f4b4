//! What was parked, readable from any thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Totals since the start, and what is there now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Whether there is a keeper.
    pub connected: bool,
    /// Sets that the keeper has of this process.
    pub sets: u64,
    /// Sets handed over, again and again as they grow.
    pub parked: u64,
    /// Sets that the keeper refused, or that there was no keeper for.
    pub failed: u64,
    /// Times that a keeper was waited for in vain, or not waited for because it was still at what it had to do.
    pub late: u64,
    /// Times that a keeper was lost.
    pub lost: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connected: AtomicBool,
    pub(crate) sets: AtomicU64,
    pub(crate) parked: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) lost: AtomicU64,
    /// Another number whenever a keeper was found.
    pub(crate) connection: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> Stats {
        Stats {
            connected: self.connected.load(Relaxed),
            sets: self.sets.load(Relaxed),
            parked: self.parked.load(Relaxed),
            failed: self.failed.load(Relaxed),
            late: self.late.load(Relaxed),
            lost: self.lost.load(Relaxed),
        }
    }
}
