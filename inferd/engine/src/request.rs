//! What a request brings to the engine, and why the door may be closed.

use crate::Sampling;
use ds4_model::{AnswerReader, PromptRecord, TokenConstraint};
use ds4_units::{Bytes, Tokens};
use std::time::Duration;

/// Hears of a time. Called on the engine's thread: it is quick and blocks nowhere.
pub type Hear = Box<dyn Fn(Duration) + Send>;

/// A request, checked and tokenised: everything the engine thread needs and nothing it would have to wait for.
pub struct GenerateRequest {
    /// The prompt's pieces and tokens.
    pub prompt: PromptRecord,
    /// Reads the answer; fresh, from the prompt codec.
    pub reader: Box<dyn AnswerReader>,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Texts that end the answer; they are not part of it.
    pub stop: Vec<String>,
    /// Tokens to draw at most. 0 fills the bank and draws none. What does not fit the context is cut off.
    pub max_tokens: Tokens,
    /// Hold parts of the answer to grammars, at most one for each part.
    pub constraints: Vec<Box<dyn TokenConstraint>>,
    /// Log-probabilities of so many likeliest tokens at every position, when asked for.
    pub top_logprobs: Option<usize>,
    /// The same for the prompt's own tokens. Nothing of the prompt is taken from a bank then: what was computed before
    /// left no logits.
    pub prompt_logprobs: bool,
    /// Hears how long after the one before it each token of the answer was there, from the second on. Tokens that one step
    /// gives together are no time apart.
    pub gaps: Option<Hear>,
    /// What its bank is worth once the answer is there.
    pub keep: Keep,
}

/// What a request's bank is worth once its answer is there, and so whether another conversation may lose its bank to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Its next turn may come: it is kept, and the least recently used conversation makes way where it must.
    #[default]
    Turn,
    /// It is kept where that costs no other conversation its bank.
    IfFree,
    /// Nobody goes on from it: it is not kept. It runs beside the kept conversations, from a copy of what one of them
    /// begins with; one is given up for it only where memory would never carry it otherwise.
    Nothing,
}

/// Why a request was not taken. Decided at once, before any computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Refused {
    #[error("{limit} requests are waiting already")]
    QueueFull { limit: usize },
    #[error("the prompts that wait already take {limit}")]
    QueueBytesFull { limit: Bytes },
    #[error("the prompt is empty")]
    EmptyPrompt,
    #[error("the prompt has {} tokens, the context {}", .prompt.0, .context.0)]
    PromptTooLong { prompt: Tokens, context: Tokens },
    #[error("the engine stopped")]
    Stopped,
}
