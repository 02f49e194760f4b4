//! The engine thread and the door to it.

use crate::limits::INBOX_MAX;
use crate::outbox::{EventStream, Unread, outbox};
use crate::scheduler::{Load, Scheduler, Waiting};
use crate::stats::Observatory;
use crate::{Account, DiskBanks, EngineOptions, GenerateRequest, ParkedBanks, Refused, Watch};
use ds4_model::{LoadedModel, ModelInfo};
use ds4_units::{Bytes, Tokens};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::Span;

/// A running engine: one thread that owns the model. Dropping it without [`Engine::stop`] lets the thread finish what
/// it has once every handle is gone.
pub struct Engine {
    handle: EngineHandle,
    thread: JoinHandle<()>,
}

/// The door to the engine, one for every request handler. No call blocks.
#[derive(Clone)]
pub struct EngineHandle {
    inbox: SyncSender<Command>,
    queue: Arc<Queue>,
    info: Arc<ModelInfo>,
    observatory: Observatory,
}

/// What keeps conversations when the engine's process is gone.
#[derive(Default)]
pub struct Stores {
    /// On disk.
    pub disk: Option<DiskBanks>,
    /// In memory, with a keeper.
    pub parked: Option<ParkedBanks>,
}

enum Command {
    Generate(Box<Waiting>),
    Stop,
}

/// How much waits, and how much may.
pub(crate) struct Queue {
    requests: AtomicUsize,
    bytes: AtomicU64,
    requests_max: usize,
    bytes_max: Bytes,
    unread: Arc<Unread>,
}

impl Queue {
    /// An empty queue with the limits of these options.
    pub(crate) fn new(options: &EngineOptions) -> Arc<Queue> {
        let limit = |asked: u64, off: u64| if asked == 0 { off } else { asked.min(off) };
        Arc::new(Queue {
            requests: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            requests_max: limit(options.queued_max as u64, INBOX_MAX as u64) as usize,
            bytes_max: Bytes(limit(options.queued_bytes_max.0, u64::MAX)),
            unread: Arc::default(),
        })
    }

    /// Requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.requests.load(Ordering::Acquire)
    }

    /// Bytes of answers that readers have not taken.
    pub(crate) fn unread(&self) -> Bytes {
        Bytes(self.unread.bytes())
    }

    /// A request with its place among those that wait, or why there is none.
    pub(crate) fn enter(self: &Arc<Queue>, request: GenerateRequest) -> Result<(Waiting, EventStream), Refused> {
        let slot = QueueSlot::take(self, request.prompt.bytes())?;
        let (outbox, stream) = outbox(self.unread.clone());
        let (submitted, span) = (Instant::now(), Span::current());
        Ok((Waiting { request, outbox, submitted, since: None, slot, looked: false, following: None, span }, stream))
    }
}

/// One place among the waiting requests, and what its prompt takes there; given back on drop.
pub(crate) struct QueueSlot {
    queue: Arc<Queue>,
    bytes: u64,
}

impl QueueSlot {
    fn take(queue: &Arc<Queue>, bytes: u64) -> Result<QueueSlot, Refused> {
        let limit = queue.requests_max;
        let more = |count: usize| (count < limit).then_some(count + 1);
        let place = queue.requests.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        place.map_err(|_| Refused::QueueFull { limit })?;
        let slot = QueueSlot { queue: queue.clone(), bytes };
        // A prompt that alone is larger than all may be waits when nothing else does.
        let before = queue.bytes.fetch_add(bytes, Ordering::AcqRel);
        if before > 0 && before.saturating_add(bytes) > queue.bytes_max.0 {
            return Err(Refused::QueueBytesFull { limit: queue.bytes_max });
        }
        Ok(slot)
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.queue.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        self.queue.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Engine {
    /// Starts the engine thread. Its conversations are paid from `account`.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start(loaded: LoadedModel, options: EngineOptions, account: Account) -> io::Result<Engine> {
        Engine::start_with(loaded, options, account, Stores::default())
    }

    /// As [`Engine::start`], with conversations that outlive it. [`Engine::stop`] then saves what is kept and waits for
    /// the disk.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start_with(
        loaded: LoadedModel,
        options: EngineOptions,
        account: Account,
        stores: Stores,
    ) -> io::Result<Engine> {
        Engine::start_by(Watch::default(), loaded, options, account, stores)
    }

