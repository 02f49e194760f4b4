//! One open file of a model: reading at an offset, and proof that it has not changed.

use crate::error::{FileName, GgufError};
use crate::header::{Header, MAGIC};
use ds4_units::{Bytes, FileOffset};
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The header is read in pieces of this size.
const HEADER_BUFFER: usize = 1 << 20;

/// What tells a file from a changed or replaced one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    /// The device that holds it.
    pub device: u64,
    /// Its number on that device.
    pub inode: u64,
    /// Its length.
    pub size: Bytes,
    /// Last change of the content, in nanoseconds since 1970 (until 2262).
    pub mtime_ns: i64,
    /// Last change of content or attributes, in nanoseconds since 1970 (until 2262).
    pub ctime_ns: i64,
}

impl FileStamp {
    /// The stamp of an open file.
    pub fn of(file: &File) -> io::Result<FileStamp> {
        Ok(FileStamp::new(&file.metadata()?))
    }

    fn new(metadata: &std::fs::Metadata) -> FileStamp {
        let nanos = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        FileStamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: Bytes(metadata.len()),
            mtime_ns: nanos(metadata.mtime(), metadata.mtime_nsec()),
            ctime_ns: nanos(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl fmt::Display for FileStamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileStamp { device, inode, size, mtime_ns, ctime_ns } = self;
        write!(f, "{} bytes, mtime {mtime_ns} ns, ctime {ctime_ns} ns, inode {inode} on device {device}", size.0)
    }
}

/// One file of a model, held open.
#[derive(Debug)]
pub struct Shard {
    path: PathBuf,
    file: File,
    stamp: FileStamp,
    base: FileOffset,
}

impl Shard {
    /// Opens a regular file. Does not wait: a pipe is refused before it is opened.
    pub(crate) fn open(path: &Path) -> Result<Shard, GgufError> {
        let failed = |source| GgufError::Open { file: FileName::of(path), source };
        let regular = |metadata: &std::fs::Metadata| match metadata.is_file() {
            true => Ok(()),
            false => Err(GgufError::NotAFile { file: FileName::of(path) }),
        };
        regular(&std::fs::metadata(path).map_err(failed)?)?;
        let file = File::open(path).map_err(failed)?;
        regular(&file.metadata().map_err(failed)?)?;
        let stamp = FileStamp::of(&file).map_err(failed)?;
        Ok(Shard { path: path.to_owned(), file, stamp, base: FileOffset(0) })
    }

    /// Reads this file's header, of at most `budget` bytes.
    pub(crate) fn read_header(&self, budget: Bytes) -> Result<Header, GgufError> {
        let reader = BufReader::with_capacity(HEADER_BUFFER, Pread { file: &self.file, pos: 0 });
        let header = Header::read(reader, self.size(), budget)
            .map_err(|source| GgufError::Header { file: self.name(), source })?;
        self.check_not_joined(&header)?;
        Ok(header)
    }

    /// Refuses a file in which another GGUF follows after the last tensor, at once or after the padding.
    fn check_not_joined(&self, header: &Header) -> Result<(), GgufError> {
        let end = header.end().0;
        for at in [end, end.next_multiple_of(header.alignment)] {
            let mut found = [0; MAGIC.len()];
            if at + found.len() as u64 <= self.size().0 {
                self.read_at(FileOffset(at), &mut found)?;
            }
            if found == MAGIC {
                return Err(GgufError::Joined { file: self.name(), at });
            }
        }
        Ok(())
    }

    pub(crate) fn set_base(&mut self, base: FileOffset) {
        self.base = base;
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path as messages show it.
    pub fn name(&self) -> FileName {
        FileName::of(&self.path)
    }

    /// Its length when it was opened.
    pub fn size(&self) -> Bytes {
        self.stamp.size
    }

    /// Where its first byte lies in the logical model.
    pub fn base(&self) -> FileOffset {
        self.base
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// What it was when it was opened.
    pub fn stamp(&self) -> &FileStamp {
        &self.stamp
    }

    /// Fills `out` from `offset` on. Blocks on the disk; several threads may read at once.
    pub fn read_at(&self, offset: FileOffset, out: &mut [u8]) -> Result<(), GgufError> {
        let mut done = 0;
        while done < out.len() {
            // A position past the largest file is past the end of this one.
            let at = offset.0.saturating_add(done as u64);
            match self.file.read_at(&mut out[done..], at) {
                Ok(0) => {
                    let missing = (out.len() - done) as u64;
                    return Err(GgufError::ShortRead { file: self.name(), end: at, missing });
                }
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(GgufError::Read { file: self.name(), offset: at, source }),
            }
        }
        Ok(())
    }

    /// Refuses when the open file is not what it was, or when its path leads to another file by now.
    pub fn check_unchanged(&self) -> Result<(), GgufError> {
        let failed = |source| GgufError::Open { file: self.name(), source };
        let open = FileStamp::of(&self.file).map_err(failed)?;
        let at_path = FileStamp::new(&std::fs::metadata(&self.path).map_err(failed)?);
        match [open, at_path].into_iter().find(|now| *now != self.stamp) {
            Some(after) => Err(GgufError::Changed { file: self.name(), before: self.stamp, after }),
            None => Ok(()),
        }
    }
}

/// Reads a file forwards by position, so that the file's own cursor is neither used nor moved.
struct Pread<'a> {
    file: &'a File,
    pos: u64,
}

impl Read for Pread<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(out, self.pos)?;
        self.pos += count as u64;
        Ok(count)
    }
}
