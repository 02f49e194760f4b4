//! A worker's life: listen, boot, answer, drain.

use crate::config::Config;
use ds4_api::{Api, Derived, Hosts, Machine, Serving, Trace, Traces, serve as serve_http};
use ds4_boot::{
    Asked, BootError, Booted, ComputeDevice, Guard, Ledger, ModelFile, WeightMemory, default_floor, observer,
    own_memory,
};
use ds4_engine::{Account, DiskBanks, DiskOptions, Engine, EngineOptions, ParkedBanks, ParkedOptions, Stores};
use ds4_governor::{Floors, Governor, PressureLimits};
use ds4_host::{Exit, StopSignals, append_private, printable, printable_path, service};
use ds4_model::{AnswerMemory, LoadedModel, Model};
use ds4_units::Bytes;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

/// How long running answers may go on after the first stop signal.
const DRAIN_MAX: Duration = Duration::from_secs(30);

/// How often a silent engine is looked at, to notice one that fell over.
const ENGINE_LOOK: Duration = Duration::from_millis(500);

/// The file in the folder for tool slips.
const SLIPS_FILE: &str = "tool-slips.jsonl";

type Failure = (Exit, String);

/// Runs until a stop signal or a failure.
pub(crate) fn serve(config: Config, signals: &StopSignals) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| (Exit::Failed, format!("cannot start threads: {error}")))?;
    let result = runtime.block_on(run(config, signals));
    // Work on blocking threads that nobody waits for any more must not hold up the end.
    runtime.shutdown_background();
    result
}

async fn run(config: Config, signals: &StopSignals) -> Result<Exit, Failure> {
    let started = Instant::now();
    let mut stops = Stops::new(signals).map_err(|error| (Exit::Failed, format!("cannot wait for signals: {error}")))?;
    let listener = listen(&config).await?;
    let api = Api::new(config.http.clone(), traces(&config)?);
    let (close, closed) = oneshot::channel::<()>();
    let http = tokio::spawn(serve_http(listener, api.router(), async move {
        // Also when the other end is dropped.
        let _ = closed.await;
    }));
    let outcome = boot_and_wait(config, &api, signals.flag(), &mut stops, started).await;
    // The machine is watched for as long as anything runs.
    if let Ok((engine, _guard)) = outcome {
        drain(&api, &mut stops).await;
        drop(close);
        let _ = http.await;
        if engine.stop().is_err() {
            return Err((Exit::Engine, "the engine thread panicked".into()));
        }
        info!("stopped");
        return Ok(Exit::Ok);
    }
    let failure = outcome.map(|_| ()).unwrap_err();
    if failure.0 == Exit::Aborted {
        info!("stopped before the model was ready");
    }
    Err(failure)
}

/// Opens the traces that are asked for.
fn traces(config: &Config) -> Result<Traces, Failure> {
    let slips = config.tool_slip_dump.as_ref().map(|folder| folder.join(SLIPS_FILE));
    Ok(Traces { all: trace("--trace", config.trace.as_deref())?, slips: trace("--tool-slip-dump", slips.as_deref())? })
}

fn trace(flag: &str, path: Option<&Path>) -> Result<Option<Trace>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let file = append_private(path).map_err(|error| (Exit::Usage, format!("{flag}: {error}")))?;
    let trace = Trace::new(file).map_err(|error| (Exit::Failed, format!("cannot start threads: {error}")))?;
    warn!(file = %printable(&path.display().to_string()), "{flag}: prompts and answers are written there, in clear");
    Ok(Some(trace))
}

async fn listen(config: &Config) -> Result<TcpListener, Failure> {
    let (host, port) = (config.host.as_str(), config.port);
    let listener = TcpListener::bind((host, port)).await;
    let listener = listener.map_err(|error| (Exit::Listen, format!("cannot listen on {host}:{port}: {error}")))?;
    let address = listener.local_addr().map_err(|error| (Exit::Listen, error.to_string()))?;
    info!("listening on http://{address}");
    if config.http.hosts == Hosts::Any && config.http.api_keys.is_empty() {
        warn!("other machines can reach this address and no --api-key is set: everybody there can use the model");
    }
    Ok(listener)
}

