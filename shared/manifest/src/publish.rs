//! Putting a weights manifest in its place, whole or not at all, and taking it away again.

use crate::{ManifestError, WeightsManifest};
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A manifest that could not be published or taken back.
#[derive(Debug, Error)]
pub enum PublishError {
    /// It would not be readable.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Another file is in its place already.
    #[error("{} already exists: another owner published there", .path.display())]
    Taken {
        /// The manifest's path.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A manifest in its place. Dropping it takes the file away, if it is still the same file.
#[derive(Debug)]
pub struct Published {
    path: PathBuf,
    /// Kept open, so that its inode number cannot become another file's.
    file: Option<File>,
}

/// Writes the manifest to `path` so that a reader sees all of it or nothing: a new file in the same folder, synced,
/// then renamed into place, which must be free. Blocks on the disk.
///
/// `mode` is 0o600, or wider when other users may attach.
pub fn publish(path: &Path, manifest: &WeightsManifest, mode: u32) -> Result<Published, PublishError> {
    let text = manifest.to_text()?;
    let failed = |action, source| PublishError::Io { action, path: path.to_owned(), source };
    let folder = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let mut file = tempfile::Builder::new()
        .prefix(".ds4-manifest-")
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(folder)
        .map_err(|source| failed("create a file beside", source))?;
    file.write_all(text.as_bytes()).map_err(|source| failed("write", source))?;
    // After creation, because the mask of the process does not apply here.
    file.as_file().set_permissions(Permissions::from_mode(mode)).map_err(|source| failed("set the mode of", source))?;
    file.as_file().sync_all().map_err(|source| failed("sync", source))?;
    let file = file.persist_noclobber(path).map_err(|error| match error.error.kind() {
        io::ErrorKind::AlreadyExists => PublishError::Taken { path: path.to_owned() },
        _ => failed("rename into", error.error),
    })?;
    let published = Published { path: path.to_owned(), file: Some(file) };
    sync_folder(folder).map_err(|source| failed("sync the folder of", source))?;
    Ok(published)
}

impl Published {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the manifest away, so that no new worker finds it. Nothing happens to a file that another owner put in
    /// its place.
    pub fn unpublish(mut self) -> Result<(), PublishError> {
        self.remove().map_err(|source| PublishError::Io { action: "remove", path: self.path.clone(), source })
    }

    fn remove(&mut self) -> io::Result<()> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let ours = file.metadata()?;
        match fs::symlink_metadata(&self.path) {
            Ok(meta) if (meta.dev(), meta.ino()) == (ours.dev(), ours.ino()) => fs::remove_file(&self.path),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        // On the way out there is nobody left to tell; `unpublish` reports.
        let _ = self.remove();
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
