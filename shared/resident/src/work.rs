//! Reads pieces of files with several threads and passes each on to its place.

use crate::backing::{Lane, Spot};
use crate::disk::Disk;
use crate::error::LoadError;
use crate::identity::LEAF;
use crate::plan::PlannedTensor;
use ds4_manifest::Digest;
use ds4_units::{Bytes, FileOffset};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

/// Told how reading goes on, from the reading threads. Must not block for long.
pub trait Progress: Sync {
    /// `done` bytes in all have been read, of [`crate::Plan::bytes_to_read`].
    fn read(&self, done: Bytes);

    /// Everything has arrived and is verified now.
    fn verifying(&self) {}

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
    pub(crate) shard: usize,
    pub(crate) offset: FileOffset,
    pub(crate) len: usize,
    pub(crate) spot: Option<Spot>,
}

/// The leaves of a tensor, in order. `spot` is where the tensor goes.
pub(crate) fn pieces(tensor: &PlannedTensor, spot: Option<Spot>) -> impl Iterator<Item = Piece> {
    let (shard, start, end) = (tensor.shard, tensor.offset.0, tensor.len.0);
    (0..end).step_by(LEAF.index()).map(move |at| Piece {
        shard,
        offset: FileOffset(start + at),
        len: (end - at).min(LEAF.0) as usize,
        spot: spot.map(|spot| Spot { start: at, ..spot }),
    })
}

/// Shared by the threads that work on one list of pieces.
struct Work<'a, R> {
    disk: &'a dyn Disk,
    pieces: &'a [Piece],
    range: Option<&'a R>,
    reading: &'a Reading<'a>,
    done: &'a AtomicU64,
    next: AtomicUsize,
    failed: AtomicBool,
}

/// Reads all pieces, a thread per lane, and gives their digests, in order, where they were computed on the way. Pieces
/// with a spot go to `range`. Stops at the first error of any thread, or when cancelled. `done` counts bytes over
/// several calls.
pub(crate) fn run<L: Lane<Range: Sync>>(
    disk: &dyn Disk,
    pieces: &[Piece],
    range: Option<&L::Range>,
    lanes: &mut [L],
    reading: &Reading<'_>,
    done: &AtomicU64,
) -> Result<Vec<Option<Digest>>, LoadError> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = Work { disk, pieces, range, reading, done, next, failed };
    let results: Vec<_> = thread::scope(|scope| {
        let useful = lanes.iter_mut().take(pieces.len());
        let started: Vec<_> = useful.map(|lane| scope.spawn(|| work.take_pieces(lane))).collect();
        started.into_iter().map(|thread| thread.join()).collect()
    });
    let mut digests = vec![None; pieces.len()];
    for result in results {
        let found = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        found.into_iter().for_each(|(index, digest)| digests[index] = digest);
    }
    if reading.cancel.load(Ordering::Relaxed) {
        return Err(LoadError::Cancelled);
    }
    Ok(digests)
}

impl<R> Work<'_, R> {
    /// One thread: takes the next piece until there is none, or until somebody says stop.
    fn take_pieces(&self, lane: &mut impl Lane<Range = R>) -> Result<Vec<(usize, Option<Digest>)>, LoadError> {
        let mut digests = Vec::new();
        while !self.failed.load(Ordering::Relaxed) && !self.reading.cancel.load(Ordering::Relaxed) {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(piece) = self.pieces.get(index) else { break };
            match self.work_on(piece, lane) {
                Ok(digest) => digests.push((index, digest)),
                Err(error) => {
                    self.failed.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(digests)
    }

    fn work_on(&self, piece: &Piece, lane: &mut impl Lane<Range = R>) -> Result<Option<Digest>, LoadError> {
        let place = match self.disk.read(piece.shard, piece.offset, piece.len, lane.window()?) {
            Ok(place) => place,
            // A file that was changed is the cause, a failed read only its effect.
            Err(error) => return Err(self.disk.check_unchanged().err().unwrap_or(error).into()),
        };
        let len = place.len() as u64;
        let digest = lane.put(place, self.range.zip(piece.spot))?;
        let done = self.done.fetch_add(len, Ordering::Relaxed) + len;
        self.reading.progress.read(Bytes(done));
        Ok(digest)
    }
}
