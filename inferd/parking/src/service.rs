//! The thread that talks to the keeper.

use crate::orphans::{Orphan, take_over};
use crate::stats::{Counters, Stats};
use ds4_wire::{BANK_SETS, Keeper, KeeperError};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::{info, warn};

/// Orders that may wait. One more is refused, and given again later.
const ORDERS_MAX: usize = 64;
/// How often an idle thread looks whether the keeper is there, still or again.
const LOOK: Duration = Duration::from_secs(1);

/// Where and how to park.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkingOptions {
    /// The keeper's socket.
    pub socket: PathBuf,
    /// How long a set stays when its worker is gone.
    pub orphaned: Duration,
}

enum Order {
    Park { set: String, generation: u64, fds: Vec<OwnedFd> },
    Forget { set: String },
    Tell(SyncSender<()>),
}

/// A worker's place with a keeper. Dropping it, or dying, closes the leases and leaves the sets.
pub struct Parking {
    orders: Option<SyncSender<Order>>,
    thread: Option<JoinHandle<()>>,
    /// Hears when what was waited for in vain is done.
    behind: Option<Receiver<()>>,
    counters: Arc<Counters>,
}

impl Parking {
    /// Looks for the keeper, takes over what dead workers have left of this content, and starts the thread. Blocks for
    /// the taking over.
    ///
    /// # Errors
    /// When the operating system gives no thread. Without a keeper there is nothing to take over, and no error.
    pub fn open(options: ParkingOptions, fingerprint: [u8; 32]) -> io::Result<(Parking, Vec<Orphan>)> {
        let counters = Arc::<Counters>::default();
        let (orders, taken) = sync_channel(ORDERS_MAX);
        let mut talker =
            Talker { options, fingerprint, keeper: None, sets: BTreeSet::new(), counters: counters.clone() };
        let orphans = talker.begin();
        let thread = std::thread::Builder::new().name("parking".into()).spawn(move || talker.serve(&taken))?;
        Ok((Parking { orders: Some(orders), thread: Some(thread), behind: None, counters }, orphans))
    }

    /// A name for the `number`th set of this process that no other set has, whatever processes there were.
    pub fn name(number: u64) -> String {
        static STARTED: OnceLock<u128> = OnceLock::new();
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        // A process that had this one's number before began at another time.
        format!("{BANK_SETS}{}-{:x}-{number}", std::process::id(), STARTED.get_or_init(now))
    }

    /// Has a set parked, in place of what is parked under its name. False when too many orders wait, or there is no
    /// keeper: then it is not.
    pub fn park(&self, set: &str, generation: u64, fds: Vec<OwnedFd>) -> bool {
        let is_taken = self.is_connected() && self.give(Order::Park { set: set.to_owned(), generation, fds });
        if !is_taken {
            self.counters.failed.fetch_add(1, Relaxed);
        }
        is_taken
    }

    /// Has a set forgotten. False when too many orders wait.
    pub fn forget(&self, set: &str) -> bool {
        self.give(Order::Forget { set: set.to_owned() })
    }

    /// Waits until everything ordered so far is done, for `patience` at most; false if it is not. A keeper for which that
    /// was not enough is not waited for again until it has done what it had to do then.
    pub fn settle(&mut self, patience: Duration) -> bool {
        if self.behind.as_ref().is_some_and(|behind| behind.try_recv() == Err(TryRecvError::Empty)) {
            self.counters.late.fetch_add(1, Relaxed);
            return false;
        }
        self.behind = None;
        let (done, told) = sync_channel(1);
        let is_done = self.give(Order::Tell(done)) && {
            let heard = told.recv_timeout(patience);
            self.behind = (heard == Err(RecvTimeoutError::Timeout)).then_some(told);
            heard.is_ok()
        };
        self.counters.late.fetch_add(u64::from(!is_done), Relaxed);
        is_done
    }

    /// Whether there is a keeper.
    pub fn is_connected(&self) -> bool {
        self.counters.connected.load(Relaxed)
    }

    /// Another number whenever another keeper was found: what was parked before is not with this one.
    pub fn connection(&self) -> u64 {
        self.counters.connection.load(Relaxed)
    }

    /// Counts.
    pub fn stats(&self) -> Stats {
        self.counters.read()
    }