    /// As [`Engine::start_with`], with another watch than the machine's.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start_by(
        watch: Watch,
        loaded: LoadedModel,
        options: EngineOptions,
        account: Account,
        stores: Stores,
    ) -> io::Result<Engine> {
        // Waiting requests are counted, so the channel is never full; one place more is for the stop command.
        let queue = Queue::new(&options);
        let (inbox, commands) = mpsc::sync_channel(queue.requests_max + 1);
        let info = Arc::new(loaded.model.info().clone());
        let governor = account.governor().clone();
        let store = stores.disk.as_ref().map(DiskBanks::store);
        let parking = stores.parked.as_ref().map(ParkedBanks::watch);
        let scheduler = Scheduler::new(loaded, options, account, stores, watch);
        let counters = scheduler.counters.clone();
        let observatory = Observatory { counters, queue: queue.clone(), governor, store, parking };
        observatory.counters.banks.set(options.banks);
        let thread = std::thread::Builder::new().name("engine".into()).spawn(move || run(scheduler, &commands))?;
        Ok(Engine { handle: EngineHandle { inbox, queue, info, observatory }, thread })
    }

    /// A door to the engine.
    pub fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }

    /// Whether the thread is gone: stopped, fallen over a defect, or left without a device.
    pub fn is_stopped(&self) -> bool {
        self.thread.is_finished()
    }

    /// Stops after the step in progress, ends every request with `EngineStopped`, and waits for the thread.
    ///
    /// # Errors
    /// When the thread had panicked.
    pub fn stop(self) -> std::thread::Result<()> {
        // Refused only when the thread is gone already.
        let _ = self.handle.inbox.send(Command::Stop);
        self.thread.join()
    }
}

impl EngineHandle {
    /// A door behind which there is no engine, for what reads requests and submits none: every submission is refused.
    pub fn to_nowhere(info: ModelInfo) -> EngineHandle {
        let (inbox, _) = mpsc::sync_channel(0);
        let governor = Account::unlimited().governor().clone();
        let queue = Queue::new(&EngineOptions::default());
        let (counters, store, parking) = Default::default();
        let observatory = Observatory { counters, queue: queue.clone(), governor, store, parking };
        EngineHandle { inbox, queue, info: Arc::new(info), observatory }
    }

    /// Facts about the model.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Where the engine can be looked at.
    pub fn observatory(&self) -> &Observatory {
        &self.observatory
    }

    /// Whether conversations are kept on disk.
    pub fn keeps_on_disk(&self) -> bool {
        self.observatory.store.is_some()
    }

    /// Requests that wait for a bank now.
    pub fn queued(&self) -> usize {
        self.queue.waiting()
    }

    /// Bytes of the prompts of requests that wait for a bank now.
    pub fn queued_bytes(&self) -> Bytes {
        Bytes(self.queue.bytes.load(Ordering::Acquire))
    }

    /// How long a request that came now would wait for its bank, by how long others did; `None` when none has yet.
    pub fn expected_wait(&self) -> Option<Duration> {
        self.observatory.counters.time_for(self.queued() + 1)
    }

    /// Hands a request in.
    ///
    /// # Errors
    /// At once, when the queue is full, the prompt cannot fit, or the engine is gone.
    pub fn submit(&self, request: GenerateRequest) -> Result<EventStream, Refused> {
        let prompt = Tokens(request.prompt.tokens().len() as u32);
        let context = self.info.context;
        if prompt.0 == 0 {
            return Err(Refused::EmptyPrompt);
        }
        if prompt >= context {
            return Err(Refused::PromptTooLong { prompt, context });
        }
        let (waiting, stream) = self.queue.enter(request)?;
        self.observatory.counters.started.add(1);
        self.inbox.try_send(Command::Generate(Box::new(waiting))).map_err(|_| {
            self.observatory.counters.failed.add(1);
            Refused::Stopped
        })?;
        Ok(stream)
    }
}

/// How often a quiet engine looks after its memory.
const IDLE_LOOK: Duration = Duration::from_secs(1);

/// How often an engine looks for memory while requests wait and nothing runs.
const WAIT_LOOK: Duration = Duration::from_millis(20);

/// The engine thread: sleeps while there is nothing to do, and looks into the inbox between steps.
fn run(mut scheduler: Scheduler, commands: &Receiver<Command>) {
    let mut quiet_since = Instant::now();
    loop {
        let patience = match scheduler.load() {
            Load::Computes => Duration::ZERO,
            Load::Waits => WAIT_LOOK,
            Load::Nothing => IDLE_LOOK,
        };
        match commands.recv_timeout(patience) {
            Ok(Command::Generate(waiting)) => {
                let was_idle = scheduler.load() == Load::Nothing;
                scheduler.push(*waiting);
                let patience = if was_idle { scheduler.patience() } else { Duration::ZERO };
                // More may have come with it: they share the next step.
                if gather(&mut scheduler, commands, patience).is_break() {
                    return scheduler.stop();
                }
            }
            Ok(Command::Stop) => return scheduler.stop(),
            Err(RecvTimeoutError::Disconnected) if scheduler.load() == Load::Nothing => return scheduler.stop(),
            Err(_) => {}
        }
        if scheduler.load() == Load::Nothing {
            scheduler.idle(quiet_since.elapsed());
            continue;
        }
        scheduler.turn();
        quiet_since = Instant::now();
        if scheduler.device_is_lost() {
            return scheduler.stop();
        }
    }
}

/// Takes what is in the inbox, and waits a moment for requests that were sent together with the first one.
fn gather(scheduler: &mut Scheduler, commands: &Receiver<Command>, patience: Duration) -> ControlFlow<()> {
    let until = Instant::now() + patience;
    loop {
        match commands.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Command::Generate(waiting)) => scheduler.push(*waiting),
            Ok(Command::Stop) => return ControlFlow::Break(()),
            Err(_) => return ControlFlow::Continue(()),
        }
    }
}
