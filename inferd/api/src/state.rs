//! What all handlers share.

use crate::body::BodyBudget;
use crate::phase::PhaseCell;
use crate::pool::RenderPool;
use crate::{ApiError, Settings, limits};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One value behind every route.
pub(crate) struct ServerState {
    pub(crate) settings: Settings,
    pub(crate) phase: PhaseCell,
    pub(crate) bodies: BodyBudget,
    pub(crate) pool: RenderPool,
    clients: Arc<Semaphore>,
}

/// A handle to it.
pub(crate) type Shared = Arc<ServerState>;

/// A place among the requests that generate.
pub(crate) struct ClientPlace {
    _permit: OwnedSemaphorePermit,
}

impl ServerState {
    pub(crate) fn new(settings: Settings) -> Shared {
        Arc::new(ServerState {
            settings,
            phase: PhaseCell::new(),
            bodies: BodyBudget::new(),
            pool: RenderPool::new(),
            clients: Arc::new(Semaphore::new(limits::CLIENTS_MAX)),
        })
    }

    /// Returns when no request generates any more, or after `patience`; says which.
    pub(crate) async fn all_clients_left(&self, patience: Duration) -> bool {
        let everyone = self.clients.acquire_many(limits::CLIENTS_MAX as u32);
        tokio::time::timeout(patience, everyone).await.is_ok()
    }

    /// Takes a place for a request, or refuses at once.
    pub(crate) fn client_place(&self) -> Result<ClientPlace, ApiError> {
        let permit = self.clients.clone().try_acquire_owned().map_err(|_| ApiError::too_many_clients())?;
        Ok(ClientPlace { _permit: permit })
    }
}

/// Seconds since 1970, for `created` fields.
pub(crate) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
