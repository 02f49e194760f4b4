//! Device memory that grows in place: addresses reserved once, pages mapped when they are first needed.

use crate::BackendError;
use ds4_gpu::cuda::{Access, CudaError, Gpu, Mapping, PhysAlloc, VaRange};
use ds4_gpu::{DevicePtr, MemoryPiece, RangeError};
use ds4_units::Bytes;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Pages are taken in pieces of a quarter of what is there, within these bounds: few pieces, little waste.
pub(crate) const PIECE_MIN: u64 = 2 << 20;
const PIECE_MAX: u64 = 64 << 20;

/// The most memory that is ever behind the first `bytes` bytes: the last piece may have been taken for the last of them.
pub(crate) fn mapped_most(bytes: u64) -> u64 {
    (bytes + (bytes / 4).clamp(PIECE_MIN, PIECE_MAX)).next_multiple_of(PIECE_MIN)
}

/// A range whose first bytes have memory behind them. The rest are addresses only.
pub(crate) struct Growing {
    gpu: Gpu,
    what: &'static str,
    range: Arc<VaRange>,
    pieces: Vec<Piece>,
    mapped: u64,
    changes: u64,
}

struct Piece {
    mapping: Mapping,
    /// The descriptor it came with: memory that was imported cannot be exported again.
    adopted: Option<OwnedFd>,
}

impl Growing {
    /// Reserves addresses for `most` bytes. `what` is what errors call it.
    pub(crate) fn reserve(gpu: &Gpu, what: &'static str, most: Bytes) -> Result<Growing, CudaError> {
        let most = Bytes(most.0.max(1).next_multiple_of(gpu.granularity().0.max(PIECE_MAX)));
        let range = VaRange::reserve(gpu, most)?;
        Ok(Growing { gpu: gpu.clone(), what, range, pieces: Vec::new(), mapped: 0, changes: 0 })
    }

    /// Where it starts; the same for as long as it lives.
    pub(crate) fn address(&self) -> DevicePtr {
        self.range.address()
    }

    /// Bytes with memory behind them.
    pub(crate) fn mapped(&self) -> Bytes {
        Bytes(self.mapped)
    }

    /// Makes sure that the first `bytes` bytes have memory. When it fails what was there is still there.
    pub(crate) fn ensure(&mut self, bytes: u64) -> Result<(), BackendError> {
        self.grow(bytes, self.mapped / 4)
    }

    /// The same with no more memory than that takes.
    pub(crate) fn ensure_just(&mut self, bytes: u64) -> Result<(), BackendError> {
        self.grow(bytes, PIECE_MIN)
    }

    /// Takes memory up to `bytes` bytes, in pieces of no less than `least`. When it fails, what this call took is given
    /// back: whoever has less than it needs has no use for a part.
    fn grow(&mut self, bytes: u64, least: u64) -> Result<(), BackendError> {
        let had = self.pieces.len();
        self.take(bytes, least).map_err(|error| {
            // Nobody has heard of the pieces, so that the device cannot be at work on them.
            while self.pieces.len() > had {
                self.drop_last();
            }
            self.refused(error, bytes)
        })
    }

    fn take(&mut self, bytes: u64, least: u64) -> Result<(), CudaError> {
        let granularity = self.gpu.granularity().0;
        while self.mapped < bytes {
            let piece = least.max(bytes - self.mapped).clamp(PIECE_MIN, PIECE_MAX);
            let piece = piece.next_multiple_of(granularity).min(self.range.len().0 - self.mapped);
            self.push(PhysAlloc::create(&self.gpu, Bytes(piece))?, None)?;
        }
        Ok(())
    }

    /// Maps pieces that a dead process has left behind what is there.
    pub(crate) fn adopt(&mut self, pieces: Vec<MemoryPiece>) -> Result<(), CudaError> {
        for MemoryPiece { fd, len } in pieces {
            self.push(PhysAlloc::import(&self.gpu, fd.as_fd(), len)?, Some(fd))?;
        }
        Ok(())
    }

