//! One thread owns the model: admission, continuous batching, sampling.
//!
//! [`Engine::start`] moves a loaded model onto its thread. An [`EngineHandle`] takes a [`GenerateRequest`] at any time
//! and returns an [`EventStream`], or refuses at once. The thread works in turns: drop requests whose readers are
//! gone, give waiting ones a bank, compute one step for everybody, draw tokens. It never waits for a reader: an
//! [`EventStream`] is bounded, and a reader that falls behind loses its request, not everybody's time.
//!
//! What a request gets depends on its prompt, its sampling and its seed, never on its company or on a clock. Both decide
//! which finished conversations keep their banks: the least recently used one goes first, one whose answer ended with
//! tool calls is waited for, and a request that nobody will go on from takes none of them away.

mod account;
mod admit;
mod chooser;
mod clock;
mod disk;
mod engine;
mod event;
mod follow;
mod foresight;
mod funding;
mod ghosts;
mod limits;
mod logprobs;
mod outbox;
mod output;
mod pace;
mod parked;
mod quiet;
mod rates;
mod reclaim;
mod request;
mod restore;
mod rows;
mod running;
mod sampler;
mod scheduler;
mod speculation;
mod stats;
mod stop;
#[cfg(test)]
mod storm;
mod tally;
mod warm;

pub use account::{Account, Observe, OwnMemory};
pub use clock::Watch;
pub use disk::{DiskBanks, DiskError, DiskOptions};
pub use ds4_banks::{Eviction, HitKind, Miss, Quarantine, SaveReason, Stats as DiskStats, SyncMode};
pub use ds4_governor::Refusal;
pub use ds4_model::{AnswerSummary, CallEvent, Channel};
pub use ds4_parking::Stats as ParkedStats;
pub use engine::{Engine, EngineHandle, Stores};
pub use event::{
    CallDelta, Delta, Event, FinishReason, Finished, Logprob, PositionLogprobs, RequestFault, ReuseKind, Started,
    Timings, Usage,
};
pub use limits::{
    BANKS_DEFAULT, CHARGED_TOKENS, EVENTS_UNREAD_MAX, EngineOptions, GRACE, IDLE_TRIM, PROMPT_LOGPROBS_ROWS,
    QUEUE_AGE_MAX, QUEUED_BYTES_MAX, QUEUED_MAX, STEP_TARGET, TOP_LOGPROBS_MAX,
};
pub use outbox::EventStream;
pub use parked::{Inherited, ParkedBanks, ParkedOptions};
pub use rates::Rates;
pub use request::{GenerateRequest, Hear, Keep, Refused};
pub use sampler::{NotFinite, Sampling};
pub use speculation::SpeculationOptions;
pub use stats::{Observatory, Stats};

use engine::QueueSlot;
