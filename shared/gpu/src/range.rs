//! A range of host memory (memfd): filled by its owner, then sealed and shared.

use crate::error::RangeError;
use crate::mapping::ReadMapping;
use ds4_units::Bytes;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// What nobody can do to a sealed range any more: shrink it, grow it, write to it, take a seal off.
const SEALS: SealFlag =
    SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW).union(SealFlag::F_SEAL_WRITE).union(SealFlag::F_SEAL_SEAL);

/// Host memory that is being filled. Dropping it frees it.
#[derive(Debug)]
pub struct HostRange {
    name: String,
    file: File,
    len: Bytes,
}

/// Memory whose bytes can no longer change, in this process or any other. Dropping it frees the memory when nobody
/// else holds a descriptor or a mapping of it.
#[derive(Debug)]
pub struct SealedRange {
    file: File,
    len: Bytes,
}

impl HostRange {
    /// Planned lengths are multiples of this: a whole number of pages, whatever the machine's page size.
    pub const GRANULARITY: Bytes = Bytes::kib(64);

    /// Makes a range of `len` zero bytes. They take memory only as they are written. `name` is what
    /// `/proc/PID/fd` shows for it.
    pub fn create(name: &str, len: Bytes) -> Result<HostRange, RangeError> {
        if len == Bytes::ZERO {
            return Err(RangeError::Empty { name: name.to_owned() });
        }
        let failed = |source| RangeError::Create { name: name.to_owned(), len, source };
        let fd = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)
            .map_err(|errno| failed(errno.into()))?;
        let file = File::from(fd);
        file.set_len(len.0).map_err(failed)?;
        Ok(HostRange { name: name.to_owned(), file, len })
    }

    /// Its length.
    pub fn len(&self) -> Bytes {
        self.len
    }

    /// Always false: a range has bytes.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Copies `bytes` to `offset`. Several threads may write at once, to different places. Nothing is mapped.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), RangeError> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.len.0) {
            let name = self.name.clone();
            return Err(RangeError::PastEnd { name, len: self.len, offset, count: bytes.len() });
        }
        self.file.write_all_at(bytes, offset).map_err(|source| RangeError::Write {
            name: self.name.clone(),
            offset,
            source,
        })
    }

    /// Copies bytes out, without a mapping.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), RangeError> {
        self.file.read_exact_at(out, offset).map_err(|source| RangeError::Read { offset, source })
    }

    /// Makes the bytes final. The kernel refuses to change or resize them from now on, whoever asks.
    pub fn seal(self) -> Result<SealedRange, RangeError> {
        fcntl(&self.file, FcntlArg::F_ADD_SEALS(SEALS))
            .map_err(|errno| RangeError::Seal { name: self.name, source: errno.into() })?;
        Ok(SealedRange { file: self.file, len: self.len })
    }
}

impl SealedRange {
    /// Takes over a descriptor from another process. Refuses it unless all seals are on and its length is `len`; the
    /// seals are checked first, so that the length cannot change after it was looked at.
    pub fn import(fd: OwnedFd, len: Bytes) -> Result<SealedRange, RangeError> {
        let bits = fcntl(&fd, FcntlArg::F_GET_SEALS).map_err(|errno| RangeError::NotMemory { source: errno.into() })?;
        let missing = SEALS.difference(SealFlag::from_bits_retain(bits));
        if !missing.is_empty() {
            return Err(RangeError::NotSealed { missing: shown(missing) });
        }
        let file = File::from(fd);
        let found = file.metadata().map_err(|source| RangeError::NotMemory { source })?.len();
        if found != len.0 {
            return Err(RangeError::Length { found: Bytes(found), announced: len });
        }
        Ok(SealedRange { file, len })
    }

    /// Its length.
    pub fn len(&self) -> Bytes {
        self.len
    }

    /// Whether it has no bytes. Only an imported range can be empty, and it cannot be mapped.
    pub fn is_empty(&self) -> bool {
        self.len == Bytes::ZERO
    }

    /// The descriptor, to send a copy of it to another process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Another descriptor of the same memory.
    pub fn export(&self) -> Result<OwnedFd, RangeError> {
        self.fd().try_clone_to_owned().map_err(|source| RangeError::Export { source })
    }

    /// Copies bytes out, without a mapping.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), RangeError> {
        self.file.read_exact_at(out, offset).map_err(|source| RangeError::Read { offset, source })
    }

    /// Makes the bytes readable in this process and closes the descriptor; the mapping keeps the memory.
    pub fn map(self) -> Result<ReadMapping, RangeError> {
        ReadMapping::new(self)
    }

    /// The open memory file, whose seals and length were checked or made by this type.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

fn shown(seals: SealFlag) -> String {
    let names = [
        (SealFlag::F_SEAL_SHRINK, "shrinking"),
        (SealFlag::F_SEAL_GROW, "growing"),
        (SealFlag::F_SEAL_WRITE, "writing"),
        (SealFlag::F_SEAL_SEAL, "changing its seals"),
    ];
    let missing: Vec<&str> = names.iter().filter(|(seal, _)| seals.contains(*seal)).map(|(_, name)| *name).collect();
    missing.join(", ")
}
