//! The real file system: a folder that is this user's alone.

use crate::disk::{Disk, FileFacts, ReadFile, SyncMode, WriteFile};
use ds4_units::Bytes;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fs::{File, FileTimes, TryLockError};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use thiserror::Error;

const LOCK: &str = ".ds4kv.lock";
const FOLDER_FLAGS: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// A folder that cannot hold conversations.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum FolderError {
    #[error("cannot {action} {}: {source}", .path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{} belongs to uid {uid}, not to this user: conversations are kept in a folder of one's own", .path.display())]
    Owner { path: PathBuf, uid: u32 },
    #[error("others may open {} (mode {mode:03o}), and conversations are readable text: chmod 700 it", .path.display())]
    Mode { path: PathBuf, mode: u32 },
}

/// A folder of conversations. Everything below it is opened relative to it and without following links.
pub struct Folder {
    folder: File,
    lock: Mutex<Option<File>>,
    /// The subfolder that was used last: reading thousands of files opens it once.
    recent: Mutex<Option<(String, Arc<OwnedFd>)>>,
}

impl Folder {
    /// Opens the folder, or makes it with its parents, mode 0700.
    pub fn open(path: &Path) -> Result<Folder, FolderError> {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|source| FolderError::Io { action: "make", path: path.to_owned(), source })?;
        Folder::existing(path)
    }

    /// Opens a folder that is there already.
    pub fn existing(path: &Path) -> Result<Folder, FolderError> {
        let failed = |action, source| FolderError::Io { action, path: path.to_owned(), source };
        let folder = openat(nix::fcntl::AT_FDCWD, path, FOLDER_FLAGS, Mode::empty());
        let folder = File::from(folder.map_err(|errno| failed("open", errno.into()))?);
        let facts = folder.metadata().map_err(|source| failed("look at", source))?;
        if facts.uid() != nix::unistd::geteuid().as_raw() {
            return Err(FolderError::Owner { path: path.to_owned(), uid: facts.uid() });
        }
        if facts.mode() & 0o077 != 0 {
            return Err(FolderError::Mode { path: path.to_owned(), mode: facts.mode() & 0o777 });
        }
        Ok(Folder { folder, lock: Mutex::default(), recent: Mutex::default() })
    }

    fn subfolder(&self, folder: &str) -> io::Result<Arc<OwnedFd>> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, open)) = recent.as_ref().filter(|(name, _)| name == folder) {
            return Ok(open.clone());
        }
        let open = Arc::new(openat(self.folder.as_fd(), folder, FOLDER_FLAGS, Mode::empty())?);
        *recent = Some((folder.to_owned(), open.clone()));
        Ok(open)
    }
}

impl Disk for Folder {
    fn claim(&self) -> io::Result<bool> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_some() {
            return Ok(true);
        }
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = File::from(openat(self.folder.as_fd(), LOCK, flags, Mode::from_bits_truncate(0o600))?);
        match file.try_lock() {
            Ok(()) => {
                *lock = Some(file);
                Ok(true)
            }
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn folders(&self) -> io::Result<Vec<String>> {
        let entries = list(self.folder.try_clone()?.into())?;
        Ok(entries.into_iter().filter(|(_, stat)| kind(stat) == SFlag::S_IFDIR).map(|(name, _)| name).collect())
    }

    fn make_folder(&self, folder: &str) -> io::Result<()> {
        match mkdirat(self.folder.as_fd(), folder, Mode::from_bits_truncate(0o700)) {
            Ok(()) => self.folder.sync_all(),
            Err(Errno::EEXIST) => self.subfolder(folder).map(|_| ()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn files(&self, folder: &str) -> io::Result<Vec<FileFacts>> {
        // A descriptor of its own: copies share the place where reading a folder has got to.
        let entries = list(openat(self.folder.as_fd(), folder, FOLDER_FLAGS, Mode::empty())?)?;
        let files = entries.into_iter().filter(|(_, stat)| kind(stat) == SFlag::S_IFREG);
        Ok(files
            .map(|(name, stat)| FileFacts {
                name,
                len: stat.st_size.try_into().unwrap_or(0),
                used: stat.st_mtime.try_into().unwrap_or(0),
            })
            .collect())
    }

    fn create(&self, folder: &str, file: &str) -> io::Result<Box<dyn WriteFile>> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(self.subfolder(folder)?, file, flags, Mode::from_bits_truncate(0o600))?;
        Ok(Box::new(Written(File::from(file))))
    }

    fn open(&self, folder: &str, file: &str) -> io::Result<Box<dyn ReadFile>> {
        // Non-blocking, so that a pipe in the file's place cannot hold us.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file = openat(self.subfolder(folder)?, file, flags, Mode::empty())?;
        if kind(&fstat(&file)?) != SFlag::S_IFREG {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(Box::new(Readable(File::from(file))))
    }

    fn rename(&self, folder: &str, from: &str, to: &str) -> io::Result<()> {
        let folder = self.subfolder(folder)?;
        Ok(renameat(&folder, from, &folder, to)?)
    }

    fn remove(&self, folder: &str, file: &str) -> io::Result<()> {
        Ok(unlinkat(self.subfolder(folder)?, file, UnlinkatFlags::NoRemoveDir)?)
    }

    fn sync(&self, folder: &str) -> io::Result<()> {
        File::from(self.subfolder(folder)?.try_clone()?).sync_all()
    }

    fn sync_everything(&self) -> io::Result<()> {
        Ok(nix::unistd::syncfs(&self.folder)?)
    }

    fn touch(&self, folder: &str, file: &str) -> io::Result<()> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file = File::from(openat(self.subfolder(folder)?, file, flags, Mode::empty())?);
        file.set_times(FileTimes::new().set_modified(SystemTime::now()))
    }

    fn free(&self) -> io::Result<(Bytes, Bytes)> {
        let facts = fstatvfs(self.folder.as_fd())?;
        let bytes = |blocks: u64| Bytes(blocks.saturating_mul(facts.fragment_size()));
        Ok((bytes(facts.blocks_available()), bytes(facts.blocks())))
    }

    fn now(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
    }
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// Names and facts, links not followed, in order of name. Names that are not UTF-8 are nobody's.
fn list(folder: OwnedFd) -> io::Result<Vec<(String, FileStat)>> {
    let names: Vec<String> = {
        let mut dir = Dir::from_fd(folder.try_clone()?)?;
        let entries = dir.iter().filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
        entries.filter(|name| name != "." && name != "..").collect()
    };
    let mut entries = Vec::with_capacity(names.len());
    for name in names {
        match fstatat(&folder, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => entries.push((name, stat)),
            // Gone since it was listed.
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    entries.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Ok(entries)
}

struct Written(File);

impl WriteFile for Written {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self, mode: SyncMode) -> io::Result<()> {
        match mode {
            SyncMode::Full => self.0.sync_all(),
            SyncMode::Data => self.0.sync_data(),
            SyncMode::None => Ok(()),
        }
    }
}

struct Readable(File);

impl ReadFile for Readable {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }
}
