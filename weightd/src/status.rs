//! Asking a running owner, from the command line.

use crate::command::{StatusConfig, socket_beside};
use crate::process::{ProcessState, process_state};
use crate::report::print;
use crate::stale::{Liveness, liveness};
use ds4_host::{Exit, StopSignals, printable};
use ds4_manifest::{ManifestError, TrustError, WeightsManifest};
use ds4_units::Bytes;
use ds4_wire::{BANK_SETS, Connection, Deadline, Keeper, KeeperError, OwnerStatus, Phase, Reply, Request, WireError};
use serde_json::json;
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long an owner has to answer.
const ANSWER: Duration = Duration::from_secs(3);
/// Between two looks while waiting.
const PAUSE: Duration = Duration::from_millis(100);

/// What was found out.
enum Answer {
    Status(Box<OwnerStatus>),
    /// No status, because of this.
    None(Exit, String),
}

impl Answer {
    fn exit(&self) -> Exit {
        match self {
            Answer::None(exit, _) => *exit,
            Answer::Status(status) => match status.phase {
                Phase::Ready => Exit::Ok,
                Phase::Draining => Exit::OwnerDraining,
                _ => Exit::OwnerLoading,
            },
        }
    }
}

/// Prints how the owner is. With a time to wait it blocks until the owner is ready or the time is over.
pub(crate) fn status(config: &StatusConfig, signals: &StopSignals) -> Exit {
    let deadline = Deadline::after(config.wait);
    let mut answer = look(config);
    while answer.exit() != Exit::Ok && !deadline.is_over() && !signals.is_requested() {
        std::thread::sleep(PAUSE.min(deadline.left()));
        answer = look(config);
    }
    let text = match (&answer, config.json) {
        (Answer::Status(status), true) => format!("{}\n", as_json(status)),
        (Answer::Status(status), false) => as_text(status),
        (Answer::None(exit, why), true) => {
            format!("{}\n", json!({ "state": "none", "exit": exit.code(), "reason": why }))
        }
        (Answer::None(_, why), false) => format!("{}\n", printable(why)),
    };
    match print(&text) {
        Ok(()) => answer.exit(),
        Err(_) => Exit::Failed,
    }
}

/// Tells the owner to free the weights and end, and blocks until it has. Without an owner the keeper is told.
pub(crate) fn release(config: &StatusConfig, signals: &StopSignals) -> Exit {
    let socket = match find(config) {
        Found::Socket(socket, _) => socket,
        Found::Nothing(exit, why) => return release_kept(config).unwrap_or_else(|| failed(exit, &why)),
    };
    let asked = Connection::connect(&socket, Deadline::after(ANSWER)).and_then(|connection| {
        let process = process_behind(&connection);
        Ok((connection.ask(&Request::Drain, Deadline::after(ANSWER), |_| {})?, process))
    });
    let process = match asked {
        Ok((Reply::Done, process)) => process,
        Ok((Reply::Refused(refusal), _)) => return failed(Exit::Failed, &format!("refused: {refusal}")),
        Ok(_) => return failed(Exit::OwnerUnreachable, "the owner answers something else"),
        Err(error) if is_nobody(&error) => {
            let why = format!("no owner serves {}", socket.display());
            return release_kept(config).unwrap_or_else(|| failed(Exit::NoOwner, &why));
        }
        Err(error) => return failed(Exit::OwnerUnreachable, &error.to_string()),
    };
    while !signals.is_requested() {
        if has_ended(&socket, process) {
            return Exit::Ok;
        }
        std::thread::sleep(PAUSE);
    }
    Exit::Interrupted
}

/// The process that serves a connection, as it runs; `None` if it is in a process namespace that we cannot see.
fn process_behind(connection: &Connection) -> Option<(u32, ProcessState)> {
    let pid = connection.peer().ok()?.pid;
    let state = process_state(pid).ok()?;
    matches!(state, ProcessState::Running { .. }).then_some((pid, state))
}

/// Whether an owner has ended. Its socket goes before its memory and its lock, and its process after them; of one that
/// we cannot see the socket has to do.
fn has_ended(socket: &Path, process: Option<(u32, ProcessState)>) -> bool {
    match process {
        Some((pid, running)) => process_state(pid).is_ok_and(|now| now != running),
        None => Connection::connect(socket, Deadline::after(ANSWER)).is_err_and(|error| is_nobody(&error)),
    }
}

