//! Host memory that grows in place and can outlive its process: the host's counterpart of device memory that is mapped
//! piece by piece into reserved addresses.
#![allow(unsafe_code)]

use crate::claim::Claim;
use crate::error::RangeError;
use ds4_units::Bytes;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::fmt;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

/// Pieces are taken in a quarter of what is there, within these bounds: few descriptors. Pages take memory only as they
/// are written, so that a piece which is too large costs nothing.
const PIECE_MIN: usize = 1 << 20;
const PIECE_MAX: usize = 64 << 20;

/// A part of somebody's memory: a descriptor that keeps it, and its length.
#[derive(Debug)]
pub struct MemoryPiece {
    /// Keeps the memory, whatever becomes of the process that made it.
    pub fd: OwnedFd,
    /// Its length.
    pub len: Bytes,
}

/// Memory whose bytes do not change any more, shared by everyone who has it.
#[derive(Debug)]
pub struct FrozenRegion(HostRegion);

impl FrozenRegion {
    /// Takes over pieces that another process has frozen, whether it lives or not, in their order.
    pub fn adopt(name: &'static str, pieces: Vec<MemoryPiece>) -> Result<FrozenRegion, RangeError> {
        HostRegion::of(name, pieces, Claim::adopt_frozen).map(FrozenRegion)
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Lengths of its pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.0.pieces()
    }

    /// Descriptors that keep the memory, in order.
    pub fn export(&self) -> Result<Vec<MemoryPiece>, RangeError> {
        self.0.export()
    }
}

/// Memory of this process alone that others may keep. Its bytes are zero until they are written; they lie one after
/// another, whatever pieces they were taken in. Growing may move them, as that of a vector does.
pub struct HostRegion {
    name: &'static str,
    /// Where the addresses start; dangling while there are none.
    start: NonNull<u8>,
    reserved: usize,
    mapped: usize,
    pieces: Vec<Claim>,
    changes: u64,
}

// SAFETY: it owns its mapping as a vector owns its buffer: bytes are reachable through borrows of it only, and no other
// process changes them while this one lives (`Claim`).
unsafe impl Send for HostRegion {}
// SAFETY: see above; a shared borrow only reads.
unsafe impl Sync for HostRegion {}

impl HostRegion {
    /// Empty memory. `name` is what `/proc/PID/fd` shows for its pieces.
    pub fn new(name: &'static str) -> HostRegion {
        HostRegion { name, start: NonNull::dangling(), reserved: 0, mapped: 0, pieces: Vec::new(), changes: 0 }
    }

    /// Takes over the pieces of a process that is dead, in their order.
    pub fn adopt(name: &'static str, pieces: Vec<MemoryPiece>) -> Result<HostRegion, RangeError> {
        HostRegion::of(name, pieces, Claim::adopt)
    }

    /// Gives up the right to change it.
    pub fn freeze(self) -> Result<FrozenRegion, RangeError> {
        self.pieces.iter().try_for_each(Claim::freeze)?;
        Ok(FrozenRegion(self))
    }

    fn of(
        name: &'static str,
        pieces: Vec<MemoryPiece>,
        adopt: impl Fn(OwnedFd) -> Result<Claim, RangeError>,
    ) -> Result<HostRegion, RangeError> {
        let mut region = HostRegion::new(name);
        for piece in pieces {
            let claim = adopt(piece.fd)?;
            if claim.len() != piece.len {
                return Err(RangeError::Length { found: claim.len(), announced: piece.len });
            }
            region.reserve(region.mapped + claim.len().index())?;
            region.push(claim)?;
        }
        Ok(region)
    }

    /// Makes sure that there are `bytes` bytes. When it fails what was there is still there.
    pub fn ensure(&mut self, bytes: usize) -> Result<(), RangeError> {
        while self.mapped < bytes {
            let piece = (self.mapped / 4).max(bytes - self.mapped).clamp(PIECE_MIN, PIECE_MAX);
            let piece = piece.next_multiple_of(PIECE_MIN);
            self.reserve(self.mapped + piece)?;
            self.push(Claim::create(self.name, Bytes(piece as u64))?)?;
        }
        Ok(())
    }

    /// Gives back memory behind bytes from `bytes` on, in whole pieces.
    pub fn shrink(&mut self, bytes: usize) {
        while let Some(last) = self.pieces.last() {
            let start = self.mapped - last.len().index();
            if start < bytes || self.give_back(start).is_err() {
                break;
            }
            self.mapped = start;
            self.changes += 1;
            self.pieces.pop();
        }
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `mapped` bytes from `start` on are mapped and readable for as long as `self` is not changed, which the
        // borrow prevents; nobody writes to them meanwhile (`Claim`). With none mapped the pointer dangles, which an
        // empty slice may.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.mapped) }
    }

