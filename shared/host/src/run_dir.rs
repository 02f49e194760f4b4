//! The run directory: where sockets, locks and run-time manifests live.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The directory used by default where it can be written: a service's `RuntimeDirectory=ds4`.
pub const SYSTEM_RUN_DIR: &str = "/run/ds4";

/// No directory to run in. All variants are usage errors.
#[derive(Debug, Error)]
pub enum RunDirError {
    /// Neither default works and no directory was named.
    #[error("cannot write {SYSTEM_RUN_DIR} ({reason}) and XDG_RUNTIME_DIR is not set: name a directory with --run-dir")]
    NoDefault {
        /// Why the first default failed.
        reason: String,
    },
    /// The directory cannot be created or written.
    #[error("cannot use the run directory {}: {reason}; name another one with --run-dir", .path.display())]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// The directory to run in, created with mode 0700 if absent: `explicit` when given, else [`SYSTEM_RUN_DIR`] when it
/// can be written, else `ds4` under `xdg_runtime_dir`.
///
/// A directory that someone else owns, or that others may write, is refused: whoever can rename files in it can
/// impersonate the owner.
pub fn choose_run_dir(explicit: Option<&Path>, xdg_runtime_dir: Option<&Path>) -> Result<PathBuf, RunDirError> {
    choose(explicit, Path::new(SYSTEM_RUN_DIR), xdg_runtime_dir)
}

/// Where an owner may be running, best first. Creates and checks nothing: for a program that only looks.
pub fn run_dir_candidates(explicit: Option<&Path>, xdg_runtime_dir: Option<&Path>) -> Vec<PathBuf> {
    match explicit {
        Some(path) => vec![path.to_owned()],
        None => {
            let session = xdg_runtime_dir.map(|xdg| xdg.join("ds4"));
            std::iter::once(PathBuf::from(SYSTEM_RUN_DIR)).chain(session).collect()
        }
    }
}

fn choose(explicit: Option<&Path>, system: &Path, xdg: Option<&Path>) -> Result<PathBuf, RunDirError> {
    let usable = |path: &Path| match prepare(path) {
        Ok(()) => Ok(path.to_owned()),
        Err(reason) => Err(RunDirError::Unusable { path: path.to_owned(), reason }),
    };
    if let Some(path) = explicit {
        return usable(path);
    }
    match (prepare(system), xdg) {
        (Ok(()), _) => Ok(system.to_owned()),
        (Err(_), Some(xdg)) => usable(&xdg.join("ds4")),
        (Err(reason), None) => Err(RunDirError::NoDefault { reason }),
    }
}

/// Creates the directory if it is absent and checks that it is ours to use.
fn prepare(path: &Path) -> Result<(), String> {
    let create = || DirBuilder::new().mode(0o700).recursive(false).create(path);
    match create() {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error.to_string()),
    }
    let meta = fs::metadata(path).map_err(|error| error.to_string())?;
    let me = nix::unistd::geteuid().as_raw();
    if !meta.is_dir() {
        return Err("it is not a directory".into());
    }
    if meta.uid() != me && meta.uid() != 0 {
        return Err(format!("it belongs to uid {}, not to {me} or root", meta.uid()));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(format!("others may write it (mode {:03o})", meta.mode() & 0o777));
    }
    nix::unistd::access(path, nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK)
        .map_err(|errno| errno.desc().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_system_directory_comes_first_and_is_private() {
        let root = tempfile::tempdir().unwrap();
        let system = root.path().join("run");
        assert_eq!(choose(None, &system, Some(root.path())).unwrap(), system);
        assert_eq!(fs::metadata(&system).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn the_session_directory_is_the_fallback() {
        let root = tempfile::tempdir().unwrap();
        let system = root.path().join("absent/run");
        assert_eq!(choose(None, &system, Some(root.path())).unwrap(), root.path().join("ds4"));
    }

    #[test]
    fn without_any_directory_the_error_names_the_flag() {
        let root = tempfile::tempdir().unwrap();
        let error = choose(None, &root.path().join("absent/run"), None).unwrap_err();
        assert!(error.to_string().contains("--run-dir"), "{error}");
    }

    #[test]
    fn a_directory_that_others_may_write_is_refused() {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = choose(Some(root.path()), Path::new("/absent"), None).unwrap_err();
        assert!(error.to_string().contains("mode 777"), "{error}");
    }

    #[test]
    fn a_file_in_its_place_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(choose(Some(&file), Path::new("/absent"), None).unwrap_err().to_string().contains("not a directory"));
    }
}
