//! A few shared pages of numbers that outlive the process that writes them.
#![allow(unsafe_code)]

use crate::claim::Claim;
use crate::error::RangeError;
use ds4_units::Bytes;
use memmap2::MmapRaw;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Zeroed numbers in shared host memory: each is changed by one indivisible store, so that whoever takes them over from
/// a killed process finds the value before it or the value after it. Dropping it unmaps them.
pub struct SharedWords {
    map: MmapRaw,
    claim: Claim,
}

impl SharedWords {
    /// Makes room for `count` 64-bit numbers, or twice as many 32-bit ones.
    pub fn create(name: &str, count: usize) -> Result<SharedWords, RangeError> {
        SharedWords::mapped(Claim::create(name, Bytes(count as u64 * size_of::<u64>() as u64))?)
    }

    /// Takes them over from a process that is dead; while it lives they are refused.
    pub fn adopt(fd: OwnedFd) -> Result<SharedWords, RangeError> {
        SharedWords::mapped(Claim::adopt(fd)?)
    }

    fn mapped(claim: Claim) -> Result<SharedWords, RangeError> {
        let map = MmapRaw::map_raw(claim.file()).map_err(|source| RangeError::Map { len: claim.len(), source })?;
        Ok(SharedWords { map, claim })
    }

    /// A descriptor for whoever is to keep them.
    pub fn export(&self) -> Result<OwnedFd, RangeError> {
        self.claim.export()
    }

    /// All of it as 64-bit numbers.
    pub fn words(&self) -> &[AtomicU64] {
        let count = self.map.len() / size_of::<AtomicU64>();
        // SAFETY: the mapping starts at a page, so it is aligned, is readable and writable, and lives as long as the
        // borrow of `self`. The file's size is sealed, so that none of its pages can go. Every bit pattern is a number.
        // All access goes through atomics of one of two sizes: two processes cannot map it to write (`Claim`), and a
        // caller that mixes the sizes in one place reads a torn number at worst, which is no undefined value here.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), count) }
    }

    /// All of it as 32-bit numbers.
    pub fn halves(&self) -> &[AtomicU32] {
        let count = self.map.len() / size_of::<AtomicU32>();
        // SAFETY: as in `words`.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), count) }
    }
}

impl fmt::Debug for SharedWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedWords({})", self.claim.len())
    }
}
