//! Compares what is in memory with the files once more, before anybody relies on it.

use crate::backing::{Backing, Held, MatrixShape};
use crate::disk::Disk;
use crate::error::LoadError;
use crate::identity::LEAF;
use crate::load::{Loader, Read};
use crate::staging::Staging;
use ds4_gpu::layout::{PANEL_ROWS, split, split_len};
use ds4_manifest::Digest;
use ds4_units::FileOffset;
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// How much is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Nothing.
    None,
    /// Some leaves over the whole model, and some rows of every tensor in another layout.
    #[default]
    Sample,
    /// Every leaf.
    Full,
}

/// Leaves of a sample: some 128 MiB, a fraction of a second.
const SAMPLE: usize = 64;

/// Everything after reading.
pub(crate) struct Arrived<'a, R> {
    pub(crate) reads: &'a [Read<'a>],
    pub(crate) digests: &'a [Digest],
    pub(crate) ranges: &'a [R],
}

/// Reads leaves back from memory, or once more from the file where memory gave the digest, and compares. Blocks.
pub(crate) fn verify<B: Backing>(
    backing: &B,
    loader: &Loader<'_>,
    arrived: &Arrived<'_, B::Range>,
    how: Verify,
) -> Result<(), LoadError> {
    let resident: Vec<(&Read<'_>, Digest)> =
        arrived.reads.iter().zip(arrived.digests.iter().copied()).filter(|(read, _)| read.held().is_some()).collect();
    let chosen: Vec<(&Read<'_>, Digest)> = match how {
        Verify::None => return Ok(()),
        Verify::Full => {
            loader.reading.progress.note(&format!("comparing all {} leaves with the files", resident.len()));
            resident.clone()
        }
        // Evenly over the files, ends included.
        Verify::Sample => sample(resident.len()).into_iter().map(|index| resident[index]).collect(),
    };
    let (from_disk, from_memory): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|(read, _)| read.digest.is_some());
    let held: Vec<Held> = from_disk.iter().filter_map(|(read, _)| read.held()).collect();
    let again = backing.digests(arrived.ranges, &held)?;
    from_disk.iter().zip(again).try_for_each(|((read, digest), again)| compare(read, *digest, again))?;
    from_memory.par_iter().try_for_each_init(Staging::new, |staging, (read, digest)| {
        stop_if(loader)?;
        let window = staging.window();
        let place = loader.disks[read.model].read(read.piece.shard, read.piece.offset, read.piece.len, window)?;
        compare(read, Digest::of(&window[place]), *digest)
    })?;
    resident.par_iter().filter(|(read, _)| read.piece.spot.is_some_and(|spot| spot.start == 0)).try_for_each(
        |(read, _)| {
            stop_if(loader)?;
            match read.held().and_then(|held| Some((held, held.spot.split?))) {
                Some((held, shape)) => {
                    verify_panel(backing, loader.disks[read.model], read, &arrived.ranges[held.range], held, shape)
                }
                None => Ok(()),
            }
        },
    )
}

fn stop_if(loader: &Loader<'_>) -> Result<(), LoadError> {
    if loader.reading.cancel.load(Ordering::Relaxed) { Err(LoadError::Cancelled) } else { Ok(()) }
}

/// The last panel of a split tensor, bit for bit against what the host makes of the file's rows.
fn verify_panel<B: Backing>(
    backing: &B,
    disk: &dyn Disk,
    read: &Read<'_>,
    range: &B::Range,
    held: Held,
    MatrixShape { kind, rows, columns }: MatrixShape,
) -> Result<(), LoadError> {
    let first = rows.saturating_sub(1) / PANEL_ROWS * PANEL_ROWS;
    let sizes =
        (kind.byte_len(columns as u64), split_len(kind, rows - first, columns), split_len(kind, first, columns));
    let (Some(row), Some(len), Some(before)) = sizes else { return Ok(()) };
    let mut raw = Vec::with_capacity(row.index() * (rows - first));
    let mut staging = Staging::new();
    let start = read.tensor.offset.0 + row.0 * first as u64;
    while raw.len() < raw.capacity() {
        let wanted = (raw.capacity() - raw.len()).min(LEAF.index());
        let window = staging.window();
        let place = disk.read(read.tensor.shard, FileOffset(start + raw.len() as u64), wanted, window)?;
        raw.extend_from_slice(&window[place]);
    }
    let mut found = vec![0; len.index()];
    backing.read(range, held.spot.offset + before.0, &mut found)?;
    if found == split(kind, rows - first, columns, &raw) {
        return Ok(());
    }
    Err(LoadError::Layout { tensor: read.tensor.name.clone(), first_row: first })
}

fn compare(read: &Read<'_>, file: Digest, memory: Digest) -> Result<(), LoadError> {
    if file == memory {
        return Ok(());
    }
    let (tensor, offset) = (read.tensor.name.clone(), read.piece.offset.0 - read.tensor.offset.0);
    Err(LoadError::Verify { tensor, range: read.range.unwrap_or_default(), offset, file, memory })
}

/// At most [`SAMPLE`] of `count` indices, evenly spread, first and last among them.
fn sample(count: usize) -> BTreeSet<usize> {
    let last = count.saturating_sub(1);
    let taken = SAMPLE.min(count);
    (0..taken).map(|index| if taken == 1 { 0 } else { index * last / (taken - 1) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_both_ends_and_no_more_than_it_may() {
        assert_eq!(sample(0).len(), 0);
        assert_eq!(sample(1), BTreeSet::from([0]));
        assert_eq!(sample(50).len(), 50);
        let many = sample(41_000);
        assert_eq!((many.len(), many.first(), many.last()), (SAMPLE, Some(&0), Some(&40_999)));
    }
}
