//! What a request hears back: a start, text in order, then exactly one end.

use ds4_governor::Refusal;
use ds4_model::{AnswerSummary, CallEvent, Channel, ConstraintFault};
use ds4_units::{TokenId, Tokens};
use std::time::Duration;

/// How a request's bank came by its first tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReuseKind {
    /// From nothing.
    Cold,
    /// A finished conversation went on where it had ended.
    Exact,
    /// A finished conversation was cut back and went on from there.
    Partial,
    /// The beginning of another conversation was copied.
    Fork,
    /// A conversation was restored from disk.
    Disk,
    /// The memory of a killed worker's conversation was taken over.
    Adopted,
}

impl ReuseKind {
    /// All of them.
    pub const ALL: [ReuseKind; 6] =
        [ReuseKind::Cold, ReuseKind::Exact, ReuseKind::Partial, ReuseKind::Fork, ReuseKind::Disk, ReuseKind::Adopted];

    /// The published spelling, as `timings.reuse_kind` has it.
    pub const fn name(self) -> &'static str {
        match self {
            ReuseKind::Cold => "cold",
            ReuseKind::Exact => "exact",
            ReuseKind::Partial => "partial",
            ReuseKind::Fork => "fork",
            ReuseKind::Disk => "disk",
            ReuseKind::Adopted => "adopted",
        }
    }
}

/// A request has its bank and begins to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// Tokens of the prompt.
    pub prompt_tokens: Tokens,
    /// Of these, tokens that need no computing.
    pub cached_tokens: Tokens,
    /// Where they came from.
    pub reuse: ReuseKind,
}

/// Text that became certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Where it belongs.
    pub channel: Channel,
    /// Whole characters.
    pub text: String,
    /// The tokens it decodes from. The one case without: the beginning of a token that a stop string cut.
    pub token_ids: Vec<TokenId>,
}

/// A part of a tool call that became certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallDelta {
    /// The part.
    pub event: CallEvent,
    /// The tokens it was read from, those of the markup around it included.
    pub token_ids: Vec<TokenId>,
}

/// One token with the natural logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logprob {
    /// The token.
    pub token: TokenId,
    /// Before temperature and filters.
    pub logprob: f32,
}

/// What was likely at one position.
#[derive(Clone, Debug, PartialEq)]
pub struct PositionLogprobs {
    /// What was drawn, a stop token included.
    pub drawn: Logprob,
    /// The likeliest, in order; ties by id.
    pub top: Vec<Logprob>,
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it.
    EndOfTurn,
    /// A stop string of the request was found.
    StopString(String),
    /// The answer ends with complete tool calls.
    ToolCalls,
    /// The token budget or the context is used up, or the model ended while still reasoning.
    Length,
}

/// Token counts of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: Tokens,
    /// Of these, tokens that needed no computing.
    pub cached_tokens: Tokens,
    /// Tokens drawn, the stop token left out.
    pub completion_tokens: Tokens,
    /// Of these, tokens of reasoning.
    pub reasoning_tokens: Tokens,
}

/// Where the time of a request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// From submission to a bank.
    pub queued: Duration,
    /// From the bank to the logits of the last prompt token.
    pub prefill: Duration,
    /// From submission to the first drawn token; `None` when none was drawn.
    pub first_token: Option<Duration>,
    /// From the first drawn token to the last.
    pub decode: Duration,
    /// How the bank came by its first tokens.
    pub reuse: ReuseKind,
    /// Guesses at this answer that were computed.
    pub guesses: u32,
    /// Of these, the ones that were right: tokens that took no step of their own.
    pub guesses_right: u32,
}

impl Timings {
    /// Computed prompt tokens a second; `None` when nothing was computed or no time passed.
    pub fn prefill_rate(&self, usage: &Usage) -> Option<f64> {
        rate(usage.prompt_tokens.0 - usage.cached_tokens.0, self.prefill)
    }

    /// Drawn tokens for each step that drew any; `None` where nothing was guessed.
    pub fn tokens_per_step(&self, usage: &Usage) -> Option<f64> {
        let drawn = usage.completion_tokens.0;
        let steps = drawn.saturating_sub(self.guesses_right).max(1);
        (self.guesses > 0 && drawn > 0).then(|| f64::from(drawn) / f64::from(steps))
    }

    /// Drawn tokens a second after the first; `None` with fewer than two.
    pub fn decode_rate(&self, usage: &Usage) -> Option<f64> {
        rate(usage.completion_tokens.0.saturating_sub(1), self.decode)
    }
}

fn rate(tokens: u32, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| f64::from(tokens) / time.as_secs_f64())
}

/// The end of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Why.
    pub reason: FinishReason,
    /// What was read: calls, and whether they were sound.
    pub answer: AnswerSummary,
    /// Token counts.
    pub usage: Usage,
    /// Where the time went.
    pub timings: Timings,
}

/// Why a request ended without an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum RequestFault {
    #[error("the reader left {unread} events unread and was dropped")]
    SlowReader { unread: usize },
    #[error("the model could not compute this request: {0}")]
    Step(String),
    #[error(transparent)]
    Constraint(#[from] ConstraintFault),
    #[error(transparent)]
    Memory(#[from] Refusal),
    /// `wait` is how long another try would take, by how long those before it did.
    #[error("the request waited for {} s", .limit.as_secs())]
    QueuedTooLong { limit: Duration, wait: Option<Duration> },
    #[error("the engine stopped")]
    EngineStopped,
}

/// One thing a request hears. `Finished` and `Failed` are last, and one of them always comes.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The request has its bank.
    Started(Started),
    /// So many prompt tokens are in the bank, of so many. Left out when the reader is behind.
    Prefill {
        /// In the bank, cached ones included.
        done: Tokens,
        /// In the prompt.
        total: Tokens,
    },
    /// What was likely where the prompt has its next tokens, from its second token on, in order; only for requests that
    /// ask. One event for every step that computes some of them.
    PromptLogprobs(Vec<PositionLogprobs>),
    /// What was likely at a position; only for requests that ask. Comes before the text of its token.
    Logprobs(PositionLogprobs),
    /// Text.
    Delta(Delta),
    /// A part of a tool call.
    Call(CallDelta),
    /// The calls were malformed, none was shown, and the model answers once more. A reader that has shown nothing yet
    /// forgets what it heard.
    Retrying,
    /// The answer is complete.
    Finished(Finished),
    /// There will be no (more) answer.
    Failed(RequestFault),
}

impl Event {
    /// Bytes of text, tokens and log-probabilities in it. Ends have none that count: there is one for each request.
    pub(crate) fn weight(&self) -> usize {
        let positions = |positions: &[PositionLogprobs]| -> usize {
            positions.iter().map(|position| size_of::<Logprob>() * (1 + position.top.len())).sum()
        };
        match self {
            Event::PromptLogprobs(all) => positions(all),
            Event::Logprobs(position) => positions(std::slice::from_ref(position)),
            Event::Delta(delta) => delta.text.len() + size_of_val(&delta.token_ids[..]),
            Event::Call(call) => {
                let text = match &call.event {
                    CallEvent::Start { name, .. } => name.len(),
                    CallEvent::Arguments { json, .. } => json.len(),
                    CallEvent::End { .. } => 0,
                };
                text + size_of_val(&call.token_ids[..])
            }
            Event::Started(_) | Event::Prefill { .. } | Event::Retrying | Event::Finished(_) | Event::Failed(_) => 0,
        }
    }
}
