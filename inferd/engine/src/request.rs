//! What a request brings to the engine, and why the door may be closed.

use crate::Sampling;
use ds4_model::{AnswerReader, PromptRecord, TokenConstraint};
use ds4_units::{Bytes, Tokens};

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
