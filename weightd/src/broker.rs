//! The socket: binding it where no live owner is, accepting, and taking it away.

use crate::access::Access;
use crate::bell::wait;
use crate::session::Session;
use crate::store::Store;
use ds4_wire::{Connection, Deadline, Refusal, Reply, WireError};
use nix::sys::stat::{Mode, umask};
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use thiserror::Error;
use tracing::{debug, info, warn};

/// Connections at a time. Beyond, a client is told to come back.
const CONNECTIONS_MAX: usize = 64;
/// How long to leave the queue alone when the process has no descriptor for the next connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a live owner has to take a connection when we look whether there is one.
const PROBE: Duration = Duration::from_secs(2);

/// A socket that cannot be opened.
#[derive(Debug, Error)]
pub enum BrokerError {
    /// A live owner serves it.
    #[error("another owner serves the socket {}: stop it with ds4-weightd --release --broker-socket PATH, or use another --name", .path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something else is in its place.
    #[error("{} exists and is not a socket: remove it, or name another path with --broker-socket", .path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot open the socket {}: {source}", .path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The open socket and its threads. Dropping it ends all connections and removes the socket.
#[derive(Debug)]
pub(crate) struct Broker {
    store: Arc<Store>,
    thread: Option<JoinHandle<()>>,
}

/// The socket's file; dropped while the listener is open, so that its inode is still its own.
struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Fields drop in order: the file goes while the listener still holds it.
struct Listening {
    file: SocketFile,
    listener: UnixListener,
}

impl Broker {
    /// Opens the socket and serves it on threads of its own.
    pub(crate) fn open(
        path: &Path,
        access: Access,
        drain_timeout: Duration,
        store: Arc<Store>,
    ) -> Result<Broker, BrokerError> {
        let failed = |source| BrokerError::Io { path: path.to_owned(), source };
        clear_stale_socket(path)?;
        let listening = bind(path, access.socket_mode()).map_err(failed)?;
        info!(path = %path.display(), "broker listening");
        let shared = store.clone();
        let thread = thread::Builder::new()
            .name("broker".to_owned())
            .spawn(move || serve(&listening, &access, drain_timeout, &shared))
            .map_err(failed)?;
        Ok(Broker { store, thread: Some(thread) })
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.store.closing.ring();
        if let Some(thread) = self.thread.take() {
            // A panic in there was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Removes the socket of an owner that is gone. We hold the lock, so no owner of our name is starting.
fn clear_stale_socket(path: &Path) -> Result<(), BrokerError> {
    let failed = |source| BrokerError::Io { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(meta) if !meta.file_type().is_socket() => return Err(BrokerError::NotASocket { path: path.to_owned() }),
        Ok(_) => {}
    }
    match Connection::connect(path, Deadline::after(PROBE)) {
        Err(WireError::Io { source, .. }) if source.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        Err(WireError::Io { source, .. }) => Err(failed(source)),
        // It answers, or its queue is full: someone is there.
        Ok(_) | Err(_) => Err(BrokerError::InUse { path: path.to_owned() }),
    }
}

/// Binds with no access for others, then opens it as far as `mode` says.
fn bind(path: &Path, mode: u32) -> io::Result<Listening> {
    // The mask is the process's; no other thread makes files at this point.
    let before = umask(Mode::from_bits_truncate(0o177));
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound?;
    let meta = fs::symlink_metadata(path)?;
    let file = SocketFile { path: path.to_owned(), id: (meta.dev(), meta.ino()) };
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    listener.set_nonblocking(true)?;
    Ok(Listening { file, listener })
}

/// Accepts until told to close; returns once every connection has ended.
fn serve(listening: &Listening, access: &Access, drain_timeout: Duration, store: &Arc<Store>) {
    let own_uid = nix::unistd::geteuid().as_raw();
    let session = Session { store, access, own_uid, drain_timeout };
    let active = AtomicUsize::new(0);
    thread::scope(|scope| {
        loop {
            match wait([listening.listener.as_fd(), store.closing.as_fd()], None) {
                Ok([_, true]) => return,
                Ok(_) => {}
                Err(error) => {
                    warn!(%error, "cannot wait for connections");
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
            let connection = match listening.listener.accept() {
                Ok((socket, _)) => match accepted(socket, &active) {
                    Some(connection) => connection,
                    None => continue,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => {
                    // Out of descriptors, or the client is gone already. The queue keeps who is in it.
                    warn!(%error, "cannot accept a connection");
                    thread::sleep(ACCEPT_PAUSE);
                    continue;
                }
            };
            let (session, slot) = (&session, Slot::take(&active));
            let spawned = thread::Builder::new().name("session".to_owned()).spawn_scoped(scope, move || {
                let _slot = slot;
                // The connection ends before its slot is free.
                let connection = connection;
                session.serve(&connection);
            });
            if let Err(error) = spawned {
                warn!(%error, "cannot serve a connection");
            }
        }
    });
    debug!(path = %listening.file.path.display(), "broker closed");
}

/// One of the connections that there may be. Dropping it makes room for another.
struct Slot<'a>(&'a AtomicUsize);

impl<'a> Slot<'a> {
    fn take(active: &'a AtomicUsize) -> Slot<'a> {
        active.fetch_add(1, Ordering::SeqCst);
        Slot(active)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The connection, unless there are too many: then its client is told and it ends.
fn accepted(socket: UnixStream, active: &AtomicUsize) -> Option<Connection> {
    let connection = Connection::new(socket).inspect_err(|error| warn!(%error, "cannot serve a connection")).ok()?;
    if active.load(Ordering::SeqCst) < CONNECTIONS_MAX {
        return Some(connection);
    }
    warn!(max = CONNECTIONS_MAX, "too many connections");
    let busy = Reply::Refused(Refusal::Busy { max: CONNECTIONS_MAX as u32 });
    // Without waiting: the buffer of a new connection is empty.
    let _ = connection.send(&busy, Deadline::after(Duration::ZERO));
    None
}
