//! The ledger of what is held, by class and domain.

use crate::{Class, Domain};
use ds4_units::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Totals of one class in one domain since the start. They only grow; what is held is a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes the allocator took for them: rounded up to its granule.
    pub committed: u64,
    /// Requested bytes given back.
    pub freed_requested: u64,
    /// Committed bytes given back.
    pub freed_committed: u64,
    /// Charges made.
    pub charges: u64,
    /// Charges given back.
    pub releases: u64,
}

impl Cell {
    /// Bytes taken and not given back.
    pub fn live(&self) -> Bytes {
        Bytes(self.committed - self.freed_committed)
    }

    /// Of these, bytes nobody asked for: rounding and the ends of chunks.
    pub fn slack(&self) -> Bytes {
        Bytes(self.live().0.saturating_sub(self.requested - self.freed_requested))
    }
}

/// Who holds how much. Cloning gives another door to the same ledger; no call blocks for longer than a few additions.
#[derive(Clone, Debug, Default)]
pub struct Census(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    cells: Mutex<Cells>,
    faults: AtomicU64,
    changes: AtomicU64,
}

type Cells = [[Cell; Class::ALL.len()]; Domain::ALL.len()];

impl Census {
    /// Enters memory into the ledger until the charge is dropped. `committed` is never below `requested`; if it is, it
    /// counts as equal and as a fault.
    #[must_use = "dropping the charge gives it back"]
    pub fn charge(&self, class: Class, domain: Domain, requested: Bytes, committed: Bytes) -> Charge {
        let mut charge = Charge { census: self.clone(), class, domain, requested: Bytes::ZERO, committed: Bytes::ZERO };
        self.with(class, domain, |cell| cell.charges += 1);
        charge.resize(requested, committed);
        charge
    }

    /// The totals of one class in one domain.
    pub fn cell(&self, class: Class, domain: Domain) -> Cell {
        self.with(class, domain, |cell| *cell)
    }

    /// Bytes held in a domain by every class.
    pub fn live(&self, domain: Domain) -> Bytes {
        Bytes(Class::ALL.iter().map(|&class| self.cell(class, domain).live().0).sum())
    }

    /// Changes of the ledger since the start.
    pub fn epoch(&self) -> u64 {
        self.0.changes.load(Ordering::Relaxed)
    }

    /// Entries that contradicted the ledger. Each was bent to the nearest possible one.
    pub fn faults(&self) -> u64 {
        self.0.faults.load(Ordering::Relaxed)
    }

    fn with<T>(&self, class: Class, domain: Domain, change: impl FnOnce(&mut Cell) -> T) -> T {
        // Additions cannot panic half-way: a poisoned ledger is still right.
        let mut cells = self.0.cells.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut cells[domain as usize][class as usize])
    }

    fn fault(&self) {
        self.0.faults.fetch_add(1, Ordering::Relaxed);
    }
}

/// Memory in the ledger. Dropping it takes the memory out again, so it lives with the memory itself.
#[derive(Debug)]
pub struct Charge {
    census: Census,
    class: Class,
    domain: Domain,
    requested: Bytes,
    committed: Bytes,
}

impl Charge {
    /// The memory grew or shrank.
    pub fn resize(&mut self, requested: Bytes, committed: Bytes) {
        let committed = if committed < requested {
            self.census.fault();
            requested
        } else {
            committed
        };
        let (had_requested, had_committed) = (self.requested, self.committed);
        if (had_requested, had_committed) == (requested, committed) {
            return;
        }
        self.census.0.changes.fetch_add(1, Ordering::Relaxed);
        self.census.with(self.class, self.domain, |cell| {
            cell.requested += requested.0.saturating_sub(had_requested.0);
            cell.freed_requested += had_requested.0.saturating_sub(requested.0);
            cell.committed += committed.0.saturating_sub(had_committed.0);
            cell.freed_committed += had_committed.0.saturating_sub(committed.0);
        });
        (self.requested, self.committed) = (requested, committed);
    }

    /// What the memory is used for.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Bytes the allocator took.
    pub fn committed(&self) -> Bytes {
        self.committed
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.resize(Bytes::ZERO, Bytes::ZERO);
        self.census.with(self.class, self.domain, |cell| cell.releases += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_held_until_it_is_dropped_and_its_rounding_is_slack() {
        let census = Census::default();
        let mut charge = census.charge(Class::BatchBank, Domain::Device, Bytes(900), Bytes(1024));
        let cell = census.cell(Class::BatchBank, Domain::Device);
        assert_eq!((cell.live(), cell.slack()), (Bytes(1024), Bytes(124)));
        charge.resize(Bytes(100), Bytes(512));
        charge.resize(Bytes(100), Bytes(512));
        assert_eq!(census.epoch(), 2, "the second time nothing changed");
        assert_eq!(census.live(Domain::Device), Bytes(512));
        assert_eq!(census.live(Domain::PinnedHost), Bytes::ZERO);
        drop(charge);
        let cell = census.cell(Class::BatchBank, Domain::Device);
        assert_eq!((cell.live(), cell.slack(), cell.charges, cell.releases), (Bytes::ZERO, Bytes::ZERO, 1, 1));
        assert_eq!(census.faults(), 0);
    }

    #[test]
    fn an_allocator_that_took_less_than_was_asked_is_a_fault() {
        let census = Census::default();
        let charge = census.charge(Class::GraphExec, Domain::Device, Bytes(10), Bytes(9));
        assert_eq!((charge.committed(), census.faults()), (Bytes(10), 1));
    }
}
