//! What the store asks of a file system, small enough to be replaced by one that fails on purpose.

use ds4_units::Bytes;
use std::io;

/// A file in one of the store's folders.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileFacts {
    /// Its name.
    pub name: String,
    /// Its length.
    pub len: u64,
    /// When it was written or last used, in Unix seconds.
    pub used: u64,
}

/// A folder of folders of files. Names have no slashes; links are never followed. Every call blocks on the disk.
pub trait Disk: Send + Sync {
    /// Makes this process the one that writes; `false` while another one is. Once true, it stays true.
    fn claim(&self) -> io::Result<bool>;
    /// The folders.
    fn folders(&self) -> io::Result<Vec<String>>;
    /// Makes sure that a folder exists, for this user only.
    fn make_folder(&self, folder: &str) -> io::Result<()>;
    /// The regular files of a folder.
    fn files(&self, folder: &str) -> io::Result<Vec<FileFacts>>;
    /// A new file, for this user only; an existing one is an error.
    fn create(&self, folder: &str, file: &str) -> io::Result<Box<dyn WriteFile>>;
    /// An existing regular file.
    fn open(&self, folder: &str, file: &str) -> io::Result<Box<dyn ReadFile>>;
    /// Gives a file another name, replacing what has it.
    fn rename(&self, folder: &str, from: &str, to: &str) -> io::Result<()>;
    /// Takes a file away.
    fn remove(&self, folder: &str, file: &str) -> io::Result<()>;
    /// Makes the folder's names last through a power loss.
    fn sync(&self, folder: &str) -> io::Result<()>;
    /// Makes everything last through a power loss that was written so far, whoever wrote it.
    fn sync_everything(&self) -> io::Result<()>;
    /// Sets the time of last use to now.
    fn touch(&self, folder: &str, file: &str) -> io::Result<()>;
    /// Bytes this user may still write, and the size of the file system.
    fn free(&self) -> io::Result<(Bytes, Bytes)>;
    /// Unix seconds.
    fn now(&self) -> u64;
}

/// What a save waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// The file's bytes and every fact about it, and its name.
    Full,
    /// Its bytes and what is needed to read them, and its name.
    #[default]
    Data,
    /// Nothing: a power loss may cost what was saved. What it leaves of a file is never taken for whole.
    None,
}

/// A file being written, from its beginning to its end.
pub trait WriteFile {
    /// Appends all of `bytes`.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes what was written last through a power loss, as far as `mode` says.
    fn sync(&mut self, mode: SyncMode) -> io::Result<()>;
}

/// A file being read.
#[allow(clippy::len_without_is_empty)]
pub trait ReadFile: Send {
    /// Its length now.
    fn len(&self) -> io::Result<u64>;
    /// Fills `buffer` from `offset`; an end before that is `UnexpectedEof`.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}
