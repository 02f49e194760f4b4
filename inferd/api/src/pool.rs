//! Parsing, rendering and tokenising: work for the CPU that no network thread and no engine thread should do.

use crate::ApiError;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// At most one piece of work per CPU at a time; others wait. What waits is bounded by the body budget.
pub(crate) struct RenderPool {
    places: Arc<Semaphore>,
}

impl RenderPool {
    pub(crate) fn new() -> RenderPool {
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
        RenderPool { places: Arc::new(Semaphore::new(cpus)) }
    }

    /// Runs `work` on a blocking thread.
    ///
    /// # Errors
    /// Those of `work`; an internal error when it panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let place = self.places.clone().acquire_owned().await.map_err(|_| ApiError::internal())?;
        let done = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(place);
            result
        });
        done.await.unwrap_or_else(|error| {
            tracing::error!(%error, "preparing a request failed");
            Err(ApiError::internal())
        })
    }
}