/// What a keeper holds of an owner of this name, for people.
fn kept(config: &StatusConfig) -> String {
    let keepers = config.keepers.iter().filter_map(|socket| Keeper::connect(socket).ok()?);
    let found = keepers.filter_map(|keeper| Some((keeper.pid(), keeper.find(&config.name, Duration::ZERO).ok()??)));
    found.map(|(pid, kept)| format!("; a keeper, pid {pid}, holds its generation {}", kept.generation)).collect()
}

/// Lets a keeper free what an owner of this name has parked; `None` if no keeper has anything. One that fails, as
/// another user's does, hides none that comes after it.
fn release_kept(config: &StatusConfig) -> Option<Exit> {
    let mut fault = None;
    for socket in &config.keepers {
        let released = |keeper: Keeper| -> Result<bool, KeeperError> {
            Ok(keeper.forget(&config.name)? | (keeper.forget_orphans(BANK_SETS)? > 0))
        };
        match Keeper::connect(socket).and_then(|keeper| keeper.map_or(Ok(false), released)) {
            Ok(false) => {}
            Ok(true) => return Some(Exit::Ok),
            Err(error) => fault = fault.or(Some(error)),
        }
    }
    fault.map(|error| failed(Exit::Failed, &error.to_string()))
}

fn failed(exit: Exit, why: &str) -> Exit {
    eprintln!("ds4-weightd: {}", printable(why));
    exit
}

enum Found {
    /// Where to ask, and the manifest that says so, if there is one.
    Socket(PathBuf, Option<Box<WeightsManifest>>),
    Nothing(Exit, String),
}

/// Where an owner should be. A manifest comes first; an owner that is still loading has only its socket.
fn find(config: &StatusConfig) -> Found {
    if let Some(socket) = &config.socket {
        return Found::Socket(socket.clone(), None);
    }
    let unreadable = |path: &Path, error: &ManifestError| {
        Found::Nothing(Exit::OwnerUnreachable, format!("{}: {error}", path.display()))
    };
    let mut foreign = None;
    for path in &config.manifests {
        match WeightsManifest::read(path, &config.trust) {
            Ok(manifest) => return Found::Socket(PathBuf::from(&manifest.broker.path), Some(Box::new(manifest))),
            Err(ManifestError::Trust(TrustError::Absent { .. })) if socket_beside(path).exists() => {
                return Found::Socket(socket_beside(path), None);
            }
            Err(ManifestError::Trust(TrustError::Absent { .. })) => {}
            Err(error) if is_foreign(&error) => foreign = foreign.or_else(|| Some(unreadable(path, &error))),
            Err(error) => return unreadable(path, &error),
        }
    }
    foreign.unwrap_or_else(|| {
        let tried: Vec<String> = config.manifests.iter().map(|path| path.display().to_string()).collect();
        Found::Nothing(Exit::NoOwner, format!("no owner: neither a manifest nor a socket at {}", tried.join(" or ")))
    })
}

/// Whether a place is another user's: our owner may be in the next.
fn is_foreign(error: &ManifestError) -> bool {
    matches!(error, ManifestError::Trust(TrustError::Io { .. } | TrustError::Owner { .. } | TrustError::Mode { .. }))
}

fn look(config: &StatusConfig) -> Answer {
    match find(config) {
        Found::Nothing(exit, why) => Answer::None(exit, format!("{why}{}", kept(config))),
        Found::Socket(socket, manifest) => match ask(&socket) {
            Ok(Reply::Status(status)) => Answer::Status(status),
            Ok(Reply::Refused(refusal)) => Answer::None(Exit::OwnerUnreachable, format!("refused: {refusal}")),
            Ok(_) => Answer::None(Exit::OwnerUnreachable, "the owner answers something else".to_owned()),
            Err(error) => nobody_answers(&socket, manifest.as_deref(), &error),
        },
    }
}

fn ask(socket: &Path) -> Result<Reply, WireError> {
    let deadline = Deadline::after(ANSWER);
    Connection::connect(socket, deadline)?.ask(&Request::Status, deadline, |_| {})
}

fn nobody_answers(socket: &Path, manifest: Option<&WeightsManifest>, error: &WireError) -> Answer {
    if let Some(manifest) = manifest.filter(|_| is_nobody(error) || error.is_gone()) {
        return match liveness(manifest) {
            Liveness::Dead(why) => Answer::None(Exit::OwnerStale, format!("the manifest is stale: {why}")),
            Liveness::Unclear(why) => Answer::None(Exit::OwnerUnreachable, why),
            Liveness::Serves => Answer::None(Exit::OwnerUnreachable, error.to_string()),
        };
    }
    if is_nobody(error) {
        return Answer::None(Exit::NoOwner, format!("no owner serves {}", socket.display()));
    }
    Answer::None(Exit::OwnerUnreachable, format!("{}: {error}", socket.display()))
}

