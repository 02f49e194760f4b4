//! Memory that is ready to be lent.

use crate::error::RangeError;
use crate::range::SealedRange;
use ds4_units::Bytes;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A range whose bytes are final, as an owner holds it: a descriptor that keeps the memory, and its length. Whoever
/// gets a copy of the descriptor can map the memory. Dropping it frees what nobody else holds.
#[derive(Debug)]
pub enum SharedRange {
    /// Host memory, sealed against every change.
    Host(SealedRange),
    /// Memory of a CUDA device. The descriptor needs no driver to be kept or passed on.
    Device {
        /// The exported handle.
        fd: OwnedFd,
        /// Its length.
        len: Bytes,
    },
}

impl SharedRange {
    /// Takes over the descriptor of host memory from another process; refuses it as [`SealedRange::import`] does.
    pub fn adopt_host(fd: OwnedFd, len: Bytes) -> Result<SharedRange, RangeError> {
        SealedRange::import(fd, len).map(SharedRange::Host)
    }

    /// Its length.
    pub fn len(&self) -> Bytes {
        match self {
            SharedRange::Host(range) => range.len(),
            SharedRange::Device { len, .. } => *len,
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == Bytes::ZERO
    }

    /// The descriptor, to send a copy of it to another process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            SharedRange::Host(range) => range.fd(),
            SharedRange::Device { fd, .. } => fd.as_fd(),
        }
    }
}
