//! What a keeper holds.

use super::fd_store::{Description, FdStore, StoredSet};
use crate::bell::Bell;
use ds4_wire::{KeeperRefusal, KeptSet, Peer};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::info;

/// Everything that is kept.
#[derive(Debug)]
pub(crate) struct Sets {
    sets_max: usize,
    fds_max: u64,
    store: FdStore,
    inner: Mutex<Inner>,
    /// Rung when the keeper ends.
    pub(crate) closing: Bell,
    /// Rung when a lease has closed.
    pub(super) orphaned: Bell,
}

#[derive(Debug, Default)]
struct Inner {
    sets: BTreeMap<String, Set>,
    next_lease: u64,
    /// Numbers sets in the service manager's store.
    next_stored: u64,
}

#[derive(Debug)]
struct Set {
    generation: u64,
    fingerprint: [u8; 32],
    fds: Arc<[OwnedFd]>,
    /// The connection that parked or adopted it last, if it is still open.
    lease: Option<(u64, u32)>,
    /// How long it stays when its lease has closed.
    orphaned: Option<Duration>,
    /// When that is over.
    until: Option<Instant>,
    /// Its id in the service manager's store, if it is there.
    stored: Option<String>,
}

/// A complete deposit.
pub(super) struct Deposit {
    pub(super) set: String,
    pub(super) generation: u64,
    pub(super) fingerprint: [u8; 32],
    pub(super) orphaned: Option<Duration>,
    pub(super) fds: Vec<OwnedFd>,
}

/// A connection, which can hold leases. Dropping it closes them; what they are of stays.
pub(super) struct Holder<'a> {
    sets: &'a Sets,
    id: u64,
    pid: u32,
}

impl Sets {
    pub(super) fn new(sets_max: usize, fds_max: u64, store: FdStore) -> io::Result<Sets> {
        Ok(Sets { sets_max, fds_max, store, inner: Mutex::default(), closing: Bell::new()?, orphaned: Bell::new()? })
    }

    /// Keeps what the service manager has given back. Nobody holds its leases.
    pub(super) fn take_back(&self, fds: Vec<OwnedFd>, names: &[String]) {
        let now = Instant::now();
        for StoredSet { id, what, fds } in self.store.take_back(fds, names) {
            let mut inner = self.lock();
            // Ids are numbers; new ones go on behind all that were ever given.
            inner.next_stored = inner.next_stored.max(id.parse().map_or(0, |id: u64| id + 1));
            let until = what.orphaned().and_then(|orphaned| now.checked_add(orphaned));
            let (generation, fingerprint, orphaned) = (what.generation, what.fingerprint, what.orphaned());
            let stored = Some(id);
            let set = Set { generation, fingerprint, fds: fds.into(), lease: None, orphaned, until, stored };
            // Of two of one name the later one counts: the manager was to let go of the other, and did not.
            let replaced = match inner.sets.get(&what.set) {
                Some(other) if other.number() > set.number() => Some(set),
                _ => inner.sets.insert(what.set, set),
            };
            drop(inner);
            replaced.iter().for_each(|set| self.unstore(set));
        }
    }

    fn unstore(&self, set: &Set) {
        if let Some(id) = &set.stored {
            self.store.remove(id, set.fds.len());
        }
    }

    /// Sets and descriptors.
    pub(crate) fn count(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.sets.len(), inner.sets.values().map(|set| set.fds.len()).sum())
    }

    /// Frees what nobody has come back for in time, and says when to look again.
    pub(super) fn free_expired(&self, now: Instant) -> Option<Instant> {
        let mut inner = self.lock();
        inner.sets.retain(|name, set| {
            let is_over = set.until.is_some_and(|until| until <= now);
            if is_over {
                info!(set = name, fds = set.fds.len(), "nobody came back for it: freed");
                self.unstore(set);
            }
            !is_over
        });
        inner.sets.values().filter_map(|set| set.until).min()
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

impl Set {
    /// When it was stored, among others.
    fn number(&self) -> Option<u64> {
        self.stored.as_ref()?.parse().ok()
    }

    fn shown(&self) -> KeptSet {
        KeptSet {
            generation: self.generation,
            fingerprint: self.fingerprint,
            fds: self.fds.len() as u32,
            leased_by: self.lease.map(|(_, pid)| pid),
        }
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
        let Deposit { set, generation, fingerprint, orphaned, fds } = deposit;
        let mut inner = self.sets.lock();
        self.check_lease(inner.sets.get(&set))?;
        // A set that is parked again mostly has the descriptors that it had, and a service manager silently drops one
        // that it holds already, under whatever name. So the old names go first; the client has the memory meanwhile.
        if let Some(replaced) = inner.sets.get(&set) {
            self.sets.unstore(replaced);
        }
        let lease = Some((self.id, self.pid));
        let id = inner.next_stored.to_string();
        inner.next_stored += 1;
        let orphaned_ms = orphaned.map(|orphaned| u64::try_from(orphaned.as_millis()).unwrap_or(u64::MAX));
        let what = Description { set: set.clone(), generation, fingerprint, orphaned_ms, fds: fds.len() };
        let stored = self.sets.store.store(&id, &what, &fds).then_some(id);
        let kept = Set { generation, fingerprint, fds: fds.into(), lease, orphaned, until: None, stored };
        inner.sets.insert(set, kept);
        Ok(())
    }

    /// What is kept under a name.
    pub(super) fn find(&self, set: &str) -> Option<KeptSet> {
        self.sets.lock().sets.get(set).map(Set::shown)
    }

    /// What is kept under names that begin so.
    pub(super) fn list(&self, prefix: &str) -> Vec<(String, KeptSet)> {
        let inner = self.sets.lock();
        let found = inner.sets.iter().filter(|(name, _)| name.starts_with(prefix));
        found.map(|(name, set)| (name.clone(), set.shown())).collect()
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
        set.until = None;
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
        let forgotten = inner.sets.remove(set).ok_or(KeeperRefusal::Unknown)?;
        self.sets.unstore(&forgotten);
        Ok(())
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
        let now = Instant::now();
        for set in self.sets.lock().sets.values_mut() {
            if set.lease.is_some_and(|(id, _)| id == self.id) {
                set.lease = None;
                set.until = set.orphaned.and_then(|orphaned| now.checked_add(orphaned));
            }
        }
        self.sets.orphaned.ring();
    }
}
