//! Handles that the driver did not take back.

use super::error::CudaError;
use std::sync::atomic::{AtomicU64, Ordering};

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// How many handles of this process the driver refused to take back when their values were dropped. Their memory is
/// counted as used until the process ends.
pub fn leaked_handles() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

/// Counts a refusal where nobody can be told.
pub(super) fn count(result: Result<(), CudaError>) {
    if result.is_err() {
        LEAKED.fetch_add(1, Ordering::Relaxed);
    }
}