/// Boots, tells the API, and returns the engine and its guard once a stop is asked for. Fails when the model cannot be
/// had or the engine falls over.
async fn boot_and_wait(
    config: Config,
    api: &Api,
    cancel: Arc<AtomicBool>,
    stops: &mut Stops,
    started: Instant,
) -> Result<(Engine, Guard), Failure> {
    let (options, max_seqs) = (config.engine, config.max_seqs);
    let floor = config.memory_floor;
    let memory = api.memory();
    let booting = tokio::task::spawn_blocking(move || boot(&config, &memory, &cancel));
    let (model_id, mut booted, stores) =
        booting.await.map_err(|error| (Exit::Failed, format!("booting failed: {error}")))??;
    let (tokenizer, codec) = (booted.loaded.tokenizer.clone(), booted.loaded.codec.clone());
    let device = booted.device.clone();
    let derived =
        Derived { imported: booted.derived.imported, built: booted.derived.built, bytes: booted.derived.bytes };
    let machine = Machine { derived, leaked_handles: ds4_boot::leaked_handles };
    let floor = floor.unwrap_or(default_floor(&device));
    let asked = Asked { floor, rows: options.prefill_rows, banks: max_seqs.asked() };
    let planning = Instant::now();
    let (account, ledger) = account(booted.loaded.model.as_mut(), &device, &asked, &stores, booted.memory)?;
    let plan = ledger.banks;
    match plan.check() {
        Err(error) if plan.asked => return Err((Exit::Usage, format!("--max-seqs {}: {error}", plan.banks))),
        Err(error) => warn!("memory: {error}"),
        Ok(()) => {}
    }
    info!(memory_ms = planning.elapsed().as_millis() as u64, "memory: planned, and taken for steps");
    let options = EngineOptions { banks: plan.banks, prefill_rows: Some(ledger.step.rows), ..options };
    let engine = Engine::start_with(booted.loaded, options, account, stores);
    let engine = engine.map_err(|error| (Exit::Engine, format!("cannot start the engine thread: {error}")))?;
    let governor = engine.handle().observatory().governor().clone();
    let guard = Guard::start(governor, &device, PressureLimits::below(floor));
    let guard = guard.map_err(|error| (Exit::Failed, format!("cannot start threads: {error}")))?;
    info!(model = %printable(&model_id), max_seqs = options.banks, ready_ms = started.elapsed().as_millis() as u64, "ready");
    service::status(&format!("serves {}", printable(&model_id)));
    service::ready();
    api.ready(Serving { model_id, engine: engine.handle(), tokenizer, codec, machine });
    let mut leaks = Leaks::default();
    loop {
        tokio::select! {
            () = stops.next() => return Ok((engine, guard)),
            () = tokio::time::sleep(ENGINE_LOOK) => {
                if let Some(handles) = leaks.more((machine.leaked_handles)()) {
                    warn!(handles, "the GPU's driver did not take handles back: their memory is lost until the worker ends");
                }
                if engine.is_stopped() {
                    error!("the engine is gone");
                    let why = "the engine is gone: a defect, or its device failed for good; start the worker again";
                    return Err((Exit::Engine, why.into()));
                }
            }
        }
    }
}

/// What is known of handles that the device's driver did not take back.
#[derive(Default)]
struct Leaks(u64);

impl Leaks {
    /// The number, when it is larger than it was: each is told once.
    fn more(&mut self, handles: u64) -> Option<u64> {
        let before = std::mem::replace(&mut self.0, handles);
        (handles > before).then_some(handles)
    }
}

/// The account conversations are paid from, and what it was made from: every number that decides is a line in the log.
/// What steps need is taken.
fn account(
    model: &mut dyn Model,
    device: &ComputeDevice,
    asked: &Asked,
    stores: &Stores,
    weights: WeightMemory,
) -> Result<(Account, Ledger), Failure> {
    let failed = |error: BootError| (error.exit(), error.to_string());
    let mut observe = observer(device);
    let mut observation = observe();
    // What was taken over is conversations already.
    let taken = stores.parked.iter().flat_map(ParkedBanks::banks);
    let taken: u64 = taken.filter_map(|bank| Some(model.resident_bytes(bank).ok()?.0)).sum();
    observation.free.0 = observation.free.0.saturating_add(taken);
    let mut ledger = Ledger::plan(model, &observation, asked).map_err(failed)?;
    ledger.take_activations(model).map_err(failed)?;
    let Ledger { step, rows_asked, activations, recordings, banks: plan, .. } = &ledger;
    info!(free = %observation.free, source = observation.source.name(), floor = %asked.floor, "memory: {plan}");
    if *activations > Bytes::ZERO {
        info!(rows = step.rows, %activations, %recordings, "memory: taken for steps, and kept free for recordings of them");
    }
    if step.rows < *rows_asked {
        warn!(
            rows = step.rows,
            asked = rows_asked,
            "memory: steps are smaller, so that a conversation fits beside them"
        );
    }
    for length in &plan.lengths {
        info!(tokens = length.tokens.0, price = %length.price, fit = length.fit, "memory: conversations of this length");
    }
    let floors = Floors { floor: asked.floor, substrate_outstanding: Bytes::ZERO };
    let governor = Governor::new(floors, weights.census).with_plan(plan.clone());
    let account = Account::new(governor, Box::new(observe)).holding(weights.charges);
    Ok((account.living_on_the_floor(Box::new(own_memory(device))), ledger))
}

