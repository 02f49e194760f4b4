//! Requests that fail in the engine every time.
//!
//! Some clients send a turn that failed again and again. A body that has failed before would fail again: it is refused
//! with a status on which every client stops.

use crate::ApiError;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Faults of one body after which it is not computed again.
const FAULTS_MAX: u32 = 2;

/// Bodies remembered.
const BODIES_MAX: usize = 256;

/// Stands for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyHash(u64);

impl BodyHash {
    pub(crate) fn of(bytes: &[u8]) -> BodyHash {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        BodyHash(hasher.finish())
    }
}

/// Counts faults by body, the oldest forgotten first.
#[derive(Default)]
pub(crate) struct Fuse {
    faults: Mutex<VecDeque<(BodyHash, u32)>>,
}

impl Fuse {
    /// Refuses a body that has failed too often.
    pub(crate) fn check(&self, body: BodyHash) -> Result<(), ApiError> {
        let faults = self.lock();
        let blown = faults.iter().any(|&(known, count)| known == body && count >= FAULTS_MAX);
        if blown { Err(blown_error()) } else { Ok(()) }
    }

    /// Counts a fault, and says whether it is the last that this body may cause.
    pub(crate) fn fault(&self, body: BodyHash) -> Option<ApiError> {
        let mut faults = self.lock();
        let known = faults.iter().position(|&(known, _)| known == body);
        let count = known.and_then(|index| faults.remove(index)).map_or(1, |(_, count)| count + 1);
        faults.push_back((body, count));
        if faults.len() > BODIES_MAX {
            faults.pop_front();
        }
        (count >= FAULTS_MAX).then(blown_error)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(BodyHash, u32)>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn blown_error() -> ApiError {
    ApiError::recurring("the engine failed on this request more than once; it is not computed again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_refused_after_its_second_fault_and_others_are_not() {
        let (fuse, body, other) = (Fuse::default(), BodyHash::of(b"a"), BodyHash::of(b"b"));
        assert!(fuse.fault(body).is_none() && fuse.check(body).is_ok());
        assert!(fuse.fault(body).is_some());
        assert!(fuse.check(body).is_err() && fuse.check(other).is_ok());
    }

    #[test]
    fn old_faults_are_forgotten() {
        let (fuse, body) = (Fuse::default(), BodyHash::of(b"a"));
        fuse.fault(body);
        fuse.fault(body);
        (0..BODIES_MAX).for_each(|index| drop(fuse.fault(BodyHash::of(&index.to_le_bytes()))));
        assert!(fuse.check(body).is_ok());
    }
}
