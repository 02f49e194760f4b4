//! What the operator chose.

use crate::{ApiKey, KeepTurns, limits};
use ds4_model::{Effort, REMEMBERED_BYTES_MAX, REMEMBERED_CALLS_MAX, ThinkingMode};
use ds4_units::{Bytes, Tokens};
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

/// Whose sampling counts for answers that reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThinkingSampling {
    /// The request's.
    #[default]
    Asked,
    /// The defaults, whatever the request says.
    Fixed,
}

/// What becomes of the reasoning in earlier answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningReplay {
    /// What the model's protocol wants: kept where tools are in play.
    #[default]
    Keep,
    /// Left out everywhere.
    Drop,
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
    /// Whether answers of the Messages surface begin with reasoning when the request is silent.
    pub anthropic_thinking: ThinkingMode,
    /// Whether the calls of a streamed Messages answer are shown while they are generated.
    pub anthropic_live_args: bool,
    /// Whether a client's `high` and `max` effort count as `low`, as published.
    pub effort_compat: bool,
    /// Whose sampling counts while an answer reasons.
    pub thinking_sampling: ThinkingSampling,
    /// What becomes of the reasoning in earlier answers.
    pub reasoning_replay: ReasoningReplay,
    /// Tool results beyond so many bytes of the prompt remind the model how to call tools.
    pub reminder_after: Option<Bytes>,
    /// Whether a buffered chat reply that announces a tool call and makes none is asked for once more.
    pub resample_slips: bool,
    /// Tool calls (and answers' reasoning) remembered exactly; 0 remembers none.
    pub remembered_calls: usize,
    /// Turns that clients may go on from without sending them again.
    pub keep_turns: KeepTurns,
    /// Requests that generate or wait to, at the same time; 0 for as many as there are connections.
    pub clients_max: u32,
    /// Bytes of request bodies that are being read, parsed and rendered; 0 for as many as come.
    pub bodies_max: Bytes,
    /// Whether the prompt of a raw completion is put into a conversation.
    pub wrap_completions: bool,
}

impl Default for Settings {
    /// A server that is open to its own machine.
    fn default() -> Settings {
        Settings {
            max_tokens: Tokens(393_216),
            api_keys: Vec::new(),
            origins: Origins::None,
            hosts: Hosts::LoopbackAnd(Vec::new()),
            thinking: ThinkingMode::On,
            effort: None,
            anthropic_thinking: ThinkingMode::Off,
            anthropic_live_args: false,
            effort_compat: false,
            thinking_sampling: ThinkingSampling::Asked,
            reasoning_replay: ReasoningReplay::Keep,
            reminder_after: Some(Bytes(98_304)),
            resample_slips: false,
            remembered_calls: REMEMBERED_CALLS_MAX,
            keep_turns: KeepTurns::default(),
            clients_max: limits::CLIENTS_MAX,
            bodies_max: Bytes(limits::BODIES_MAX),
            wrap_completions: false,
        }
    }
}

impl Settings {
    /// The memory that remembered calls, and reasoning, may take.
    pub(crate) fn remembered_bytes(&self) -> usize {
        if self.remembered_calls == 0 { 0 } else { REMEMBERED_BYTES_MAX }
    }
}
