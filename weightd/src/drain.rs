//! Waiting for the end, and the way down.

use crate::bell::wait;
use crate::broker::Broker;
use crate::error::OwnerError;
use crate::parking::Parking;
use crate::store::{Holdings, Stage, Store};
use ds4_host::{StopSignals, service};
use ds4_manifest::Published;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Blocks until a signal, or a client that may, asks for the end. Parks again when the keeper is another one.
pub(crate) fn wait_for_stop(
    store: &Store,
    signals: &StopSignals,
    parking: &mut Parking,
    holdings: &Holdings,
) -> Result<(), OwnerError> {
    while !store.is_stopped() {
        let (signals, release) = (signals.as_fd(), store.release_asked.as_fd());
        if let Some(keeper) = parking.keeper_fd() {
            let [_, _, is_gone] = wait([signals, release, keeper], None).map_err(failed)?;
            if is_gone {
                parking.lose_keeper();
            }
        } else {
            wait([signals, release], parking.look_again()).map_err(failed)?;
            parking.park_again(&holdings.ranges);
        }
    }
    Ok(())
}

/// Takes the manifest back first, so that no new worker comes; tells the workers and waits for them; then frees, or
/// leaves the weights to the keeper that has them.
/// A further signal ends the waiting. Blocks for `timeout` at most.
pub(crate) fn drain(
    published: Published,
    broker: Broker,
    store: Arc<Store>,
    holdings: Arc<Holdings>,
    parking: &Parking,
    timeout: Duration,
    signals: &StopSignals,
) -> Result<(), OwnerError> {
    // One signal may have brought us here; any further one means that we should hurry.
    let mut seen = signals.take();
    let enough = if seen == 0 { 1 } else { 2 };
    service::stopping();
    let unpublished = published.unpublish();
    store.enter(Stage::Draining(holdings.clone()));
    info!(workers = store.lease_count(), timeout_s = timeout.as_secs(), "draining");
    if store.lease_count() > 0 {
        info!("waiting for workers to leave; a further signal ends the waiting");
    }
    store.draining.ring();
    wait_for_workers(
        &store,
        timeout,
        || {
            seen += signals.take();
            seen >= enough
        },
        signals,
    )?;
    let workers = store.lease_count();
    if workers > 0 {
        warn!(workers, "workers keep what they have mapped; its memory is free when they end");
    }
    let bytes = holdings.manifest.totals.allocated.0;
    if store.is_release() {
        parking.forget();
    }
    let keeper = parking.keeper_pid();
    // All three hold the weights.
    drop(broker);
    drop(store);
    drop(holdings);
    match keeper {
        None => info!(bytes, "released"),
        Some(keeper) => info!(bytes, keeper, "parked"),
    }
    Ok(unpublished?)
}

fn wait_for_workers(
    store: &Store,
    timeout: Duration,
    mut is_hurried: impl FnMut() -> bool,
    signals: &StopSignals,
) -> Result<(), OwnerError> {
    let end = Instant::now() + timeout;
    while store.lease_count() > 0 && !is_hurried() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        wait([signals.as_fd(), store.lease_ended.as_fd()], Some(left)).map_err(failed)?;
        store.lease_ended.silence();
    }
    Ok(())
}

fn failed(source: io::Error) -> OwnerError {
    OwnerError::System { action: "wait", source }
}
