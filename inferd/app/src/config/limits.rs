//! Flags about how much may come at once, and when a request is turned away instead of waiting.

use clap::Args;
use ds4_api::Settings;
use ds4_engine::{EngineOptions, QUEUE_AGE_MAX, QUEUED_BYTES_MAX, QUEUED_MAX};
use ds4_units::Bytes;
use std::time::Duration;

/// Limits of the worker. Each is off at 0.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(super) struct LimitArgs {
    /// Requests that generate or wait to; one more gets status 503. 0: as many as there may be connections, 1024
    #[arg(long, value_name = "N", default_value_t = Settings::default().clients_max, env = "DS4_SERVER_MAX_CLIENTS")]
    max_clients: u32,

    /// Of these, requests that wait for a place among --max-seqs; one more gets status 429. 0: as many as come
    #[arg(long, value_name = "N", default_value_t = QUEUED_MAX, env = "DS4_SERVER_MAX_QUEUE")]
    max_queue: usize,

    /// Bytes of all request bodies that are being read, and as many of prompts that wait; beyond them status 429.
    /// 0: as many as come
    #[arg(long, value_name = "BYTES", default_value_t = QUEUED_BYTES_MAX.0, env = "DS4_SERVER_MAX_QUEUE_BYTES")]
    max_queue_bytes: u64,

    /// Seconds for which a request waits at most; then it gets status 429. 0: as long as it takes
    #[arg(long, value_name = "S", default_value_t = QUEUE_AGE_MAX.as_secs(), env = "DS4_SERVER_MAX_QUEUE_AGE_S")]
    max_queue_age_s: u64,
}

impl LimitArgs {
    /// `settings` with these limits.
    pub(super) fn of_http(&self, settings: Settings) -> Settings {
        Settings { clients_max: self.max_clients, bodies_max: Bytes(self.max_queue_bytes), ..settings }
    }

    /// `options` with these limits.
    pub(super) fn of_engine(&self, options: EngineOptions) -> EngineOptions {
        EngineOptions {
            queued_max: self.max_queue,
            queued_bytes_max: Bytes(self.max_queue_bytes),
            queue_age_max: Duration::from_secs(self.max_queue_age_s),
            ..options
        }
    }
}
