//! The owner from its lock to its last byte.

use crate::backend;
use crate::broker::Broker;
use crate::command::ServeConfig;
use crate::drain::{drain, wait_for_stop};
use crate::error::OwnerError;
use crate::holders::{Holder, holders};
use crate::layout::{manifest, republished};
use crate::loading::{load_weights, prepare_stage, reserve};
use crate::lock::OwnerLock;
use crate::parking::{Parking, TakenBack};
use crate::process::this_process;
use crate::stale::clear_previous;
use crate::store::{Facts, Holdings, Stage, Store};
use ds4_host::{StopSignals, service};
use ds4_manifest::{InstanceId, publish};
use ds4_resident::LoadReport;
use ds4_wire::{Connection, Deadline, Reply, Request, raise_fd_limit};
use rand::TryRngCore;
use rand::rngs::OsRng;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long the broker has to answer its own owner.
const SELF_CHECK: Duration = Duration::from_secs(5);

/// Loads, serves, and ends when told to. Blocks for as long as that takes. Whatever happens, the manifest, the
/// socket and the lock are gone when it returns.
pub(crate) fn serve(config: &ServeConfig, signals: &StopSignals) -> Result<(), OwnerError> {
    let started = Instant::now();
    let fd_limit = raise_fd_limit().map_err(|source| OwnerError::System { action: "raise the file limit", source })?;
    let paths = &config.paths;
    let destination = backend::destination(&config.load.backend)?;
    let device = backend::described(&destination);
    info!(
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        backend = device.backend,
        reserve = %reserve(&config.load, &destination),
        device = device.name,
        uuid = device.uuid,
        manifest = %paths.manifest.display(),
        "starting"
    );
    // Fields of this function drop in reverse order: manifest, weights, socket, lock. An owner that drains closes its
    // socket before it lets go of the weights, because connections hold them as well.
    let _lock = OwnerLock::acquire(&paths.lock, &paths.manifest)?;
    let previous = clear_previous(&paths.manifest, config.replace_stale)?;
    let mut parking = Parking::find(config.keeper.as_ref(), &config.name);
    let kept = parking.kept();
    let generation = previous.max(kept.as_ref().map_or(0, |kept| kept.generation)) + 1;
    let facts = facts(config, generation, started)?;
    let store = Arc::new(
        Store::new(facts.clone(), signals.flag())
            .map_err(|source| OwnerError::System { action: "make an event descriptor", source })?,
    );
    let broker = Broker::open(&paths.socket, config.access.clone(), config.drain_timeout, store.clone())?;

    let name = format!("ds4-{}", config.name);
    // The lock is ours, so whatever is held under this name was an earlier owner's.
    for Holder { pid, bytes } in holders(&format!("{name}-")) {
        warn!(pid, bytes = bytes.0, "a worker of an earlier owner still holds its weights; they are free when it ends");
    }
    // Who asked for the weights to be freed means those of an earlier owner as well, which this one has not taken back.
    let forget_if_released = |_: &OwnerError| {
        if store.is_release() {
            parking.forget();
        }
    };
    let prepared = prepare_stage(&config.load, destination, fd_limit, &store).inspect_err(forget_if_released)?;
    let owner = this_process().map_err(|source| OwnerError::System { action: "look at this process", source })?;
    if kept.is_some() {
        store.enter(Stage::Verifying);
    }
    let taken = kept.and_then(|kept| parking.take_back(&kept, &prepared, config.load.verify));
    let (manifest, ranges, report) = match taken {
        Some(TakenBack { manifest, ranges }) => {
            (republished(manifest, &facts, owner, paths), ranges, LoadReport::nothing_read(started.elapsed()))
        }
        None => {
            let resident = load_weights(&config.load, &prepared, &name, &store).inspect_err(forget_if_released)?;
            let flags = prepared.plan_flags(&config.load);
            let manifest = manifest(&facts, owner, paths, &prepared, flags, &resident);
            (manifest, resident.ranges, resident.report)
        }
    };
    parking.park(&manifest, &ranges, &prepared);
    let holdings = Arc::new(Holdings { manifest, ranges });
    // The files have been read and proved unchanged: let go of them.
    drop(prepared);

    store.enter(Stage::Exporting(holdings.clone()));
    check_broker(&paths.socket, &facts)?;
    let published = publish(&paths.manifest, &holdings.manifest, config.access.manifest_mode())?;
    store.enter(Stage::Ready(holdings.clone()));
    log_ready(&paths.manifest, &holdings, &report);
    let totals = &holdings.manifest.totals;
    service::status(&format!("lends {} in {} ranges", totals.allocated, totals.ranges));
    service::ready();

    wait_for_stop(&store, signals, &mut parking, &holdings)?;
    drain(published, broker, store, holdings, &parking, config.drain_timeout, signals)
}

fn facts(config: &ServeConfig, generation: u64, started: Instant) -> Result<Facts, OwnerError> {
    let mut instance = [0; 16];
    OsRng.try_fill_bytes(&mut instance).map_err(|error| OwnerError::System {
        action: "get random bytes",
        source: std::io::Error::other(error.to_string()),
    })?;
    let models = &config.load.models;
    Ok(Facts {
        instance: InstanceId(instance),
        generation,
        started,
        manifest: config.paths.manifest.to_string_lossy().into_owned(),
        models: models.iter().map(|(role, path)| (role.to_string(), path.to_string_lossy().into_owned())).collect(),
    })
}

/// Proves that a client finds this owner behind the socket.
fn check_broker(socket: &Path, facts: &Facts) -> Result<(), OwnerError> {
    let failed = |reason: String| OwnerError::SelfCheck { reason };
    let deadline = Deadline::after(SELF_CHECK);
    let connection = Connection::connect(socket, deadline).map_err(|error| failed(error.to_string()))?;
    match connection.ask(&Request::Status, deadline, |_| {}) {
        Ok(Reply::Status(status)) if status.instance == facts.instance.to_string() => Ok(()),
        Ok(Reply::Status(status)) => Err(failed(format!("instance {} does instead", status.instance))),
        Ok(_) => Err(failed("it answers something else".to_owned())),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn log_ready(path: &Path, holdings: &Holdings, report: &LoadReport) {
    let manifest = &holdings.manifest;
    info!(
        manifest = %path.display(),
        instance = %manifest.instance,
        generation = manifest.generation,
        ranges = manifest.totals.ranges,
        bytes = manifest.totals.allocated.0,
        load_s = format_args!("{:.3}", report.elapsed.as_secs_f64()),
        gib_per_s = format_args!("{:.3}", report.rate() / f64::from(1 << 30)),
        "ready"
    );
}
