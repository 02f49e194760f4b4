//! The HTTP side as one value: built before the model is there, told when it is.

use crate::phase::{Phase, Serving};
use crate::state::{ServerState, Shared};
use crate::{Settings, Traces, routes};
use axum::Router;
use ds4_model::AnswerMemory;
use std::sync::Arc;
use std::time::Duration;

/// The HTTP side. It answers from the start: `/health` says `loading`, requests get 503 until [`Api::ready`].
pub struct Api {
    shared: Shared,
}

impl Api {
    /// A server that is loading. What `traces` names is written there.
    pub fn new(settings: Settings, traces: impl Into<Traces>) -> Api {
        Api { shared: ServerState::new(settings, traces.into()) }
    }

    /// What earlier answers said exactly, to be filled with what outlived an earlier process.
    pub fn memory(&self) -> Arc<AnswerMemory> {
        self.shared.memory.clone()
    }

    /// The routes as a service.
    pub fn router(&self) -> Router {
        routes::router(self.shared.clone())
    }

    /// Requests are answered from now on.
    pub fn ready(&self, serving: Serving) {
        self.shared.phase.enter(Phase::Ready(Arc::new(serving)));
    }

    /// New requests are refused from now on; returns once the running ones have ended, or after `patience`. Says
    /// whether all had ended.
    pub async fn drain(&self, patience: Duration) -> bool {
        self.shared.phase.enter(Phase::Draining);
        self.shared.all_clients_left(patience).await
    }
}
