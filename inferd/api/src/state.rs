//! What all handlers share.

use crate::ask::Reading;
use crate::body::{BodyBudget, PaidBody};
use crate::continuation::Continuations;
use crate::fuse::Fuse;
use crate::phase::{Phase, PhaseCell, Serving};
use crate::pool::RenderPool;
use crate::structured::GrammarCell;
use crate::telemetry::Telemetry;
use crate::trace::Traces;
use crate::{ApiError, Settings, limits};
use axum::extract::Request;
use ds4_model::AnswerMemory;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Between two looks whether the last client has left.
const CLIENTS_LOOK: Duration = Duration::from_millis(10);

/// One value behind every route.
pub(crate) struct ServerState {
    pub(crate) settings: Settings,
    pub(crate) phase: PhaseCell,
    pub(crate) bodies: BodyBudget,
    pub(crate) pool: RenderPool,
    pub(crate) memory: Arc<AnswerMemory>,
    grammars: GrammarCell,
    pub(crate) continuations: Continuations,
    pub(crate) fuse: Fuse,
    pub(crate) traces: Traces,
    pub(crate) telemetry: Telemetry,
    clients: Arc<Semaphore>,
    /// Of them, how many there are.
    clients_max: u32,
}

/// A handle to it.
pub(crate) type Shared = Arc<ServerState>;

/// A place among the requests that generate.
pub(crate) struct ClientPlace {
    _permit: OwnedSemaphorePermit,
}

impl ServerState {
    pub(crate) fn new(settings: Settings, traces: Traces) -> Shared {
        let memory = Arc::new(AnswerMemory::new(settings.remembered_calls, settings.remembered_bytes()));
        let clients_max = if settings.clients_max == 0 { limits::CONNECTIONS_MAX } else { settings.clients_max };
        Arc::new(ServerState {
            memory,
            grammars: GrammarCell::default(),
            continuations: Continuations::new(settings.keep_turns),
            fuse: Fuse::default(),
            traces,
            telemetry: Telemetry::new(),
            bodies: BodyBudget::new(settings.bodies_max),
            settings,
            phase: PhaseCell::new(),
            pool: RenderPool::new(),
            clients: Arc::new(Semaphore::new(clients_max as usize)),
            clients_max,
        })
    }

    /// What a surface may look at while it reads a body.
    pub(crate) fn reading<'a>(&'a self, serving: &'a Serving) -> Reading<'a> {
        Reading {
            serving,
            settings: &self.settings,
            memory: &self.memory,
            grammars: &self.grammars,
            continuations: &self.continuations,
            counting: false,
        }
    }

    /// Returns when no request generates any more, or after `patience`; says which.
    pub(crate) async fn all_clients_left(&self, patience: Duration) -> bool {
        // Waiting for all places at once would take those that are free, and count them as clients.
        let left = async {
            while self.clients() > 0 {
                tokio::time::sleep(CLIENTS_LOOK).await;
            }
        };
        tokio::time::timeout(patience, left).await.is_ok()
    }

    /// Reads a body, or sheds its request where all bodies together would take too much.
    pub(crate) async fn read_body(&self, request: Request) -> Result<PaidBody, ApiError> {
        self.bodies.read(request).await.inspect_err(|error| {
            if *error == ApiError::body_budget() {
                self.telemetry.shed("queue_bytes");
            }
        })
    }

    /// Requests that generate now.
    pub(crate) fn clients(&self) -> usize {
        self.clients_max as usize - self.clients.available_permits()
    }

    /// Takes a place for a request, or sheds it at once.
    pub(crate) fn client_place(&self) -> Result<ClientPlace, ApiError> {
        let wait = || match self.phase.now() {
            Phase::Ready(serving) => serving.engine.expected_wait(),
            Phase::Loading | Phase::Draining => None,
        };
        let permit = self.clients.clone().try_acquire_owned().map_err(|_| {
            self.telemetry.shed("clients");
            ApiError::too_many_clients(wait())
        })?;
        Ok(ClientPlace { _permit: permit })
    }
}

/// Seconds since 1970, for `created` fields.
pub(crate) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
