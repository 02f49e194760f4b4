//! Which manifest files may be believed.
//!
//! Whoever can write the manifest, or swap it in its folder, decides which bytes a worker computes with.

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The users whose files are believed: this process's own, root, and those named by the operator.
#[derive(Clone, Debug)]
pub struct Trust {
    uids: Vec<u32>,
}

impl Trust {
    /// This process's user, root and `more`.
    pub fn own_and(more: impl IntoIterator<Item = u32>) -> Trust {
        let mut uids = vec![nix::unistd::geteuid().as_raw(), 0];
        uids.extend(more);
        Trust { uids }
    }

    /// Whether this user is believed.
    pub fn includes(&self, uid: u32) -> bool {
        self.uids.contains(&uid)
    }
}

/// A file that cannot be opened or must not be believed.
#[derive(Debug, Error)]
pub enum TrustError {
    /// There is no such file.
    #[error("there is no manifest at {}", .path.display())]
    Absent {
        /// The path tried.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot read {}: {source}", .path.display())]
    Io {
        /// The path tried.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The path names a symbolic link.
    #[error("{} is a symbolic link: name the file itself", .path.display())]
    Link {
        /// The path tried.
        path: PathBuf,
    },
    /// The path names something that is not a file.
    #[error("{} is not a regular file", .path.display())]
    NotAFile {
        /// The path tried.
        path: PathBuf,
    },
    /// It belongs to a user who is not trusted.
    #[error("{} belongs to uid {uid}, who is not trusted: run as that user, or name it with --weights-uid", .path.display())]
    Owner {
        /// The file or folder.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// Others may change it.
    #[error("others may write {} (mode {mode:03o}): chmod go-w it", .path.display())]
    Mode {
        /// The file or folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is too large to be a manifest.
    #[error("{} has {size} bytes, more than the {max} that a manifest may have", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The largest size read.
        max: u64,
    },
}

/// The file's bytes, if it and its folder are owned by trusted users and writable by nobody else.
///
/// The folder is opened first and the file inside it by name, so what was checked is what is read.
pub(crate) fn read_trusted(path: &Path, trust: &Trust, size_max: u64) -> Result<Vec<u8>, TrustError> {
    let failed = |errno| failed(path, errno);
    let name = path.file_name().ok_or_else(|| TrustError::NotAFile { path: path.to_owned() })?;
    let folder = trusted_folder(path, trust)?;
    // Non-blocking, so that a pipe in the file's place cannot hold us.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let file = openat(folder.as_fd(), name, flags, Mode::empty()).map_err(failed)?;
    let stat = fstat(file.as_fd()).map_err(failed)?;
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
        return Err(TrustError::NotAFile { path: path.to_owned() });
    }
    check_owner(path, &stat, trust)?;
    let mut bytes = Vec::new();
    File::from(file)
        .take(size_max + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| TrustError::Io { path: path.to_owned(), source })?;
    if bytes.len() as u64 > size_max {
        return Err(TrustError::TooLarge { path: path.to_owned(), size: stat.st_size as u64, max: size_max });
    }
    Ok(bytes)
}

/// Checks that the folder of `path` is owned by a trusted user and writable by nobody else: what a reader of the
/// manifest will ask for.
pub fn check_folder(path: &Path, trust: &Trust) -> Result<(), TrustError> {
    trusted_folder(path, trust).map(drop)
}

fn trusted_folder(path: &Path, trust: &Trust) -> Result<OwnedFd, TrustError> {
    let folder_path = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let folder = open(folder_path, flags, Mode::empty()).map_err(|errno| failed(path, errno))?;
    check_owner(folder_path, &fstat(folder.as_fd()).map_err(|errno| failed(path, errno))?, trust)?;
    Ok(folder)
}

fn failed(path: &Path, errno: Errno) -> TrustError {
    match errno {
        Errno::ENOENT => TrustError::Absent { path: path.to_owned() },
        Errno::ELOOP => TrustError::Link { path: path.to_owned() },
        errno => TrustError::Io { path: path.to_owned(), source: errno.into() },
    }
}

fn check_owner(path: &Path, stat: &FileStat, trust: &Trust) -> Result<(), TrustError> {
    if !trust.includes(stat.st_uid) {
        return Err(TrustError::Owner { path: path.to_owned(), uid: stat.st_uid });
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(TrustError::Mode { path: path.to_owned(), mode: stat.st_mode & 0o777 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn read(path: &Path) -> Result<Vec<u8>, TrustError> {
        read_trusted(path, &Trust::own_and([]), 100)
    }

    #[test]
    fn a_private_file_in_a_private_folder_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&path).unwrap(), b"x");
    }

    #[test]
    fn an_absent_file_or_folder_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(read(&dir.path().join("m")), Err(TrustError::Absent { .. })));
        assert!(matches!(read(&dir.path().join("no/m")), Err(TrustError::Absent { .. })));
    }

    #[test]
    fn a_file_or_folder_that_others_may_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o620)).unwrap();
        assert!(matches!(read(&path), Err(TrustError::Mode { mode: 0o620, .. })));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(read(&path), Err(TrustError::Mode { mode: 0o777, .. })));
    }

    #[test]
    fn links_pipes_and_folders_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        fs::write(&path, "x").unwrap();
        symlink(&path, dir.path().join("link")).unwrap();
        assert!(matches!(read(&dir.path().join("link")), Err(TrustError::Link { .. })));
        nix::unistd::mkfifo(&dir.path().join("pipe"), Mode::S_IRUSR).unwrap();
        assert!(matches!(read(&dir.path().join("pipe")), Err(TrustError::NotAFile { .. })));
        fs::create_dir(dir.path().join("sub")).unwrap();
        assert!(matches!(read(&dir.path().join("sub")), Err(TrustError::NotAFile { .. })));
    }

    #[test]
    fn an_endless_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        fs::write(&path, [0; 101]).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(read(&path), Err(TrustError::TooLarge { size: 101, max: 100, .. })));
    }

    #[test]
    fn a_stranger_is_not_trusted() {
        let trust = Trust::own_and([4242]);
        assert!(trust.includes(0) && trust.includes(4242) && !trust.includes(4243));
    }
}
