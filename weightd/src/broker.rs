//! The owner's socket.

use crate::access::Access;
use crate::listener::{CONNECTIONS_MAX, ListenError, Listening, Serve};
use crate::session::Session;
use crate::store::Store;
use ds4_wire::{Connection, Deadline, Refusal, Reply};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tracing::info;

/// The open socket and its threads. Dropping it ends all connections and removes the socket.
#[derive(Debug)]
pub(crate) struct Broker {
    store: Arc<Store>,
    thread: Option<JoinHandle<()>>,
}

impl Broker {
    /// Opens the socket and serves it on threads of its own.
    pub(crate) fn open(
        path: &Path,
        access: Access,
        drain_timeout: Duration,
        store: Arc<Store>,
    ) -> Result<Broker, ListenError> {
        let listening = Listening::open(path, access.socket_mode())?;
        info!(path = %path.display(), "broker listening");
        let shared = store.clone();
        let thread = thread::Builder::new()
            .name("broker".to_owned())
            .spawn(move || {
                let own_uid = nix::unistd::geteuid().as_raw();
                let session = Session { store: &shared, access: &access, own_uid, drain_timeout };
                listening.serve(&session, &shared.closing);
            })
            .map_err(|source| ListenError::Io { path: path.to_owned(), source })?;
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

impl Serve for Session<'_> {
    fn serve(&self, connection: &Connection) {
        Session::serve(self, connection);
    }

    fn turn_away(&self, connection: &Connection) {
        let busy = Reply::Refused(Refusal::Busy { max: CONNECTIONS_MAX as u32 });
        // The buffer of a new connection is empty.
        let _ = connection.send(&busy, Deadline::after(Duration::ZERO));
    }
}
