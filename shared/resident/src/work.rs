//! Reads pieces of files with several threads, hashes each and writes it to its place.

use crate::disk::Disk;
use crate::error::LoadError;
use crate::identity::LEAF;
use crate::plan::PlannedTensor;
use crate::staging::Staging;
use ds4_gpu::HostRange;
use ds4_manifest::{Digest, Place};
use ds4_units::{Bytes, FileOffset};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

/// Told how reading goes on, from the reading threads. Must not block for long.
pub trait Progress: Sync {
    /// `done` bytes in all have been read, of [`crate::Plan::bytes_to_read`].
    fn read(&self, done: Bytes);

    /// Something an operator should know, in one line.
    fn note(&self, text: &str);
}

/// No progress wanted.
impl Progress for () {
    fn read(&self, _done: Bytes) {}

    fn note(&self, _text: &str) {}
}

/// How files are read, who is told about it, and who may stop it.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// Threads that read and hash; at least one is used.
    pub threads: usize,
    /// Told how it goes on.
    pub progress: &'a dyn Progress,
    /// Set to true to stop; looked at before every piece of 2 MiB.
    pub cancel: &'a AtomicBool,
}

impl Reading<'_> {
    /// As many threads as there are processors, but not more than a disk can use.
    pub fn default_threads() -> usize {
        thread::available_parallelism().map_or(1, |count| count.get().min(8))
    }
}

/// One leaf of a tensor: where it is read and, if it is to be resident, where it goes in the range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    shard: usize,
    offset: FileOffset,
    len: usize,
    target: Option<u64>,
}

/// The leaves of a tensor, in order.
pub(crate) fn pieces(tensor: &PlannedTensor, place: Option<Place>) -> impl Iterator<Item = Piece> {
    let (shard, start, end) = (tensor.shard, tensor.offset.0, tensor.len.0);
    (0..end).step_by(LEAF.index()).map(move |at| Piece {
        shard,
        offset: FileOffset(start + at),
        len: (end - at).min(LEAF.0) as usize,
        target: place.map(|place| place.offset.0 + at),
    })
}

/// Shared by the threads that work on one list of pieces.
struct Work<'a> {
    disk: &'a dyn Disk,
    pieces: &'a [Piece],
    range: Option<&'a HostRange>,
    reading: &'a Reading<'a>,
    done: &'a AtomicU64,
    next: AtomicUsize,
    failed: AtomicBool,
}

/// Reads all pieces and gives their digests, in order. Pieces with a target are written to `range`. Stops at the first
/// error of any thread, or when cancelled. `done` counts bytes over several calls.
pub(crate) fn run(
    disk: &dyn Disk,
    pieces: &[Piece],
    range: Option<&HostRange>,
    reading: &Reading<'_>,
    done: &AtomicU64,
) -> Result<Vec<Digest>, LoadError> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = Work { disk, pieces, range, reading, done, next, failed };
    let threads = reading.threads.clamp(1, pieces.len().max(1));
    let results: Vec<_> = thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(|| work.take_pieces())).collect();
        started.into_iter().map(|thread| thread.join()).collect()
    });
    let mut digests = vec![Digest([0; 32]); pieces.len()];
    for result in results {
        let found = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        found.into_iter().for_each(|(index, digest)| digests[index] = digest);
    }
    if reading.cancel.load(Ordering::Relaxed) {
        return Err(LoadError::Cancelled);
    }
    Ok(digests)
}

impl Work<'_> {
    /// One thread: takes the next piece until there is none, or until somebody says stop.
    fn take_pieces(&self) -> Result<Vec<(usize, Digest)>, LoadError> {
        let mut staging = Staging::new();
        let mut digests = Vec::new();
        while !self.failed.load(Ordering::Relaxed) && !self.reading.cancel.load(Ordering::Relaxed) {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(piece) = self.pieces.get(index) else { break };
            match self.work_on(piece, &mut staging) {
                Ok(digest) => digests.push((index, digest)),
                Err(error) => {
                    self.failed.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(digests)
    }

    fn work_on(&self, piece: &Piece, staging: &mut Staging) -> Result<Digest, LoadError> {
        let bytes = match self.disk.read(piece.shard, piece.offset, piece.len, staging) {
            Ok(bytes) => bytes,
            // A file that was changed is the cause, a failed read only its effect.
            Err(error) => return Err(self.disk.check_unchanged().err().unwrap_or(error).into()),
        };
        if let (Some(range), Some(target)) = (self.range, piece.target) {
            range.write_at(target, bytes)?;
        }
        let digest = Digest::of(bytes);
        let len = bytes.len() as u64;
        let done = self.done.fetch_add(len, Ordering::Relaxed) + len;
        self.reading.progress.read(Bytes(done));
        Ok(digest)
    }
}
