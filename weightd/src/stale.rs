//! What an earlier owner left, and whether it still lives.

use crate::process::{ProcessState, boot_id, process_state};
use ds4_host::printable;
use ds4_manifest::{ManifestError, Trust, TrustError, WeightsManifest};
use ds4_wire::{Connection, Deadline, Reply, Request, WireError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;
use tracing::warn;

/// How long a live owner has to answer.
const PROBE: Duration = Duration::from_secs(3);

/// A manifest that is in the way.
#[derive(Debug, Error)]
pub enum StaleError {
    /// Its owner answers.
    #[error("pid {pid} serves {} already (instance {instance}): stop it with ds4-weightd --release, or use another --name", .path.display())]
    Live {
        /// The manifest.
        path: PathBuf,
        /// The owner's process id.
        pid: u32,
        /// The owner.
        instance: String,
    },
    /// Its owner is dead, and replacing was not allowed.
    #[error(
        "{} is stale, {age_s} s old: {why}. Remove it, or start with --on-stale-manifest replace", .path.display()
    )]
    Dead {
        /// The manifest.
        path: PathBuf,
        /// Its age.
        age_s: u64,
        /// Which test failed.
        why: String,
    },
    /// It cannot be told whether its owner is dead.
    #[error("{} may be in use, {age_s} s old: {why}. End that process, or use another --name", .path.display())]
    Unclear {
        /// The manifest.
        path: PathBuf,
        /// Its age.
        age_s: u64,
        /// What speaks for and against.
        why: String,
    },
    /// It cannot be read.
    #[error("{} is in the way: {reason}. Remove it, or name another with --manifest", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It is a text-form manifest.
    #[error("{} is a text-form manifest, which another program owns: stop that, or name another with --manifest", .path.display())]
    TextForm {
        /// The file.
        path: PathBuf,
    },
}

/// Whether the owner that a manifest names lives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// It answers.
    Serves,
    /// It is proved dead.
    Dead(String),
    /// It does not answer and is not proved dead.
    Unclear(String),
}

/// Makes way for a new manifest at `path`, whose lock is ours. Returns the generation of what was there, 0 if nothing.
pub(crate) fn clear_previous(path: &Path, replace: bool) -> Result<u64, StaleError> {
    let path_owned = || path.to_owned();
    let manifest = match WeightsManifest::read(path, &Trust::own_and([])) {
        Ok(manifest) => manifest,
        Err(ManifestError::Trust(TrustError::Absent { .. })) => return Ok(0),
        Err(ManifestError::TextForm) => return Err(StaleError::TextForm { path: path_owned() }),
        Err(error) => return Err(StaleError::Unreadable { path: path_owned(), reason: error.to_string() }),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let age_s = now.saturating_sub(manifest.created_at);
    match liveness(&manifest) {
        Liveness::Serves => Err(StaleError::Live {
            path: path_owned(),
            pid: manifest.owner.pid,
            instance: manifest.instance.to_string(),
        }),
        Liveness::Unclear(why) => Err(StaleError::Unclear { path: path_owned(), age_s, why }),
        Liveness::Dead(why) if !replace => Err(StaleError::Dead { path: path_owned(), age_s, why }),
        Liveness::Dead(why) => {
            std::fs::remove_file(path)
                .map_err(|error| StaleError::Unreadable { path: path_owned(), reason: error.to_string() })?;
            warn!(path = %path.display(), age_s, why, "stale manifest replaced");
            Ok(manifest.generation)
        }
    }
}

/// Whether the owner lives. Asking it is the proof; the kernel is asked only about one that does not answer, because
/// an owner in another process namespace answers and is not visible.
pub(crate) fn liveness(manifest: &WeightsManifest) -> Liveness {
    let pid = manifest.owner.pid;
    match probe(manifest) {
        Probe::Same => Liveness::Serves,
        Probe::Other(instance) => Liveness::Dead(format!("its socket is served by instance {instance}")),
        Probe::Silent(reason) => {
            Liveness::Unclear(format!("its socket is open and does not answer ({reason}); pid {pid}"))
        }
        Probe::Nobody => match boot_id() {
            Ok(boot) if boot != manifest.owner.boot_id => Liveness::Dead("the machine has been restarted since".into()),
            Err(error) => Liveness::Unclear(format!("the boot id cannot be read: {error}")),
            Ok(_) => match process_state(pid) {
                Ok(ProcessState::Gone) => Liveness::Dead(format!("its owner, pid {pid}, is gone")),
                Ok(ProcessState::Zombie) => Liveness::Dead(format!("its owner, pid {pid}, has ended")),
                Ok(ProcessState::Running { start_time_ticks })
                    if start_time_ticks != manifest.owner.start_time_ticks =>
                {
                    Liveness::Dead(format!("its owner is gone, pid {pid} is another process now"))
                }
                Ok(_) => Liveness::Unclear(format!("its owner, pid {pid}, runs, but nobody serves its socket")),
                Err(error) => Liveness::Unclear(format!("its owner, pid {pid}, cannot be looked at: {error}")),
            },
        },
    }
}

enum Probe {
    /// The manifest's owner.
    Same,
    /// Another one.
    Other(String),
    /// Someone who does not answer as an owner does.
    Silent(String),
    /// Nobody listens.
    Nobody,
}

fn probe(manifest: &WeightsManifest) -> Probe {
    let deadline = Deadline::after(PROBE);
    let connection = match Connection::connect(Path::new(&manifest.broker.path), deadline) {
        Ok(connection) => connection,
        Err(WireError::Io { source, .. })
            if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) =>
        {
            return Probe::Nobody;
        }
        Err(error) => return Probe::Silent(error.to_string()),
    };
    match connection.ask(&Request::Status, deadline, |_| {}) {
        Ok(Reply::Status(status)) => {
            let same = status.instance == manifest.instance.to_string() && status.generation == manifest.generation;
            if same { Probe::Same } else { Probe::Other(printable(&status.instance).into_owned()) }
        }
        Ok(Reply::Refused(refusal)) => Probe::Silent(printable(&refusal.to_string()).into_owned()),
        Ok(_) => Probe::Silent("another answer than to a status".to_owned()),
        Err(error) => Probe::Silent(error.to_string()),
    }
}
