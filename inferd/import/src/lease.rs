//! The worker's end of a lease: the open connection, and what is heard over it.

use ds4_wire::{Connection, Deadline, Event, Reply};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, JoinHandle};

/// How the owner is, as far as the worker can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OwnerState {
    /// It holds its end of the connection.
    Up = 0,
    /// It is shutting down. What is mapped stays valid.
    Draining = 1,
    /// Its end of the connection is closed. What is mapped stays valid.
    Lost = 2,
}

/// Called on the watching thread when the owner's state changes. Must not block.
pub(crate) type OnChange = Arc<dyn Fn(OwnerState) + Send + Sync>;

/// A lease. The owner counts this worker as long as it lives; every tensor keeps it alive.
#[derive(Debug)]
pub struct Lease {
    instance: String,
    generation: u64,
    owner_pid: u32,
    state: Arc<AtomicU8>,
    connection: Connection,
    watcher: Option<JoinHandle<()>>,
}

impl Lease {
    /// Keeps a granted connection, and watches it on a thread that sleeps until something comes.
    pub(crate) fn watch(
        connection: Connection,
        instance: String,
        generation: u64,
        owner_pid: u32,
        initial: OwnerState,
        on_change: OnChange,
    ) -> io::Result<Lease> {
        let state = Arc::new(AtomicU8::new(initial as u8));
        let (shared, listening) = (state.clone(), connection.try_clone()?);
        let watcher = thread::Builder::new().name("owner-watch".to_owned()).spawn(move || {
            let enter = |next: OwnerState| {
                if shared.swap(next as u8, Ordering::SeqCst) != next as u8 {
                    on_change(next);
                }
            };
            loop {
                match listening.receive::<Reply>(Deadline::never()) {
                    Ok(Reply::Event(Event::Draining { .. })) => enter(OwnerState::Draining),
                    // Nothing else is expected unasked, and nothing else changes what is mapped.
                    Ok(_) => {}
                    Err(error) if error.is_recoverable() => {}
                    Err(_) => return enter(OwnerState::Lost),
                }
            }
        })?;
        Ok(Lease { instance, generation, owner_pid, state, connection, watcher: Some(watcher) })
    }

    /// How the owner is. Does not block.
    pub fn owner(&self) -> OwnerState {
        match self.state.load(Ordering::SeqCst) {
            0 => OwnerState::Up,
            1 => OwnerState::Draining,
            _ => OwnerState::Lost,
        }
    }

    /// The owner process, in hexadecimal.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// What the lease is for.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The owner's process id, for messages.
    pub fn owner_pid(&self) -> u32 {
        self.owner_pid
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.connection.shut_down();
        if let Some(watcher) = self.watcher.take()
            && watcher.thread().id() != thread::current().id()
        {
            // A panic in there was reported when it happened.
            let _ = watcher.join();
        }
    }
}