    /// Where counts can be read when the rest is elsewhere.
    pub fn watch(&self) -> impl Fn() -> Stats + Send + Sync + 'static {
        let counters = self.counters.clone();
        move || counters.read()
    }

    fn give(&self, order: Order) -> bool {
        self.orders.as_ref().is_some_and(|orders| orders.try_send(order).is_ok())
    }
}

impl Drop for Parking {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // It ends with its channel; a panic of it has been printed.
            let _ = thread.join();
        }
    }
}

struct Talker {
    options: ParkingOptions,
    fingerprint: [u8; 32],
    keeper: Option<Keeper>,
    /// What the keeper has of this process.
    sets: BTreeSet<String>,
    counters: Arc<Counters>,
}

impl Talker {
    fn begin(&mut self) -> Vec<Orphan> {
        self.connect();
        let Some(keeper) = &self.keeper else { return Vec::new() };
        match take_over(keeper, BANK_SETS, self.fingerprint) {
            Ok(orphans) => {
                self.sets.extend(orphans.iter().map(|orphan| orphan.set.clone()));
                self.count_sets();
                orphans
            }
            Err(error) => {
                self.lose(&error);
                Vec::new()
            }
        }
    }

    fn serve(mut self, orders: &Receiver<Order>) {
        loop {
            match orders.recv_timeout(LOOK) {
                Ok(order) => self.follow(order),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    if self.keeper.as_ref().is_some_and(has_ended) {
                        self.lose("its connection has ended");
                    }
                    if self.keeper.is_none() {
                        self.connect();
                    }
                }
            }
        }
    }

    fn follow(&mut self, order: Order) {
        match order {
            Order::Park { set, generation, fds } => {
                let Some(keeper) = &self.keeper else { return };
                let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
                let seconds = u32::try_from(self.options.orphaned.as_secs()).unwrap_or(u32::MAX);
                match keeper.park(&set, (generation, self.fingerprint), Some(seconds), &fds) {
                    Ok(()) => {
                        self.counters.parked.fetch_add(1, Relaxed);
                        self.sets.insert(set);
                    }
                    Err(error) => self.failed(&set, &error),
                }
            }
            Order::Forget { set } => {
                let Some(keeper) = &self.keeper else { return };
                if self.sets.contains(&set) {
                    match keeper.forget(&set) {
                        Ok(_) => drop(self.sets.remove(&set)),
                        Err(error) => self.failed(&set, &error),
                    }
                }
            }
            // Nobody waits any more: then nobody needs to know.
            Order::Tell(done) => drop(done.try_send(())),
        }
        self.count_sets();
    }

    fn failed(&mut self, set: &str, error: &KeeperError) {
        self.counters.failed.fetch_add(1, Relaxed);
        if error.is_lost() {
            return self.lose(error);
        }
        warn!(set, %error, "a conversation is not parked: a crash of this process would lose it from memory");
        // What the keeper may have of it from before is not what it is now.
        if let Some(keeper) = &self.keeper {
            let _ = keeper.forget(set);
        }
        self.sets.remove(set);
    }

    fn lose(&mut self, why: impl std::fmt::Display) {
        warn!(%why, "the keeper is lost: conversations are parked again when there is one");
        self.keeper = None;
        self.sets.clear();
        self.counters.connected.store(false, Relaxed);
        self.counters.lost.fetch_add(1, Relaxed);
        self.count_sets();
    }

    fn connect(&mut self) {
        match Keeper::connect(&self.options.socket) {
            Ok(Some(keeper)) => {
                info!(pid = keeper.pid(), socket = %self.options.socket.display(), "conversations are parked with a keeper");
                self.keeper = Some(keeper);
                self.counters.connection.fetch_add(1, Relaxed);
                self.counters.connected.store(true, Relaxed);
            }
            Ok(None) => {}
            Err(error) => {
                warn!(%error, socket = %self.options.socket.display(), "cannot talk to the keeper");
            }
        }
    }

    fn count_sets(&self) {
        self.counters.sets.store(self.sets.len() as u64, Relaxed);
    }
}

/// A keeper says nothing unasked: whatever there is to read is the end.
fn has_ended(keeper: &Keeper) -> bool {
    matches!(poll(&mut [PollFd::new(keeper.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO), Ok(1..))
}
