//! Files that hold what people wrote: for their owner's eyes only.

use nix::fcntl::OFlag;
use nix::unistd::Uid;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Why a file is not written to. The message names the remedy.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PrivateFileError {
    #[error("cannot open {}: {source}", .path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{} is not a regular file: name one, or a name that is free", .path.display())]
    NotRegular { path: PathBuf },
    #[error("{} belongs to another user (uid {owner}): name another file", .path.display())]
    Foreign { path: PathBuf, owner: u32 },
    #[error("{} can be read by others (mode {mode:03o}): chmod 600 it, or name another file", .path.display())]
    Readable { path: PathBuf, mode: u32 },
}

/// Opens a file to append to, made with mode 0600 where there is none. Its last component is never followed when it is
/// a link, and a file that others own or can read is refused. Does not wait.
///
/// # Errors
/// When it cannot be opened or is not the caller's own.
pub fn append_private(path: &Path) -> Result<File, PrivateFileError> {
    let failed = |source| PrivateFileError::Open { path: path.to_owned(), source };
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(flags.bits());
    let file = options.open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    let path = path.to_owned();
    if !found.is_file() {
        return Err(PrivateFileError::NotRegular { path });
    }
    if found.uid() != Uid::effective().as_raw() {
        return Err(PrivateFileError::Foreign { path, owner: found.uid() });
    }
    match found.mode() & 0o777 {
        mode if mode & 0o077 != 0 => Err(PrivateFileError::Readable { path, mode }),
        _ => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_new_file_is_for_its_owner_only_and_grows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        for text in ["a", "b"] {
            append_private(&path).unwrap().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "ab");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn links_folders_and_files_that_others_can_read_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::write(&real, "").unwrap();
        symlink(&real, &link).unwrap();
        assert!(matches!(append_private(&link), Err(PrivateFileError::Open { .. })));
        assert!(matches!(append_private(folder.path()), Err(PrivateFileError::Open { .. })));
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        let error = append_private(&real).unwrap_err().to_string();
        assert!(error.contains("mode 640") && error.contains("chmod 600"), "{error}");
        assert_eq!(fs::read_to_string(&real).unwrap(), "");
    }
}
