//! Reads tensor bytes of a model: around the page cache where the file system allows it, else through it, a piece at
//! a time, dropping from the cache what has been read.

use crate::staging::{DIRECT_ALIGN, Staging};
use ds4_gguf::{FileStamp, GgufError, Model, Shard};
use ds4_units::FileOffset;
use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// Where leaves are read from. Tests put failures between.
pub(crate) trait Disk: Sync {
    /// Reads `len` bytes, at most a leaf. Blocks.
    fn read<'b>(
        &self,
        shard: usize,
        offset: FileOffset,
        len: usize,
        staging: &'b mut Staging,
    ) -> Result<&'b [u8], GgufError>;

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
    fn read<'b>(
        &self,
        shard: usize,
        offset: FileOffset,
        len: usize,
        staging: &'b mut Staging,
    ) -> Result<&'b [u8], GgufError> {
        let file = &self.model.shards()[shard];
        match &self.direct[shard] {
            Some(direct) => read_direct(file, direct, offset, len, staging),
            None => read_cached(file, offset, len, staging),
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
    file.read_at(Staging::new().window(DIRECT_ALIGN), 0)?;
    Ok(file)
}

/// Reads whole blocks around the wanted bytes; the last block of a file may be short.
fn read_direct<'b>(
    shard: &Shard,
    file: &File,
    offset: FileOffset,
    len: usize,
    staging: &'b mut Staging,
) -> Result<&'b [u8], GgufError> {
    let before = (offset.0 % DIRECT_ALIGN as u64) as usize;
    let start = offset.0 - before as u64;
    let wanted = before + len;
    let window = staging.window(wanted.next_multiple_of(DIRECT_ALIGN));
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
    Ok(&window[before..wanted])
}

fn read_cached<'b>(
    shard: &Shard,
    offset: FileOffset,
    len: usize,
    staging: &'b mut Staging,
) -> Result<&'b [u8], GgufError> {
    let window = staging.window(len);
    shard.read_at(offset, window)?;
    // Advice only: a file system that does not take it keeps a cache that the kernel can still drop on demand.
    let _ = posix_fadvise(shard.file(), offset.0 as i64, len as i64, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    Ok(window)
}
