//! What the store did, for people and metrics.

use crate::format::SaveReason;
use crate::store::{NotSaved, Saved};
use ds4_units::Bytes;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts since the worker started, and what is on disk now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Conversations on disk that this worker can use.
    pub files: u64,
    /// Bytes of all files of the folder.
    pub bytes: Bytes,
    /// Bytes they may take.
    pub budget: Bytes,
    /// Saves by reason: cold, continued, evict, shutdown.
    pub saves: [u64; 4],
    /// Saves that were not done because of the disk, the budget or a full queue.
    pub saves_failed: u64,
    /// Bytes written.
    pub written: Bytes,
    /// Restores.
    pub loads: u64,
    /// Restores that failed.
    pub loads_failed: u64,
    /// Tokens that restores saved computing.
    pub tokens_restored: u64,
    /// Bytes read by restores.
    pub read: Bytes,
    /// Files given up for room.
    pub evictions: u64,
    /// Files set aside as damaged.
    pub quarantined: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    saves: [AtomicU64; 4],
    saves_failed: AtomicU64,
    written: AtomicU64,
    loads: AtomicU64,
    loads_failed: AtomicU64,
    tokens_restored: AtomicU64,
    read: AtomicU64,
    evictions: AtomicU64,
    quarantined: AtomicU64,
}

impl Counters {
    pub(crate) fn saved(&self, reason: SaveReason, result: &Result<Saved, NotSaved>) {
        match result {
            Ok(saved) => {
                self.saves[reason as usize].fetch_add(1, Relaxed);
                self.written.fetch_add(saved.written.0, Relaxed);
            }
            // There is nothing that should have been done.
            Err(NotSaved::Stored) => {}
            Err(_) => {
                self.saves_failed.fetch_add(1, Relaxed);
            }
        }
    }

    pub(crate) fn loaded(&self, tokens: u32, read: Bytes) {
        self.loads.fetch_add(1, Relaxed);
        self.tokens_restored.fetch_add(tokens.into(), Relaxed);
        self.read.fetch_add(read.0, Relaxed);
    }

    pub(crate) fn load_failed(&self) {
        self.loads_failed.fetch_add(1, Relaxed);
    }

    pub(crate) fn evicted(&self) {
        self.evictions.fetch_add(1, Relaxed);
    }

    pub(crate) fn quarantined(&self) {
        self.quarantined.fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self, files: u64, bytes: Bytes, budget: Bytes) -> Stats {
        Stats {
            files,
            bytes,
            budget,
            saves: std::array::from_fn(|reason| self.saves[reason].load(Relaxed)),
            saves_failed: self.saves_failed.load(Relaxed),
            written: Bytes(self.written.load(Relaxed)),
            loads: self.loads.load(Relaxed),
            loads_failed: self.loads_failed.load(Relaxed),
            tokens_restored: self.tokens_restored.load(Relaxed),
            read: Bytes(self.read.load(Relaxed)),
            evictions: self.evictions.load(Relaxed),
            quarantined: self.quarantined.load(Relaxed),
        }
    }
}
