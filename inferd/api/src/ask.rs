//! A generating request as every surface states it.

use crate::Settings;
use crate::continuation::{Continuations, Kept};
use crate::phase::Serving;
use crate::settings::ReasoningReplay;
use crate::structured::GrammarCell;
use crate::thinking::Wanted;
use crate::transcript::Transcript;
use ds4_engine::Sampling;
use ds4_model::{AnswerMemory, Conversation, PastReasoning, ThinkingMode, TokenConstraint, ToolUse};
use ds4_units::{TokenId, Tokens};
use std::sync::Arc;

/// What the model is to go on from.
pub(crate) enum Wording {
    /// Messages, rendered by the model's protocol.
    Conversation(Conversation),
    /// Text as it is.
    Raw(String),
    /// Tokens as they are.
    Tokens(Vec<TokenId>),
}

/// A request with nothing left open but how its reply is spelled.
pub(crate) struct Ask {
    pub(crate) wording: Wording,
    pub(crate) sampling: Sampling,
    pub(crate) stop: Vec<String>,
    pub(crate) max_tokens: Tokens,
    pub(crate) stream: bool,
    /// Log-probabilities of so many likeliest tokens at every position of the answer.
    pub(crate) top_logprobs: Option<usize>,
    /// The same for the prompt's own tokens.
    pub(crate) prompt_logprobs: bool,
    /// Which tokens the answer may consist of.
    pub(crate) constraints: Vec<Box<dyn TokenConstraint>>,
    /// What a follow-up may go on from, once the answer is there.
    pub(crate) kept: Option<Kept>,
}

/// What a surface may look at while it reads a body.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) serving: &'a Serving,
    pub(crate) settings: &'a Settings,
    /// What earlier answers said, exactly.
    pub(crate) memory: &'a Arc<AnswerMemory>,
    /// What holds answers to a schema.
    pub(crate) grammars: &'a GrammarCell,
    /// Turns that a request may go on from.
    pub(crate) continuations: &'a Continuations,
    /// The prompt is only counted or shown.
    pub(crate) counting: bool,
}

impl Reading<'_> {
    /// A conversation as the codec takes it. With calls in it, every answer keeps its reasoning, as the protocol does
    /// where tools are offered.
    pub(crate) fn conversation(&self, transcript: &Transcript, wanted: Wanted, tools: ToolUse) -> Conversation {
        Conversation {
            messages: transcript.messages(),
            thinking: wanted.thinking,
            effort: wanted.effort,
            past_reasoning: match self.settings.reasoning_replay {
                ReasoningReplay::Drop => PastReasoning::Never,
                ReasoningReplay::Keep if transcript.has_calls() => PastReasoning::Keep,
                ReasoningReplay::Keep => PastReasoning::Drop,
            },
            tools,
            reminder_after: self.settings.reminder_after,
            prefill: transcript.ends_open(),
        }
    }

    /// What the name of the requested model says about reasoning.
    pub(crate) fn thinking_by_name(&self, asked: Option<&str>) -> Option<ThinkingMode> {
        asked.and_then(|name| self.serving.codec.thinking_by_model_name(name))
    }

    /// The name a reply repeats: the request's own, whatever it was.
    pub(crate) fn model_name(&self, asked: Option<&str>) -> String {
        asked.unwrap_or(&self.serving.model_id).to_owned()
    }
}
