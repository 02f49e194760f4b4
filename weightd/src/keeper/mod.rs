//! The keeper: a process that holds the descriptors of weights while owners crash, are upgraded and come back.
//!
//! It has no CUDA, maps nothing and reads nothing: a descriptor alone keeps the memory, on the host and on a GPU. So it
//! has little reason to end, and nothing of a model or a driver can end it.

mod fd_store;
mod memory_fd;
mod session;
mod sets;

use crate::command::KeepConfig;
use crate::error::OwnerError;
use crate::listener::Listening;
use crate::lock::OwnerLock;
use ds4_host::{StopSignals, service};
use ds4_wire::{inherited, raise_fd_limit};
use fd_store::FdStore;
use sets::Sets;
use std::os::fd::AsFd;
use std::time::Instant;
use tracing::info;

/// Sets of one keeper: an owner has one, a worker one for each conversation.
const SETS_MAX: usize = 1024;
/// Descriptors beside those that are kept: standard streams, socket, bells, connections and one message under way.
const FDS_BESIDE_KEPT: u64 = 512;

/// Keeps what owners park, until a signal ends it: then everything that nobody else holds is freed. Blocks.
pub(crate) fn keep(config: &KeepConfig, signals: &StopSignals) -> Result<(), OwnerError> {
    // Before anything else is opened: these are open already, under numbers of the service manager's choosing.
    let stored = inherited(config.stored.len())
        .map_err(|source| OwnerError::System { action: "take over descriptors of the service manager", source })?;
    let limit = raise_fd_limit().map_err(|source| OwnerError::System { action: "raise the file limit", source })?;
    let _lock = OwnerLock::acquire(&config.lock, &config.socket)?;
    let sets = Sets::new(SETS_MAX, limit.saturating_sub(FDS_BESIDE_KEPT), FdStore::new(config.has_manager))
        .map_err(|source| OwnerError::System { action: "make an event descriptor", source })?;
    sets.take_back(stored, &config.stored);
    let listening = Listening::open(&config.socket, 0o600)?;
    info!(path = %config.socket.display(), pid = std::process::id(), "keeper listening");
    service::ready();
    let served = std::thread::scope(|scope| {
        let serving = std::thread::Builder::new()
            .name("keeper".to_owned())
            .spawn_scoped(scope, || listening.serve(&sets, &sets.closing));
        let waited = serving.and_then(|_| wait_for_signal(&sets, signals));
        service::stopping();
        sets.closing.ring();
        waited
    });
    let (count, fds) = sets.count();
    info!(sets = count, fds, "keeper ends");
    served.map_err(|source| OwnerError::System { action: "wait", source })
}

/// Blocks until a signal comes; frees what nobody has come back for meanwhile.
fn wait_for_signal(sets: &Sets, signals: &StopSignals) -> std::io::Result<()> {
    loop {
        let next = sets.free_expired(Instant::now());
        let left = next.map(|next| next.saturating_duration_since(Instant::now()));
        let [signal, _] = crate::bell::wait([signals.as_fd(), sets.orphaned.as_fd()], left)?;
        if signal {
            return Ok(());
        }
        sets.orphaned.silence();
    }
}
