//! Whether the server can answer: it listens before the model is there and a while after it was told to stop.

use crate::{ApiError, Machine};
use ds4_engine::EngineHandle;
use ds4_model::{PromptCodec, Tokenizer};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

/// What handlers need once the model is there.
#[derive(Clone)]
pub struct Serving {
    /// The id under which the model is offered.
    pub model_id: String,
    /// The door to the engine.
    pub engine: EngineHandle,
    /// The model's tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// The model's prompt protocol.
    pub codec: Arc<dyn PromptCodec>,
    /// What is below.
    pub machine: Machine,
}

/// A server's life, in order.
#[derive(Clone)]
pub(crate) enum Phase {
    /// The model is being loaded or imported.
    Loading,
    /// Requests are answered.
    Ready(Arc<Serving>),
    /// Running requests end, new ones are refused.
    Draining,
}

/// The phase, set by whoever boots and stops the server and looked at by every request.
pub(crate) struct PhaseCell {
    phase: RwLock<Phase>,
    started: Instant,
}

impl PhaseCell {
    pub(crate) fn new() -> PhaseCell {
        PhaseCell { phase: RwLock::new(Phase::Loading), started: Instant::now() }
    }

    pub(crate) fn enter(&self, phase: Phase) {
        *self.phase.write().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    pub(crate) fn now(&self) -> Phase {
        self.phase.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What handlers need, or why they cannot work now.
    pub(crate) fn serving(&self) -> Result<Arc<Serving>, ApiError> {
        match self.now() {
            Phase::Loading => Err(ApiError::loading(self.started.elapsed())),
            Phase::Ready(serving) => Ok(serving),
            Phase::Draining => Err(ApiError::shutting_down()),
        }
    }
}
