//! What was promised to whom.

use crate::class::labels;
use ds4_units::Bytes;

labels! {
    /// Who takes memory.
    Consumer {
        /// Everything taken once at boot.
        EngineBoot = "engine_boot",
        /// Warming up: captured graphs, first-use buffers.
        Prewarm = "prewarm",
        /// Conversations.
        BatchBanks = "batch_bank_plan",
        /// Conversations on their way back from disk.
        Restore = "kv_restore",
    }
}

/// What one consumer was promised and holds. Values are absolute: a new lease replaces the old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// What it may come to hold.
    pub intent: Bytes,
    /// What it holds; never more than the intent.
    pub resident: Bytes,
    /// Kept free for it beyond its intent.
    pub reservation: Bytes,
}

impl Lease {
    /// Promised and not yet taken; `None` when more was taken than promised.
    pub fn outstanding(&self) -> Option<Bytes> {
        self.intent.0.checked_sub(self.resident.0).map(Bytes)
    }
}

/// All leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leases([Lease; Consumer::ALL.len()]);

impl Leases {
    /// One consumer's lease.
    pub fn get(&self, consumer: Consumer) -> Lease {
        self.0[consumer as usize]
    }

    /// Replaces one consumer's lease.
    pub fn set(&mut self, consumer: Consumer, lease: Lease) {
        self.0[consumer as usize] = lease;
    }

    /// The leases of all consumers but one.
    pub(crate) fn others(&self, consumer: Consumer) -> impl Iterator<Item = Lease> {
        Consumer::ALL.iter().filter(move |&&other| other != consumer).map(|&other| self.get(other))
    }
}
