//! Read-only view of a sealed range in this process: the one place of this crate that needs `unsafe`.
#![allow(unsafe_code)]

use crate::error::RangeError;
use crate::range::SealedRange;
use ds4_units::Bytes;
use memmap2::Mmap;
use std::fmt;
use std::os::fd::OwnedFd;

/// The bytes of a sealed range, mapped read-only. Dropping it unmaps them.
pub struct ReadMapping {
    map: Mmap,
}

impl ReadMapping {
    /// Maps a descriptor received from another process. Refuses it unless it is sealed against shrinking, growing,
    /// writing and further sealing, and has exactly `len` bytes.
    pub fn map(fd: OwnedFd, len: Bytes) -> Result<ReadMapping, RangeError> {
        SealedRange::import(fd, len)?.map()
    }

    pub(crate) fn new(range: SealedRange) -> Result<ReadMapping, RangeError> {
        // SAFETY: `Mmap::map` asks that the file's bytes do not change and that the file does not become shorter while
        // the mapping lives. A `SealedRange` exists only after F_SEAL_WRITE, F_SEAL_SHRINK, F_SEAL_GROW and
        // F_SEAL_SEAL were put on this very file (`HostRange::seal`) or were found on it (`SealedRange::import`). No
        // seal can ever be taken off. The kernel grants F_SEAL_WRITE only while no writable mapping and no pending
        // write exists, and refuses both afterwards; F_SEAL_SHRINK and F_SEAL_GROW fix the length. So the bytes are
        // constant for as long as the memory exists, and the mapping itself keeps the memory. F_GET_SEALS succeeds
        // only for memory files, so no disk error can show up behind the mapping either.
        let map = unsafe { Mmap::map(range.file()) };
        let map = map.map_err(|source| RangeError::Map { len: range.len(), source })?;
        Ok(ReadMapping { map })
    }
}

impl AsRef<[u8]> for ReadMapping {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

impl fmt::Debug for ReadMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadMapping({})", Bytes(self.map.len() as u64))
    }
}
