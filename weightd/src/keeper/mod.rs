//! The keeper: a process that holds the descriptors of weights while owners crash, are upgraded and come back.
//!
//! It has no CUDA, maps nothing and reads nothing: a descriptor alone keeps the memory, on the host and on a GPU. So it
//! has little reason to end, and nothing of a model or a driver can end it.

mod client;
mod memory_fd;
mod session;
mod sets;

pub(crate) use client::Keeper;
pub use client::KeeperError;

use crate::command::KeepConfig;
use crate::error::OwnerError;
use crate::listener::Listening;
use crate::lock::OwnerLock;
use ds4_host::StopSignals;
use ds4_wire::raise_fd_limit;
use sets::Sets;
use std::os::fd::AsFd;
use tracing::info;

/// Sets of one keeper.
const SETS_MAX: usize = 16;
/// Descriptors beside those that are kept: standard streams, socket, bells, connections and one message under way.
const FDS_BESIDE_KEPT: u64 = 512;

/// Keeps what owners park, until a signal ends it: then everything that nobody else holds is freed. Blocks.
pub(crate) fn keep(config: &KeepConfig, signals: &StopSignals) -> Result<(), OwnerError> {
    let limit = raise_fd_limit().map_err(|source| OwnerError::System { action: "raise the file limit", source })?;
    let _lock = OwnerLock::acquire(&config.lock, &config.socket)?;
    let sets = Sets::new(SETS_MAX, limit.saturating_sub(FDS_BESIDE_KEPT))
        .map_err(|source| OwnerError::System { action: "make an event descriptor", source })?;
    let listening = Listening::open(&config.socket, 0o600)?;
    info!(path = %config.socket.display(), pid = std::process::id(), "keeper listening");
    let served = std::thread::scope(|scope| {
        let serving = std::thread::Builder::new()
            .name("keeper".to_owned())
            .spawn_scoped(scope, || listening.serve(&sets, &sets.closing));
        let waited = serving.and_then(|_| crate::bell::wait([signals.as_fd()], None));
        sets.closing.ring();
        waited.map(|_| ())
    });
    let (count, fds) = sets.count();
    info!(sets = count, fds, "keeper ends");
    served.map_err(|source| OwnerError::System { action: "wait", source })
}