fn boot(config: &Config, memory: &AnswerMemory, cancel: &AtomicBool) -> Result<(String, Booted, Stores), Failure> {
    let failed = |error: ds4_boot::BootError| (error.exit(), error.to_string());
    // The driver starts while the file's header is read.
    let began = Instant::now();
    let file = std::thread::scope(|threads| {
        threads.spawn(|| ds4_boot::start_driver(&config.model));
        ModelFile::open(&config.model, cancel).map_err(failed)
    })?;
    info!(file_ms = began.elapsed().as_millis() as u64, "header read, driver started");
    let model_id = config.model_id.clone().unwrap_or_else(|| file.default_id());
    let worker = format!("ds4-server-{}", std::process::id());
    let mut booted = file.load(&config.model, &worker, cancel).map_err(failed)?;
    let disk = config.disk.as_ref().map(|options| open_disk(options, memory, &booted)).transpose()?;
    let parked = config.parked.as_ref().map(|options| open_parked(options, &mut booted)).transpose()?;
    Ok((model_id, booted, Stores { disk, parked }))
}

/// Takes over the conversations that killed workers of this model have left in memory.
fn open_parked(options: &ParkedOptions, booted: &mut Booted) -> Result<ParkedBanks, Failure> {
    let began = Instant::now();
    let (content, LoadedModel { model, tokenizer, .. }) = (booted.identity.0, &mut booted.loaded);
    let parked = ParkedBanks::open(options, content, model.as_mut(), tokenizer);
    let parked = parked.map_err(|error| (Exit::Failed, format!("cannot start threads: {error}")))?;
    let inherited = parked.inherited();
    for doubt in &inherited.doubts {
        warn!("a conversation of a killed worker is not taken over: {doubt}; it comes from disk, or is computed again");
    }
    if inherited.banks > 0 {
        let (conversations, tokens) = (inherited.banks, inherited.tokens);
        info!(conversations, tokens, ms = began.elapsed().as_millis() as u64, "conversations taken over in memory");
    }
    Ok(parked)
}

/// Reads which conversations are on disk for this model.
fn open_disk(options: &DiskOptions, memory: &AnswerMemory, booted: &Booted) -> Result<DiskBanks, Failure> {
    let began = Instant::now();
    let LoadedModel { model, tokenizer, codec } = &booted.loaded;
    let disk = DiskBanks::open(options, booted.identity.0, codec.renderer_version(), model.as_ref(), tokenizer.clone());
    let disk = disk.map_err(|error| (Exit::Usage, format!("--kv-disk-dir: {error}")))?;
    disk.recall_into(memory);
    let stats = disk.stats();
    info!(
        folder = %printable_path(&options.folder),
        conversations = stats.files,
        bytes = %stats.bytes,
        budget = %stats.budget,
        index_ms = began.elapsed().as_millis() as u64,
        "conversations on disk"
    );
    Ok(disk)
}

/// Lets running answers end, until they have, time is up, or a second signal comes.
async fn drain(api: &Api, stops: &mut Stops) {
    service::stopping();
    info!("draining: running answers may end, new requests are refused");
    tokio::select! {
        drained = api.drain(DRAIN_MAX) => {
            if !drained {
                warn!("answers still run after {} s and are cut", DRAIN_MAX.as_secs());
            }
        }
        () = stops.next() => warn!("a second signal: running answers are cut"),
    }
}

/// Stop signals, one by one, without a thread that waits for them.
struct Stops {
    wakeup: UnixStream,
}

impl Stops {
    fn new(signals: &StopSignals) -> std::io::Result<Stops> {
        let wakeup = std::os::unix::net::UnixStream::from(signals.as_fd().try_clone_to_owned()?);
        Ok(Stops { wakeup: UnixStream::from_std(wakeup)? })
    }

    /// Returns when the next signal has come: each is one byte.
    async fn next(&mut self) {
        // The other end lives as long as the process, so that reading fails only for good.
        if self.wakeup.read_u8().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_handles_are_told_once_and_again_when_they_become_more() {
        let mut leaks = Leaks::default();
        assert_eq!([0, 2, 2, 5, 5].map(|handles| leaks.more(handles)), [None, Some(2), None, Some(5), None]);
    }
}