    /// All bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and they are mapped to be written; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.mapped) }
    }

    /// A number that is another one whenever pieces have come or gone.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Lengths of its pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.pieces.iter().map(Claim::len)
    }

    /// Descriptors that keep the memory, in order.
    pub fn export(&self) -> Result<Vec<MemoryPiece>, RangeError> {
        self.pieces.iter().map(|piece| Ok(MemoryPiece { fd: piece.export()?, len: piece.len() })).collect()
    }

    /// Makes sure that there are addresses for `bytes` bytes; may move what is mapped.
    fn reserve(&mut self, bytes: usize) -> Result<(), RangeError> {
        if bytes <= self.reserved {
            return Ok(());
        }
        let mut larger = HostRegion::new(self.name);
        let reserved = bytes.max(2 * self.reserved).next_multiple_of(PIECE_MAX);
        larger.start = reserve_addresses(reserved)?;
        larger.reserved = reserved;
        for piece in &self.pieces {
            larger.map(piece)?;
        }
        // Only now that all of it is mapped twice is the old place given up; the pieces change hands.
        larger.pieces = std::mem::take(&mut self.pieces);
        larger.changes = self.changes;
        *self = larger;
        Ok(())
    }

    fn push(&mut self, piece: Claim) -> Result<(), RangeError> {
        self.map(&piece)?;
        self.pieces.push(piece);
        self.changes += 1;
        Ok(())
    }

    /// Maps a piece behind what is mapped.
    fn map(&mut self, piece: &Claim) -> Result<(), RangeError> {
        let len = piece.len();
        let failed = |source| RangeError::Map { len, source };
        let invalid = || failed(std::io::ErrorKind::InvalidInput.into());
        let place = NonZeroUsize::new(self.start.as_ptr() as usize + self.mapped);
        let size = NonZeroUsize::new(len.index()).ok_or_else(invalid)?;
        if self.mapped + size.get() > self.reserved {
            return Err(invalid());
        }
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        // SAFETY: the place lies in this value's own reservation, behind everything that borrows can reach, so that
        // nothing in use is replaced. The file's size is sealed: none of its pages can go while they are mapped.
        let mapped = unsafe { mmap(place, size, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags, piece.file(), 0) };
        mapped.map_err(|errno| failed(errno.into()))?;
        self.mapped += size.get();
        Ok(())
    }

    /// Replaces mappings from byte `from` on by bare addresses.
    fn give_back(&mut self, from: usize) -> Result<(), RangeError> {
        let len = self.mapped - from;
        let failed = |source| RangeError::Map { len: Bytes(len as u64), source };
        let place = NonZeroUsize::new(self.start.as_ptr() as usize + from);
        let Some(size) = NonZeroUsize::new(len) else { return Ok(()) };
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED | MapFlags::MAP_NORESERVE;
        // SAFETY: the place lies in this value's own mapping; `&mut self` says that nothing borrows it.
        let bare = unsafe { mmap_anonymous(place, size, ProtFlags::PROT_NONE, flags) };
        bare.map(|_| ()).map_err(|errno| failed(errno.into()))
    }
}

/// Addresses without memory.
fn reserve_addresses(len: usize) -> Result<NonNull<u8>, RangeError> {
    let failed = |source| RangeError::Map { len: Bytes(len as u64), source };
    let size = NonZeroUsize::new(len).ok_or_else(|| failed(std::io::ErrorKind::InvalidInput.into()))?;
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
    // SAFETY: the kernel chooses a place where nothing is mapped.
    let reserved = unsafe { mmap_anonymous(None, size, ProtFlags::PROT_NONE, flags) };
    reserved.map(NonNull::cast).map_err(|errno| failed(errno.into()))
}

impl Drop for HostRegion {
    fn drop(&mut self) {
        if self.reserved > 0 {
            // SAFETY: exactly the reservation of this value, with what is mapped in it; nothing borrows it any more.
            // The call fails only for a place that is none, which would be a defect here; then the addresses leak.
            let _ = unsafe { munmap(self.start.cast::<c_void>(), self.reserved) };
        }
    }
}

impl fmt::Debug for HostRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostRegion({:?}, {} in {} pieces)", self.name, Bytes(self.mapped as u64), self.pieces.len())
    }
}