fn is_nobody(error: &WireError) -> bool {
    matches!(error, WireError::Io { source, .. }
        if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused))
}

fn as_json(status: &OwnerStatus) -> serde_json::Value {
    // A status holds strings and numbers only, which always have a JSON form.
    let mut object = serde_json::to_value(status).unwrap_or_default();
    if let Some(object) = object.as_object_mut() {
        object.insert("eta_ms".to_owned(), json!(status.phase.eta_ms()));
    }
    object
}

fn as_text(status: &OwnerStatus) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:<12}{}", printable(value));
    };
    line("state", &status.phase.to_string());
    for (id, path) in &status.models {
        line("model", &format!("{id} {path}"));
    }
    let (instance, generation, pid) = (&status.instance, status.generation, status.pid);
    line(
        "owner",
        &format!("pid {pid}, up {} s, instance {instance}, generation {generation}", status.uptime_ms / 1000),
    );
    line("held", &format!("{} in {} ranges", Bytes(status.bytes), status.ranges));
    line("manifest", &status.manifest);
    for term in &status.memory {
        line("memory", &format!("{:<16} {:>12}   {}", term.term, Bytes(term.bytes).to_string(), term.source));
    }
    line("workers", &status.workers.len().to_string());
    for worker in &status.workers {
        let imported = Bytes(worker.imported_bytes);
        let (id, pid, uid) = (&worker.worker_id, worker.pid, worker.uid);
        line("", &format!("{id}, pid {pid}, uid {uid}, since {} s, {imported} mapped", worker.since_ms / 1000));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_manifest::Trust;
    use ds4_wire::{KeeperReply, KeeperRequest};
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    /// What looks at these manifests and keepers.
    fn looking_at(manifests: [PathBuf; 2], keepers: [PathBuf; 2]) -> StatusConfig {
        StatusConfig {
            manifests: manifests.into(),
            keepers: keepers.into(),
            socket: None,
            name: "weights".to_owned(),
            json: false,
            wait: Duration::ZERO,
            trust: Trust::own_and([]),
        }
    }

    #[test]
    fn a_folder_that_is_not_trusted_hides_no_owner_in_the_next() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        std::fs::set_permissions(dirs[0].path(), Permissions::from_mode(0o777)).unwrap();
        let named = |name: &str| [0, 1].map(|at: usize| dirs[at].path().join(name));
        let config = looking_at(named("weights.json"), named("keeper.sock"));
        match find(&config) {
            Found::Nothing(Exit::OwnerUnreachable, why) => assert!(why.contains("mode 777"), "{why}"),
            _ => panic!("nobody is there, and the first folder may be why"),
        }
        let socket = socket_beside(&config.manifests[1]);
        let _listener = UnixListener::bind(&socket).unwrap();
        assert!(matches!(find(&config), Found::Socket(found, None) if found == socket));
    }

    #[test]
    fn a_keeper_that_cannot_be_asked_hides_none_that_has_something() {
        let dir = tempfile::tempdir().unwrap();
        let keepers = [dir.path().join("s".repeat(200)), dir.path().join("keeper.sock")];
        let config = looking_at(keepers.clone(), keepers.clone());
        assert_eq!(release_kept(&config), Some(Exit::Failed), "no socket has such a path");
        let listener = UnixListener::bind(&keepers[1]).unwrap();
        let keeper = std::thread::spawn(move || {
            let connection = Connection::new(listener.accept().unwrap().0).unwrap();
            for reply in [KeeperReply::Done, KeeperReply::Listed(Vec::new())] {
                connection.receive::<KeeperRequest>(Deadline::after(ANSWER)).unwrap();
                connection.send(&reply, Deadline::after(ANSWER)).unwrap();
            }
        });
        assert_eq!(release_kept(&config), Some(Exit::Ok));
        keeper.join().unwrap();
    }

    #[test]
    fn an_owner_has_ended_when_its_process_has_and_not_only_its_socket() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let this = process_behind(&Connection::connect(&socket, Deadline::after(ANSWER)).unwrap());
        assert_eq!(this.map(|(pid, _)| pid), Some(std::process::id()));
        assert!(!has_ended(&socket, this) && !has_ended(&socket, None));
        drop(listener);
        std::fs::remove_file(&socket).unwrap();
        assert!(!has_ended(&socket, this), "it may still hold memory and its lock");
        assert!(has_ended(&socket, None), "there is nothing else to go by");
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let running = Some((child.id(), process_state(child.id()).unwrap()));
        assert!(!has_ended(&socket, running));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_ended(&socket, running));
    }
}
