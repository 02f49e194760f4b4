//! What the operator chose.

use crate::ApiKey;
use ds4_model::{Effort, ThinkingMode};
use ds4_units::Tokens;
use http::HeaderValue;

/// Whose pages may call the server from a browser.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origins {
    /// Nobody's: a request with an `Origin` header is refused.
    #[default]
    None,
    /// These origins', spelled as browsers send them (`https://example.org`).
    Listed(Vec<HeaderValue>),
    /// Everybody's.
    Any,
}

/// Which `Host` a request may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Loopback names and these: a page that rebinds its name to this machine is refused.
    LoopbackAnd(Vec<String>),
    /// Any: the server listens to other machines on purpose.
    Any,
}

/// The operator's choices for the HTTP side.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Tokens of an answer when the request names no budget.
    pub max_tokens: Tokens,
    /// Keys of which a request must show one; none means open.
    pub api_keys: Vec<ApiKey>,
    /// Whose pages may call.
    pub origins: Origins,
    /// Which `Host` is accepted.
    pub hosts: Hosts,
    /// Whether an answer begins with reasoning when the request is silent.
    pub thinking: ThinkingMode,
    /// How much reasoning when the request is silent.
    pub effort: Option<Effort>,
}
