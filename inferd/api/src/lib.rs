//! The HTTP surfaces.
//!
//! [`Api`] is the whole of it as a value: [`Api::router`] serves requests (in tests without a socket), [`Api::ready`]
//! hands it the model, [`serve`] puts it behind a listener. One file per surface; errors are classified once
//! ([`ApiError`]) and spelled per protocol. Parsing, rendering and tokenising run on a bounded pool, generation on the
//! engine's thread, so that no handler waits for anything but its own request.
//!
//! A field that a client sends is honoured, or refused by name.

mod answer;
mod api;
mod ask;
mod body;
mod caller;
mod chat;
mod completions;
mod continuation;
mod counting;
mod ending;
mod error;
mod explain;
mod fuse;
mod generate;
mod guard;
mod health;
mod ids;
mod keys;
mod limits;
mod logprobs;
mod machine;
mod messages;
mod metrics;
mod models;
mod params;
mod phase;
mod pool;
mod reader;
mod responses;
mod routes;
mod server;
mod settings;
mod slip;
mod sse;
mod state;
mod stats;
mod structured;
mod surface;
mod surrogates;
mod telemetry;
mod thinking;
mod tokens;
mod tools;
mod trace;
mod transcript;
mod usage;
mod verbatim;
mod version;

pub use api::Api;
pub use continuation::KeepTurns;
pub use error::ApiError;
pub use explain::{Explained, Explainer, RequestKind};
pub use keys::ApiKey;
pub use machine::{Derived, Machine};
pub use phase::Serving;
pub use server::serve;
pub use settings::{Hosts, Origins, ReasoningReplay, Settings, ThinkingSampling};
pub use trace::{Trace, Traces};
