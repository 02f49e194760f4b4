//! What the store did, for people and metrics.

use crate::format::SaveReason;
use crate::store::{NotSaved, Saved};
use ds4_units::Bytes;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

macro_rules! kinds {
    ($(#[$doc:meta])* $type:ident { $($(#[$variant_doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type { $($(#[$variant_doc])* $variant,)* }

        impl $type {
            /// All of them, in the order of their counts.
            pub const ALL: &[$type] = &[$($type::$variant),*];

            /// As metrics spell it.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)* }
            }
        }
    };
}

kinds! {
    /// How a stored conversation was found to be a prompt's beginning.
    HitKind {
        /// By whole pieces.
        Pieces = "pieces",
        /// By whole pieces and the first tokens of the text after them.
        InsideText = "inside_text",
        /// By tokens alone: the prompt is cut into other pieces.
        Tokens = "tokens",
    }
}

kinds! {
    /// Why nothing was restored for a prompt.
    Miss {
        /// No stored conversation is its beginning.
        Nothing = "nothing",
        /// One is, but a bank in memory has as much or nearly as much.
        Little = "little",
        /// Too many restores wait already.
        Busy = "busy",
        /// What was found could not be read.
        Failed = "failed",
    }
}

kinds! {
    /// Why a file was given up.
    Eviction {
        /// The budget.
        Budget = "budget",
        /// The file system was full.
        DiskFull = "disk_full",
    }
}

kinds! {
    /// When a file turned out bad.
    Quarantine {
        /// When the folder was read.
        Index = "index",
        /// When it was restored.
        Restore = "restore",
        /// The model refused it, or could not compute with it.
        Model = "model",
    }
}

/// Counts since the worker started, and what is on disk now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Conversations on disk that this worker can use.
    pub files: u64,
    /// Bytes of all files of the folder.
    pub bytes: Bytes,
    /// Bytes they may take.
    pub budget: Bytes,
    /// How long reading the folder took.
    pub index_time: Duration,
    /// Saves by reason: cold, continued, evict, shutdown.
    pub saves: [u64; 4],
    /// Saves that were not done because of the disk, the budget or a full queue, by reason.
    pub saves_failed: [u64; 4],
    /// Conversations that wait to be written, or are being.
    pub waiting: u64,
    /// Bytes written.
    pub written: Bytes,
    /// Time that saves took.
    pub save_time: Duration,
    /// Prompts whose beginning was found, in the order of [`HitKind::ALL`].
    pub hits: [u64; 3],
    /// Prompts for which nothing was restored, in the order of [`Miss::ALL`].
    pub misses: [u64; 4],
    /// Restores.
    pub loads: u64,
    /// Restores that failed.
    pub loads_failed: u64,
    /// Tokens that restores saved computing.
    pub tokens_restored: u64,
    /// Bytes read by restores.
    pub read: Bytes,
    /// Time that restores took, failed ones included.
    pub load_time: Duration,
    /// Files given up for room, in the order of [`Eviction::ALL`].
    pub evictions: [u64; 2],
    /// Files set aside as damaged, in the order of [`Quarantine::ALL`].
    pub quarantined: [u64; 3],
}

#[derive(Default)]
pub(crate) struct Counters {
    index_us: AtomicU64,
    saves: [AtomicU64; 4],
    saves_failed: [AtomicU64; 4],
    waiting: AtomicU64,
    written: AtomicU64,
    save_us: AtomicU64,
    hits: [AtomicU64; 3],
    misses: [AtomicU64; 4],
    loads: AtomicU64,
    loads_failed: AtomicU64,
    tokens_restored: AtomicU64,
    read: AtomicU64,
    load_us: AtomicU64,
    evictions: [AtomicU64; 2],
    quarantined: [AtomicU64; 3],
}

impl Counters {
    pub(crate) fn indexed(&self, took: Duration) {
        self.index_us.store(micros(took), Relaxed);
    }

    pub(crate) fn saved(&self, reason: SaveReason, result: &Result<Saved, NotSaved>, took: Duration) {
        match result {
            Ok(saved) => {
                add(&self.saves[reason as usize], 1);
                add(&self.written, saved.written.0);
                add(&self.save_us, micros(took));
            }
            // There is nothing that should have been done.
            Err(NotSaved::Stored) => {}
            Err(_) => add(&self.saves_failed[reason as usize], 1),
        }
    }

    pub(crate) fn waits(&self) {
        add(&self.waiting, 1);
    }

    pub(crate) fn waits_no_more(&self) {
        self.waiting.fetch_sub(1, Relaxed);
    }

    pub(crate) fn waiting(&self) -> u64 {
        get(&self.waiting)
    }

    pub(crate) fn hit(&self, kind: HitKind) {
        add(&self.hits[kind as usize], 1);
    }

    pub(crate) fn missed(&self, why: Miss) {
        add(&self.misses[why as usize], 1);
    }

    pub(crate) fn loaded(&self, tokens: u32, read: Bytes, took: Duration) {
        add(&self.loads, 1);
        add(&self.tokens_restored, tokens.into());
        add(&self.read, read.0);
        add(&self.load_us, micros(took));
    }

    pub(crate) fn load_failed(&self, took: Duration) {
        add(&self.loads_failed, 1);
        add(&self.load_us, micros(took));
        self.missed(Miss::Failed);
    }

    pub(crate) fn evicted(&self, why: Eviction) {
        add(&self.evictions[why as usize], 1);
    }

    pub(crate) fn quarantined(&self, when: Quarantine) {
        add(&self.quarantined[when as usize], 1);
    }

    pub(crate) fn read(&self, files: u64, bytes: Bytes, budget: Bytes) -> Stats {
        Stats {
            files,
            bytes,
            budget,
            index_time: Duration::from_micros(get(&self.index_us)),
            saves: all(&self.saves),
            saves_failed: all(&self.saves_failed),
            waiting: get(&self.waiting),
            written: Bytes(get(&self.written)),
            save_time: Duration::from_micros(get(&self.save_us)),
            hits: all(&self.hits),
            misses: all(&self.misses),
            loads: get(&self.loads),
            loads_failed: get(&self.loads_failed),
            tokens_restored: get(&self.tokens_restored),
            read: Bytes(get(&self.read)),
            load_time: Duration::from_micros(get(&self.load_us)),
            evictions: all(&self.evictions),
            quarantined: all(&self.quarantined),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}

fn all<const N: usize>(counters: &[AtomicU64; N]) -> [u64; N] {
    std::array::from_fn(|index| get(&counters[index]))
}
