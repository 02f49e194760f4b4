//! A socket that serves connections: binding it where nobody else serves, accepting, and taking it away.

use crate::bell::{Bell, wait};
use ds4_wire::{Connection, Deadline, WireError};
use nix::sys::stat::{Mode, umask};
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use thiserror::Error;
use tracing::{debug, warn};

/// Connections at a time. Beyond, a client is told to come back.
pub(crate) const CONNECTIONS_MAX: usize = 64;
/// How long to leave the queue alone when the process has no descriptor for the next connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a live server has to take a connection when we look whether there is one.
const PROBE: Duration = Duration::from_secs(2);

/// A socket that cannot be opened.
#[derive(Debug, Error)]
pub enum ListenError {
    /// Somebody serves it.
    #[error("another process serves the socket {}: stop an owner with ds4-weightd --release --broker-socket PATH, or use another --name", .path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something else is in its place.
    #[error("{} exists and is not a socket: remove it, or name another path for the socket", .path.display())]
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

/// The socket's file; dropped while the listener is open, so that its inode is still its own.
#[derive(Debug)]
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
#[derive(Debug)]
pub(crate) struct Listening {
    file: SocketFile,
    listener: UnixListener,
}

/// Who serves connections.
pub(crate) trait Serve: Sync {
    /// Serves a connection until it ends, or until the bell that the listener was given rings. Blocks.
    fn serve(&self, connection: &Connection);

    /// Tells a client that there are too many, without waiting.
    fn turn_away(&self, connection: &Connection);
}

impl Listening {
    /// Opens the socket at `path`, unless somebody serves it already.
    pub(crate) fn open(path: &Path, mode: u32) -> Result<Listening, ListenError> {
        clear_stale_socket(path)?;
        bind(path, mode).map_err(|source| ListenError::Io { path: path.to_owned(), source })
    }

    /// Accepts until `closing` rings; returns once every connection has ended.
    pub(crate) fn serve(&self, server: &impl Serve, closing: &Bell) {
        let active = AtomicUsize::new(0);
        thread::scope(|scope| {
            loop {
                match wait([self.listener.as_fd(), closing.as_fd()], None) {
                    Ok([_, true]) => return,
                    Ok(_) => {}
                    Err(error) => {
                        warn!(%error, "cannot wait for connections");
                        thread::sleep(ACCEPT_PAUSE);
                    }
                }
                let connection = match self.listener.accept() {
                    Ok((socket, _)) => match accepted(socket, &active, server) {
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
                let slot = Slot::take(&active);
                let spawned = thread::Builder::new().name("session".to_owned()).spawn_scoped(scope, move || {
                    let _slot = slot;
                    // The connection ends before its slot is free.
                    let connection = connection;
                    server.serve(&connection);
                });
                if let Err(error) = spawned {
                    warn!(%error, "cannot serve a connection");
                }
            }
        });
        debug!(path = %self.file.path.display(), "socket closed");
    }
}

/// Removes the socket of an owner that is gone. We hold the lock, so no owner of our name is starting.
fn clear_stale_socket(path: &Path) -> Result<(), ListenError> {
    let failed = |source| ListenError::Io { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(meta) if !meta.file_type().is_socket() => return Err(ListenError::NotASocket { path: path.to_owned() }),
        Ok(_) => {}
    }
    match Connection::connect(path, Deadline::after(PROBE)) {
        Err(WireError::Io { source, .. }) if source.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        Err(WireError::Io { source, .. }) => Err(failed(source)),
        // It answers, or its queue is full: someone is there.
        Ok(_) | Err(_) => Err(ListenError::InUse { path: path.to_owned() }),
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
fn accepted(socket: UnixStream, active: &AtomicUsize, server: &impl Serve) -> Option<Connection> {
    let connection = Connection::new(socket).inspect_err(|error| warn!(%error, "cannot serve a connection")).ok()?;
    if active.load(Ordering::SeqCst) < CONNECTIONS_MAX {
        return Some(connection);
    }
    warn!(max = CONNECTIONS_MAX, "too many connections");
    server.turn_away(&connection);
    None
}
