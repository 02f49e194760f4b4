//! The HTTP surfaces.
//!
//! [`Api`] is the whole of it as a value: [`Api::router`] serves requests (in tests without a socket), [`Api::ready`]
//! hands it the model, [`serve`] puts it behind a listener. One file per surface; errors are classified once
//! ([`ApiError`]) and spelled per protocol. Parsing, rendering and tokenising run on a bounded pool, generation on the
//! engine's thread, so that no handler waits for anything but its own request.
//!
//! A field that a client sends is honoured, or refused by name.

mod api;
mod body;
mod chat;
mod error;
mod generate;
mod guard;
mod health;
mod ids;
mod keys;
mod limits;
mod models;
mod params;
mod phase;
mod pool;
mod reader;
mod routes;
mod server;
mod settings;
mod sse;
mod state;
mod surrogates;
mod thinking;
mod usage;

pub use api::Api;
pub use error::ApiError;
pub use keys::ApiKey;
pub use phase::Serving;
pub use server::serve;
pub use settings::{Hosts, Origins, Settings};
