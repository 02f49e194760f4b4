//! Host memory that one process at a time may change, and that others can keep meanwhile.
//!
//! A memory file is locked through an open file description of its own, which never leaves this process and which the
//! kernel closes when the process dies, however it dies. What goes to others is another description of the same
//! memory: whoever keeps it keeps the bytes, and whoever wants to change them has to get the lock first.

use crate::error::RangeError;
use ds4_units::Bytes;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// It keeps its size for ever; its bytes may change.
const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW).union(SealFlag::F_SEAL_SEAL);

/// A memory file that this value alone, in all processes, may map to be written.
#[derive(Debug)]
pub(crate) struct Claim {
    file: File,
    len: Bytes,
}

impl Claim {
    /// Makes a memory file of `len` zero bytes, which take memory as they are written.
    pub(crate) fn create(name: &str, len: Bytes) -> Result<Claim, RangeError> {
        if len == Bytes::ZERO {
            return Err(RangeError::Empty { name: name.to_owned() });
        }
        let failed = |source: io::Error| RangeError::Create { name: name.to_owned(), len, source };
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(name, flags).map_err(|errno| failed(errno.into()))?);
        file.set_len(len.0).map_err(failed)?;
        fcntl(&file, FcntlArg::F_ADD_SEALS(SEALS)).map_err(|errno| failed(errno.into()))?;
        held(file.try_lock())?;
        Ok(Claim { file, len })
    }

    /// Takes over memory from another process, which must be dead or have let go of it. Its size must be fixed.
    pub(crate) fn adopt(fd: OwnedFd) -> Result<Claim, RangeError> {
        let claim = Claim::reopen(fd)?;
        held(claim.file.try_lock())?;
        Ok(claim)
    }

    fn reopen(fd: OwnedFd) -> Result<Claim, RangeError> {
        let bits = fcntl(&fd, FcntlArg::F_GET_SEALS).map_err(|errno| RangeError::NotMemory { source: errno.into() })?;
        if !SealFlag::from_bits_retain(bits).contains(SEALS) {
            return Err(RangeError::NotSealed { missing: "resizing".to_owned() });
        }
        let file = reopened(&fd.into())?;
        let len = Bytes(file.metadata().map_err(|source| RangeError::NotMemory { source })?.len());
        Ok(Claim { file, len })
    }

    /// The same for memory that nobody changes any more: any number may have it at a time.
    pub(crate) fn adopt_frozen(fd: OwnedFd) -> Result<Claim, RangeError> {
        let claim = Claim::reopen(fd)?;
        claim.freeze()?;
        Ok(claim)
    }

    /// Gives up the right to change it. Others may have it too from now on; nobody can change it while anyone has it.
    pub(crate) fn freeze(&self) -> Result<(), RangeError> {
        held(self.file.try_lock_shared())
    }

    /// Another descriptor of the memory, without the right to change it.
    pub(crate) fn export(&self) -> Result<OwnedFd, RangeError> {
        reopened(&self.file).map(OwnedFd::from)
    }

    pub(crate) fn len(&self) -> Bytes {
        self.len
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

fn held(locked: Result<(), TryLockError>) -> Result<(), RangeError> {
    match locked {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(RangeError::InUse),
        Err(TryLockError::Error(source)) => Err(RangeError::NotMemory { source }),
    }
}

/// A new open file description of the same memory, so that a lock on the one is none on the other.
fn reopened(file: &File) -> Result<File, RangeError> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(true).write(true).open(path).map_err(|source| RangeError::Export { source })
}
