//! Whether the account explains what the machine lost. Reporting only: no decision reads it.

use crate::{Observation, Status};
use ds4_units::Bytes;

/// Compares free memory with the account, from one quiet moment to the next.
#[derive(Clone, Copy, Debug)]
pub struct Reconciliation {
    tolerance: Bytes,
    boot_free: Bytes,
    boot_live: Bytes,
    one_time: Option<i64>,
}

/// What the account does not explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residual {
    /// Bytes gone without an entry; negative when more came back than was given.
    pub bytes: i64,
    /// The first quiet moment's difference: what starting up took without an entry.
    pub one_time: i64,
    /// Beyond the tolerance, either way.
    pub flagged: bool,
}

impl Reconciliation {
    /// Starts from what was free and held at boot; `None` when that could not be measured.
    pub fn start(observation: &Observation, live: Bytes, tolerance: Bytes) -> Option<Reconciliation> {
        (observation.status == Status::Ok).then_some(Reconciliation {
            tolerance,
            boot_free: observation.free,
            boot_live: live,
            one_time: None,
        })
    }

    /// Compares now, at a moment when nothing runs; `None` when memory cannot be measured. The first call sets the
    /// one-time difference, which later calls leave out.
    pub fn compare(&mut self, observation: &Observation, live: Bytes) -> Option<Residual> {
        if observation.status != Status::Ok {
            return None;
        }
        let lost = signed(self.boot_free) - signed(observation.free);
        let unexplained = lost - (signed(live) - signed(self.boot_live));
        let one_time = *self.one_time.get_or_insert(unexplained);
        let bytes = unexplained - one_time;
        Some(Residual { bytes, one_time, flagged: bytes.unsigned_abs() > self.tolerance.0 })
    }
}

fn signed(bytes: Bytes) -> i64 {
    i64::try_from(bytes.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    #[test]
    fn a_leak_is_flagged_and_entries_and_warming_up_are_not() {
        let free = |bytes| Observation::of(Source::CudaFree, Bytes(bytes));
        let mut account = Reconciliation::start(&free(10_000), Bytes(100), Bytes(64)).unwrap();
        // Warming up took 300 without an entry, and a conversation holds 500 more.
        let first = account.compare(&free(9_200), Bytes(600)).unwrap();
        assert_eq!((first.bytes, first.one_time, first.flagged), (0, 300, false));
        // The conversation went, and 65 bytes with it.
        let second = account.compare(&free(9_635), Bytes(100)).unwrap();
        assert_eq!((second.bytes, second.flagged), (65, true));
        // Somebody else gave memory back.
        let third = account.compare(&free(11_000), Bytes(100)).unwrap();
        assert_eq!((third.bytes, third.flagged), (-1300, true));
    }
}