    fn push(&mut self, memory: PhysAlloc, adopted: Option<OwnedFd>) -> Result<(), CudaError> {
        let len = memory.len().0;
        let mapping = Mapping::map(&self.range, Bytes(self.mapped), Arc::new(memory), Access::ReadWrite)?;
        self.pieces.push(Piece { mapping, adopted });
        self.mapped += len;
        self.changes += 1;
        Ok(())
    }

    /// Lengths of its pieces, in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.pieces.iter().map(|piece| piece.mapping.memory().len())
    }

    /// Descriptors that keep the memory, in order.
    pub(crate) fn export(&self) -> Result<Vec<MemoryPiece>, BackendError> {
        let exported = |piece: &Piece| -> Result<MemoryPiece, BackendError> {
            let memory = piece.mapping.memory();
            let fd = match &piece.adopted {
                Some(fd) => fd.try_clone().map_err(|source| RangeError::Export { source })?,
                None => memory.export()?.into_fd(),
            };
            Ok(MemoryPiece { fd, len: memory.len() })
        };
        self.pieces.iter().map(exported).collect()
    }

    /// A number that is another one whenever pieces have come or gone.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Gives back memory behind bytes from `bytes` on, in whole pieces. The device must have done everything with it.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        while let Some(last) = self.pieces.last() {
            if self.mapped - last.mapping.memory().len().0 < bytes {
                break;
            }
            self.drop_last();
        }
    }

    fn drop_last(&mut self) {
        if let Some(last) = self.pieces.pop() {
            self.mapped -= last.mapping.memory().len().0;
            self.changes += 1;
        }
    }

    fn refused(&self, error: CudaError, bytes: u64) -> BackendError {
        match (error.is_out_of_memory(), self.gpu.memory()) {
            (true, Ok(memory)) => {
                BackendError::OutOfMemory { what: self.what, asked: Bytes(bytes - self.mapped), free: memory.free }
            }
            _ => error.into(),
        }
    }
}

#[cfg(test)]
#[path = "../../../shared/gpu/tests/paper/mod.rs"]
mod paper;

#[cfg(test)]
mod tests {
    use super::*;

    /// All of a device's memory but `left`, until it is dropped.
    fn all_but(gpu: &Gpu, left: Bytes) -> PhysAlloc {
        PhysAlloc::create(gpu, Bytes(gpu.memory().unwrap().free.0 - left.0)).unwrap()
    }

    #[test]
    fn growing_that_fails_half_way_gives_back_what_it_took() {
        let name = "cuda::growing::tests::growing_that_fails_half_way_gives_back_what_it_took";
        paper::on_paper(name, || [paper::HOPPER, paper::BLACKWELL].into_iter().for_each(fails_half_way));
    }

    fn fails_half_way(device: usize) {
        let gpu = Gpu::open(device).unwrap();
        let mut growing = Growing::reserve(&gpu, "a test", Bytes::gib(1)).unwrap();
        growing.ensure(3 * PIECE_MAX).unwrap();
        let had = growing.mapped();
        for left in (0..3 * PIECE_MAX).step_by(PIECE_MIN as usize).map(Bytes) {
            let others = all_but(&gpu, left);
            match growing.ensure(had.0 + 3 * PIECE_MAX).unwrap_err() {
                BackendError::OutOfMemory { what, asked, free } => {
                    assert_eq!((what, asked, free), ("a test", Bytes(3 * PIECE_MAX), left));
                }
                other => panic!("{left} left: {other}"),
            }
            assert_eq!((growing.mapped(), growing.pieces().map(|piece| piece.0).sum()), (had, had.0));
            drop(others);
        }
        let others = all_but(&gpu, Bytes(3 * PIECE_MAX));
        growing.ensure(had.0 + 3 * PIECE_MAX).unwrap();
        growing.ensure(had.0).unwrap();
        assert_eq!(gpu.memory().unwrap().free, Bytes::ZERO);
        growing.shrink(had.0);
        assert_eq!((growing.mapped(), gpu.memory().unwrap().free), (had, Bytes(3 * PIECE_MAX)));
        drop(others);
    }
}
