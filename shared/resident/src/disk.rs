//! Reads tensor bytes of a model: around the page cache where the file system allows it, else through it, a piece at
//! a time, dropping from the cache what has been read.

use crate::staging::{DIRECT_ALIGN, Staging};
use ds4_gguf::{FileStamp, GgufError, Model, Shard};
use ds4_units::FileOffset;
use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// Where leaves are read from. Tests put failures between.
pub(crate) trait Disk: Sync {
    /// Reads `len` bytes, at most a leaf, into a window of [`crate::staging::WINDOW`] bytes that starts at a block; says
    /// where in it they are. Blocks.
    fn read(&self, shard: usize, offset: FileOffset, len: usize, window: &mut [u8]) -> Result<Range<usize>, GgufError>;

    /// Refuses when a file is not what it was when it was opened.
    fn check_unchanged(&self) -> Result<(), GgufError>;
}

/// The files of a model.
pub(crate) struct ModelFiles<'m> {
    model: &'m Model,
    /// For each shard a descriptor that bypasses the page cache, where there can be one.
    direct: Vec<Option<File>>,
}

impl<'m> ModelFiles<'m> {
    /// Prepares to read a model. Tells `note` which files go through the page cache, and why.
    pub(crate) fn open(model: &'m Model, mut note: impl FnMut(&str)) -> ModelFiles<'m> {
        let open = |shard: &Shard| match open_direct(shard) {
            Ok(file) => Some(file),
            Err(error) => {
                note(&format!("{}: reading through the page cache, because direct reads fail: {error}", shard.name()));
                None
            }
        };
        ModelFiles { model, direct: model.shards().iter().map(open).collect() }
    }

    /// How many files are read around the page cache.
    pub(crate) fn direct_files(&self) -> usize {
        self.direct.iter().flatten().count()
    }
}

impl Disk for ModelFiles<'_> {
    fn read(&self, shard: usize, offset: FileOffset, len: usize, window: &mut [u8]) -> Result<Range<usize>, GgufError> {
        let file = &self.model.shards()[shard];
        match &self.direct[shard] {
            Some(direct) => read_direct(file, direct, offset, len, window),
            None => read_cached(file, offset, len, window),
        }
    }

    fn check_unchanged(&self) -> Result<(), GgufError> {
        self.model.check_unchanged()
    }
}

/// Opens the shard's file once more, for direct reads, and tries one. It goes through the open descriptor and not
/// through the path, at which there may be another file by now.
fn open_direct(shard: &Shard) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", shard.file().as_raw_fd());
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_DIRECT.bits()).open(path)?;
    let (stamp, expected) = (FileStamp::of(&file)?, shard.stamp());
    if (stamp.device, stamp.inode) != (expected.device, expected.inode) {
        return Err(io::Error::other("the descriptor leads to another file"));
    }
    file.read_at(&mut Staging::new().window()[..DIRECT_ALIGN], 0)?;
    Ok(file)
}

/// Reads whole blocks around the wanted bytes; the last block of a file may be short.
fn read_direct(
    shard: &Shard,
    file: &File,
    offset: FileOffset,
    len: usize,
    window: &mut [u8],
) -> Result<Range<usize>, GgufError> {
    let before = (offset.0 % DIRECT_ALIGN as u64) as usize;
    let start = offset.0 - before as u64;
    let wanted = before + len;
    let window = &mut window[..wanted.next_multiple_of(DIRECT_ALIGN)];
    let mut done = 0;
    while done < wanted {
        let at = start + done as u64;
        match file.read_at(&mut window[done..], at) {
            Ok(count) => {
                done += count;
                // Only the end of the file ends a direct read between blocks, or at once.
                if done < wanted && (count == 0 || !count.is_multiple_of(DIRECT_ALIGN)) {
                    let (end, missing) = (start + done as u64, (wanted - done) as u64);
                    return Err(GgufError::ShortRead { file: shard.name(), end, missing });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(GgufError::Read { file: shard.name(), offset: at, source }),
        }
    }
    Ok(before..wanted)
}

fn read_cached(shard: &Shard, offset: FileOffset, len: usize, window: &mut [u8]) -> Result<Range<usize>, GgufError> {
    shard.read_at(offset, &mut window[..len])?;
    // Advice only: a file system that does not take it keeps a cache that the kernel can still drop on demand.
    let _ = posix_fadvise(shard.file(), offset.0 as i64, len as i64, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    Ok(0..len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_gguf::writer::Writer;
    use ds4_units::TensorType;
    use std::path::Path;

    const LEN: usize = 3 * DIRECT_ALIGN + 100;

    fn model(folder: &Path) -> (Model, Vec<u8>) {
        let path = folder.join("model.gguf");
        let bytes: Vec<u8> = (0..LEN).map(|i| (i * 31 / 8) as u8).collect();
        Writer::new("example").tensor("w", TensorType::I8, &[LEN as u64], bytes).write(&path).unwrap();
        (Model::open(&path).unwrap(), std::fs::read(&path).unwrap())
    }

    /// The same model read around the page cache, where this file system can, and through it.
    fn both(model: &Model) -> [ModelFiles<'_>; 2] {
        [ModelFiles::open(model, |_| ()), ModelFiles { model, direct: vec![None] }]
    }

    #[test]
    fn both_ways_read_the_same_bytes_at_odd_places_and_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let (model, content) = model(folder.path());
        let mut staging = Staging::new();
        let size = content.len();
        let places = [(0, 1), (1, DIRECT_ALIGN), (4095, 2), (4096, 4096), (size - 1, 1), (size - 5000, 5000), (7, 0)];
        for (files, (at, len)) in both(&model).iter().flat_map(|files| places.map(|place| (files, place))) {
            let found = files.read(0, FileOffset(at as u64), len, staging.window()).unwrap();
            assert_eq!(
                &staging.window()[found],
                &content[at..at + len],
                "{len} bytes at {at}, {} direct",
                files.direct_files()
            );
        }
    }

    #[test]
    fn both_ways_say_where_a_file_ends_too_early() {
        let folder = tempfile::tempdir().unwrap();
        let (model, content) = model(folder.path());
        let mut staging = Staging::new();
        for files in both(&model) {
            for (at, len) in [(content.len() - 10, 11), (content.len() - 10, 9000), (content.len() + 9000, 1)] {
                let error = files.read(0, FileOffset(at as u64), len, staging.window()).unwrap_err();
                assert!(matches!(error, GgufError::ShortRead { .. }), "{error}");
            }
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_directly_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let (model, _) = model(folder.path());
        let mut notes = Vec::new();
        let files = ModelFiles::open(&model, |text| notes.push(text.to_owned()));
        assert_eq!(notes.len() + files.direct_files(), 1);
        assert!(notes.iter().all(|note| note.contains("model.gguf: reading through the page cache, because")));
    }
}
