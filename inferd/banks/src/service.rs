//! The disk on threads of its own: one that saves, one that restores, each behind a bounded queue.

use crate::format::{FileFault, SaveReason};
use crate::limits::{LOADS_WAITING_MAX, SAVE_BYTES_WAITING_MAX, SAVES_WAITING_MAX};
use crate::snapshot::{Found, Kept, Loaded, SavePlan, Snapshot};
use crate::store::{LoadError, NotSaved, Store};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{debug, warn};

/// A store and its threads. No call but [`Service::close`] blocks on the disk. `R` is what a restore gives: what the
/// restoring thread makes of what was read.
pub struct Service<R> {
    store: Arc<Store>,
    saves: Queue<Job>,
    loads: Queue<Load<R>>,
    bytes_waiting: Arc<AtomicU64>,
}

/// What the saving thread does.
enum Job {
    Save(Snapshot),
    /// Makes this the process that writes, if the one that did has ended.
    TakeOver,
}

type Load<R> = (Found, SyncSender<Result<R, LoadError>>);

struct Queue<T> {
    sender: SyncSender<T>,
    thread: JoinHandle<()>,
}

/// A restored conversation whose bytes are whole and of no use: its file is set aside.
pub struct Unusable {
    /// Its file.
    pub kept: Kept,
    /// What is wrong.
    pub why: String,
}

/// A restore in progress.
pub struct LoadTicket<R>(Receiver<Result<R, LoadError>>);

impl<R> LoadTicket<R> {
    /// The result, if it comes within `patience`.
    pub fn wait_for(&self, patience: Duration) -> Option<Result<R, LoadError>> {
        match self.0.recv_timeout(patience) {
            Ok(result) => Some(result),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(LoadError::Gone)),
        }
    }

    /// The result; blocks until it is there.
    pub fn wait(self) -> Result<R, LoadError> {
        self.0.recv().unwrap_or(Err(LoadError::Gone))
    }
}

impl<T: Send + 'static> Queue<T> {
    fn start(name: &str, places: usize, mut each: impl FnMut(T) + Send + 'static) -> io::Result<Queue<T>> {
        let (sender, receiver) = mpsc::sync_channel(places);
        let run = move || receiver.into_iter().for_each(&mut each);
        let thread = std::thread::Builder::new().name(name.into()).spawn(run)?;
        Ok(Queue { sender, thread })
    }

    /// Lets what waits be done, then ends the thread.
    fn close(self) {
        drop(self.sender);
        if self.thread.join().is_err() {
            warn!("a thread of the conversations on disk panicked");
        }
    }
}

/// Writes a snapshot and says what came of it.
fn write(store: &Store, snapshot: &Snapshot) {
    match store.save(snapshot) {
        Ok(saved) => debug!(
            tokens = snapshot.transcript.len(),
            bytes = %saved.written,
            continued = saved.continued,
            reason = snapshot.reason.name(),
            "saved a conversation"
        ),
        Err(NotSaved::Stored) => {}
        Err(error) => warn!(tokens = snapshot.transcript.len(), %error, "a conversation was not saved"),
    }
}

/// Whether so many bytes may wait beside those that do.
fn fits(waiting: u64, held: u64) -> bool {
    waiting == 0 || waiting + held <= SAVE_BYTES_WAITING_MAX.0
}

impl<R: Send + 'static> Service<R> {
    /// Starts the threads. `finish` checks what was read and makes of it what restores give, on the restoring thread.
    pub fn start(
        store: Arc<Store>,
        mut finish: impl FnMut(Loaded) -> Result<R, Unusable> + Send + 'static,
    ) -> io::Result<Service<R>> {
        let bytes_waiting = Arc::new(AtomicU64::new(0));
        let (saving, waiting) = (store.clone(), bytes_waiting.clone());
        let saves = Queue::start("kv-save", SAVES_WAITING_MAX, move |job| match job {
            Job::Save(snapshot) => {
                write(&saving, &snapshot);
                waiting.fetch_sub(snapshot.bank.held().0, Ordering::AcqRel);
                saving.count_written();
            }
            Job::TakeOver => {
                if let Err(error) = saving.take_over() {
                    warn!(%error, "cannot take over the conversations on disk");
                }
            }
        })?;
        let loading = store.clone();
        let loads = Queue::start("kv-load", LOADS_WAITING_MAX, move |(found, reply): Load<R>| {
            let result = loading.load(found).and_then(|loaded| {
                finish(loaded).map_err(|Unusable { kept, why }| {
                    loading.refuse(&kept, &why);
                    LoadError::Damaged(FileFault::Contents(why))
                })
            });
            if let Err(error) = &result {
                warn!(%error, "a conversation was not restored");
            }
            // The request may be gone by now.
            let _ = reply.try_send(result);
        })?;
        Ok(Service { store, saves, loads, bytes_waiting })
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Whether a snapshot of so many tokens that follows this plan would be written now, as far as that is known without
    /// waiting: to be asked before its bytes are copied. A refusal counts as a save that failed.
    pub fn would_save(&self, tokens: u32, plan: &SavePlan, reason: SaveReason) -> Result<(), NotSaved> {
        if let Some(error) = self.store.obstacle(tokens, plan) {
            warn!(tokens, %error, "a conversation was not saved");
            if matches!(error, NotSaved::ReadOnly) {
                // The other process may have ended. When the queue is full this was asked already.
                let _ = self.saves.sender.try_send(Job::TakeOver);
            }
            return self.refuse(reason, error);
        }
        let has_place = self.store.waiting() <= SAVES_WAITING_MAX as u64;
        let waiting = self.bytes_waiting.load(Ordering::Acquire);
        if has_place && fits(waiting, self.store.bank_bytes(tokens, plan).0) {
            return Ok(());
        }
        self.refuse(reason, NotSaved::QueueFull { waiting: SAVES_WAITING_MAX })
    }

    fn refuse(&self, reason: SaveReason, error: NotSaved) -> Result<(), NotSaved> {
        let refused = Err(error);
        self.store.count_save(reason, &refused);
        refused.map(|_| ())
    }

    /// Hands a snapshot to the saving thread.
    pub fn save(&self, snapshot: Snapshot) -> Result<(), NotSaved> {
        let (reason, held) = (snapshot.reason, snapshot.bank.held().0);
        let waiting = self.bytes_waiting.fetch_add(held, Ordering::AcqRel);
        self.store.count_waiting();
        if fits(waiting, held) && self.saves.sender.try_send(Job::Save(snapshot)).is_ok() {
            return Ok(());
        }
        self.bytes_waiting.fetch_sub(held, Ordering::AcqRel);
        self.store.count_written();
        self.refuse(reason, NotSaved::QueueFull { waiting: SAVES_WAITING_MAX })
    }

    /// Hands a snapshot to the saving thread, waiting for a place. For a worker that stops.
    pub fn save_in_turn(&self, snapshot: Snapshot) {
        self.bytes_waiting.fetch_add(snapshot.bank.held().0, Ordering::AcqRel);
        self.store.count_waiting();
        // Refused only when the thread is gone; the store counts what it did not get.
        let _ = self.saves.sender.send(Job::Save(snapshot));
    }

    /// Has a conversation read; `None` when too many wait already.
    pub fn load(&self, found: Found) -> Option<LoadTicket<R>> {
        let (reply, ticket) = mpsc::sync_channel(1);
        self.loads.sender.try_send((found, reply)).ok()?;
        Some(LoadTicket(ticket))
    }

    /// Lets everything that waits be written and made to last, and ends the threads.
    pub fn close(self) {
        self.loads.close();
        self.saves.close();
        self.store.make_last();
    }
}
