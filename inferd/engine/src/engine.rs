//! The engine thread and the door to it.

use crate::outbox::{EventStream, outbox};
use crate::scheduler::{Scheduler, Waiting};
use crate::stats::Observatory;
use crate::{Account, DiskBanks, EngineOptions, GenerateRequest, QUEUED_MAX, Refused};
use ds4_model::{LoadedModel, ModelInfo};
use ds4_units::Tokens;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::thread::JoinHandle;
use std::time::Instant;

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
    queued: Arc<AtomicUsize>,
    info: Arc<ModelInfo>,
    observatory: Observatory,
}

enum Command {
    Generate(Box<Waiting>),
    Stop,
}

/// One place among the waiting requests; given back on drop.
pub(crate) struct QueueSlot(Arc<AtomicUsize>);

impl QueueSlot {
    fn take(queued: &Arc<AtomicUsize>) -> Option<QueueSlot> {
        let more = |count: usize| (count < QUEUED_MAX).then_some(count + 1);
        queued.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(QueueSlot(queued.clone()))
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Engine {
    /// Starts the engine thread. Its conversations are paid from `account`.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start(loaded: LoadedModel, options: EngineOptions, account: Account) -> io::Result<Engine> {
        Engine::start_with_disk(loaded, options, account, None)
    }

    /// As [`Engine::start`], with conversations on disk. [`Engine::stop`] then saves what is kept and waits for the
    /// disk.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start_with_disk(
        loaded: LoadedModel,
        options: EngineOptions,
        account: Account,
        disk: Option<DiskBanks>,
    ) -> io::Result<Engine> {
        // Waiting requests are counted, so the channel is never full; one place more is for the stop command.
        let (inbox, commands) = mpsc::sync_channel(QUEUED_MAX + 1);
        let info = Arc::new(loaded.model.info().clone());
        let governor = account.governor().clone();
        let store = disk.as_ref().map(DiskBanks::store);
        let scheduler = Scheduler::new(loaded, options, account, disk);
        let observatory = Observatory { counters: scheduler.counters.clone(), governor, store };
        observatory.counters.banks.set(options.banks);
        let thread = std::thread::Builder::new().name("engine".into()).spawn(move || run(scheduler, &commands))?;
        Ok(Engine { handle: EngineHandle { inbox, queued: Arc::default(), info, observatory }, thread })
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
    /// Facts about the model.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Where the engine can be looked at.
    pub fn observatory(&self) -> &Observatory {
        &self.observatory
    }

    /// Requests that wait for a bank now.
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Acquire)
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
        let slot = QueueSlot::take(&self.queued).ok_or(Refused::QueueFull { limit: QUEUED_MAX })?;
        let (outbox, stream) = outbox();
        let waiting = Waiting { request, outbox, submitted: Instant::now(), slot, looked: false };
        self.observatory.counters.started.add(1);
        self.inbox.try_send(Command::Generate(Box::new(waiting))).map_err(|_| {
            self.observatory.counters.failed.add(1);
            Refused::Stopped
        })?;
        Ok(stream)
    }
}

/// The engine thread: sleeps while there is nothing to do, and looks into the inbox between steps.
fn run(mut scheduler: Scheduler, commands: &Receiver<Command>) {
    let mut busy = false;
    loop {
        let command = if busy { commands.try_recv() } else { commands.recv().map_err(|_| TryRecvError::Disconnected) };
        match command {
            Ok(Command::Generate(waiting)) => {
                scheduler.push(*waiting);
                if !busy && gather(&mut scheduler, commands).is_break() {
                    return scheduler.stop();
                }
                // More may have come with it: they share the next step.
                busy = true;
                continue;
            }
            Ok(Command::Stop) => return scheduler.stop(),
            Err(TryRecvError::Disconnected) if !busy => return scheduler.stop(),
            Err(_) => {}
        }
        busy = scheduler.turn();
        if scheduler.device_is_lost() {
            return scheduler.stop();
        }
    }
}

/// Waits a moment for requests that were sent together with the first one.
fn gather(scheduler: &mut Scheduler, commands: &Receiver<Command>) -> ControlFlow<()> {
    let until = Instant::now() + scheduler.patience();
    loop {
        match commands.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Command::Generate(waiting)) => scheduler.push(*waiting),
            Ok(Command::Stop) => return ControlFlow::Break(()),
            Err(_) => return ControlFlow::Continue(()),
        }
    }
}
