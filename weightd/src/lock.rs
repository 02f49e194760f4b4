//! The lock that keeps two owners of one name apart.

use ds4_host::printable;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// An owner that is being removed may take its lock file with it between our opening and our locking it.
const TRIES: usize = 100;
/// What a lock file may hold; it is ours to write and others' to read aloud.
const NOTE_MAX: u64 = 4096;

/// A lock that was not taken.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another owner has it.
    #[error("another owner holds the lock {}: {holder}. Stop it with ds4-weightd --release, or use another --name", .path.display())]
    Held {
        /// The lock file.
        path: PathBuf,
        /// What the holder wrote about itself.
        holder: String,
    },
    /// The file cannot be used.
    #[error("cannot use the lock file {}: {reason}", .path.display())]
    Unusable {
        /// The lock file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// The lock. Dropping it removes the file and gives it up.
#[derive(Debug)]
pub(crate) struct OwnerLock {
    path: PathBuf,
    file: Flock<File>,
}

impl OwnerLock {
    /// Takes the lock, or says who has it. Does not wait. What is written into the file is for people only.
    pub(crate) fn acquire(path: &Path, manifest: &Path) -> Result<OwnerLock, LockError> {
        let unusable = |reason: String| LockError::Unusable { path: path.to_owned(), reason };
        for _ in 0..TRIES {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
                .open(path)
                .map_err(|error| unusable(error.to_string()))?;
            let meta = file.metadata().map_err(|error| unusable(error.to_string()))?;
            let me = nix::unistd::geteuid().as_raw();
            if !meta.is_file() || meta.uid() != me {
                return Err(unusable(format!("it is not a regular file of uid {me}")));
            }
            let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => file,
                Err((file, Errno::EWOULDBLOCK)) => {
                    return Err(LockError::Held { path: path.to_owned(), holder: holder(&file) });
                }
                Err((_, errno)) => return Err(unusable(errno.desc().to_owned())),
            };
            // The previous holder may have removed the file after we opened it: then this lock keeps nobody away.
            let still_there =
                path.symlink_metadata().is_ok_and(|there| (there.dev(), there.ino()) == (meta.dev(), meta.ino()));
            if still_there {
                let lock = OwnerLock { path: path.to_owned(), file };
                lock.write_note(manifest).map_err(|error| unusable(error.to_string()))?;
                return Ok(lock);
            }
        }
        Err(unusable("others keep replacing it".to_owned()))
    }

    fn write_note(&self, manifest: &Path) -> io::Result<()> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let note = format!("pid {}, since {since}, manifest {}\n", std::process::id(), manifest.display());
        self.file.set_len(0)?;
        (&*self.file).write_all(note.as_bytes())
    }
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        // While it is still locked, so that nobody can have taken it in between.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn holder(file: &File) -> String {
    let mut note = String::new();
    let read = file.take(NOTE_MAX).read_to_string(&mut note);
    match note.trim() {
        "" => "it has not written its name yet".to_owned(),
        _ if read.is_err() => "its name cannot be read".to_owned(),
        note => describe(note, SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()),
    }
}

/// The note with the time as an age, which needs no time zone.
fn describe(note: &str, now: u64) -> String {
    let note = printable(note);
    let parts: Vec<&str> = note.splitn(3, ", ").collect();
    let since = parts.get(1).and_then(|part| part.strip_prefix("since ")?.parse::<u64>().ok());
    match (parts.as_slice(), since) {
        ([pid, _, manifest], Some(since)) => {
            format!("{pid}, started {} s ago, {manifest}", now.saturating_sub(since))
        }
        _ => note.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_to_come_is_told_who_was_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights.lock");
        let lock = OwnerLock::acquire(&path, Path::new("/run/m.json")).unwrap();
        let text = OwnerLock::acquire(&path, Path::new("/run/m.json")).unwrap_err().to_string();
        let pid = format!("pid {}, started ", std::process::id());
        assert!(text.contains(&pid) && text.contains("manifest /run/m.json"), "{text}");
        drop(lock);
        assert!(!path.exists());
        OwnerLock::acquire(&path, Path::new("/run/m.json")).unwrap();
    }

    #[test]
    fn a_lock_file_left_by_a_killed_owner_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weights.lock");
        std::fs::write(&path, "pid 1, since 0, manifest /gone\nand more text than the next owner writes").unwrap();
        let _lock = OwnerLock::acquire(&path, Path::new("/m")).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("manifest /m\n"));
    }

    #[test]
    fn links_and_folders_are_not_locked() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("x"), &link).unwrap();
        assert!(matches!(OwnerLock::acquire(&link, Path::new("/m")), Err(LockError::Unusable { .. })));
        assert!(matches!(OwnerLock::acquire(dir.path(), Path::new("/m")), Err(LockError::Unusable { .. })));
    }

    #[test]
    fn a_forged_note_is_cleaned() {
        assert_eq!(describe("pid 1, since 10, manifest \u{1b}[2J", 15), "pid 1, started 5 s ago, manifest \\u{1b}[2J");
        assert_eq!(describe("hello", 0), "hello");
    }
}
