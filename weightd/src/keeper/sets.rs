//! What a keeper holds.

use crate::bell::Bell;
use ds4_wire::{KeeperRefusal, KeptSet, Peer};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Everything that is kept.
#[derive(Debug)]
pub(crate) struct Sets {
    sets_max: usize,
    fds_max: u64,
    inner: Mutex<Inner>,
    /// Rung when the keeper ends.
    pub(crate) closing: Bell,
}

#[derive(Debug, Default)]
struct Inner {
    sets: BTreeMap<String, Set>,
    next_lease: u64,
}

#[derive(Debug)]
struct Set {
    generation: u64,
    fingerprint: [u8; 32],
    fds: Arc<[OwnedFd]>,
    /// The connection that parked or adopted it last, if it is still open.
    lease: Option<(u64, u32)>,
}

/// A complete deposit.
pub(super) struct Deposit {
    pub(super) set: String,
    pub(super) generation: u64,
    pub(super) fingerprint: [u8; 32],
    pub(super) fds: Vec<OwnedFd>,
}

/// A connection, which can hold leases. Dropping it closes them; what they are of stays.
pub(super) struct Holder<'a> {
    sets: &'a Sets,
    id: u64,
    pid: u32,
}

impl Sets {
    pub(crate) fn new(sets_max: usize, fds_max: u64) -> io::Result<Sets> {
        Ok(Sets { sets_max, fds_max, inner: Mutex::default(), closing: Bell::new()? })
    }

    /// Sets and descriptors.
    pub(crate) fn count(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.sets.len(), inner.sets.values().map(|set| set.fds.len()).sum())
    }

    pub(super) fn holder(&self, peer: Peer) -> Holder<'_> {
        let mut inner = self.lock();
        inner.next_lease += 1;
        Holder { sets: self, id: inner.next_lease, pid: peer.pid }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A thread that panicked with the lock held has left whole sets behind.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holder<'_> {
    /// Refuses what would be more than is held, before its descriptors are looked at.
    pub(super) fn check_quota(&self, set: &str, total: u32) -> Result<(), KeeperRefusal> {
        let inner = self.sets.lock();
        let others = || inner.sets.iter().filter(|(name, _)| *name != set);
        if others().count() >= self.sets.sets_max {
            return Err(KeeperRefusal::Quota { what: "sets".to_owned(), max: self.sets.sets_max as u64 });
        }
        let held: usize = others().map(|(_, set)| set.fds.len()).sum();
        // What it replaces is held until it is complete, so it counts twice.
        let replaced = inner.sets.get(set).map_or(0, |set| set.fds.len());
        if (held + replaced) as u64 + u64::from(total) > self.sets.fds_max {
            return Err(KeeperRefusal::Quota { what: "descriptors".to_owned(), max: self.sets.fds_max });
        }
        Ok(())
    }

    /// Keeps a deposit under this connection's lease, in place of the set of its name.
    pub(super) fn park(&self, deposit: Deposit) -> Result<(), KeeperRefusal> {
        let Deposit { set, generation, fingerprint, fds } = deposit;
        let mut inner = self.sets.lock();
        self.check_lease(inner.sets.get(&set))?;
        let lease = Some((self.id, self.pid));
        inner.sets.insert(set, Set { generation, fingerprint, fds: fds.into(), lease });
        Ok(())
    }

    /// What is kept under a name.
    pub(super) fn find(&self, set: &str) -> Option<KeptSet> {
        self.sets.lock().sets.get(set).map(|set| KeptSet {
            generation: set.generation,
            fingerprint: set.fingerprint,
            fds: set.fds.len() as u32,
            leased_by: set.lease.map(|(_, pid)| pid),
        })
    }

    /// Takes a lease over from a connection that is closed.
    pub(super) fn adopt(&self, set: &str, fingerprint: [u8; 32]) -> Result<(), KeeperRefusal> {
        let mut inner = self.sets.lock();
        let found = inner.sets.get_mut(set);
        self.check_lease(found.as_deref())?;
        let set = found.ok_or(KeeperRefusal::Unknown)?;
        if set.fingerprint != fingerprint {
            return Err(KeeperRefusal::OtherContent);
        }
        set.lease = Some((self.id, self.pid));
        Ok(())
    }

    /// Descriptors of a set that this connection has the lease of.
    pub(super) fn fds(&self, set: &str) -> Result<Arc<[OwnedFd]>, KeeperRefusal> {
        let inner = self.sets.lock();
        let set = inner.sets.get(set).ok_or(KeeperRefusal::Unknown)?;
        match set.lease {
            Some((id, _)) if id == self.id => Ok(set.fds.clone()),
            Some((_, pid)) => Err(KeeperRefusal::Leased { pid }),
            None => Err(KeeperRefusal::BadRequest { reason: "adopt the set first".to_owned() }),
        }
    }

    /// Lets go of a set.
    pub(super) fn forget(&self, set: &str) -> Result<(), KeeperRefusal> {
        let mut inner = self.sets.lock();
        let found = inner.sets.get(set);
        self.check_lease(found)?;
        inner.sets.remove(set).map(|_| ()).ok_or(KeeperRefusal::Unknown)
    }

    fn check_lease(&self, set: Option<&Set>) -> Result<(), KeeperRefusal> {
        match set.and_then(|set| set.lease) {
            Some((id, pid)) if id != self.id => Err(KeeperRefusal::Leased { pid }),
            _ => Ok(()),
        }
    }
}

impl Drop for Holder<'_> {
    fn drop(&mut self) {
        for set in self.sets.lock().sets.values_mut() {
            set.lease = set.lease.filter(|(id, _)| *id != self.id);
        }
    }
}
