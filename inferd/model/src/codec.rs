//! A model family's prompt protocol: conversations in, prompts out; generated tokens in, events out.

use crate::{Conversation, Prompt, ThinkingMode};
use ds4_units::TokenId;

/// The prompt protocol of one model family. Request handlers share one; no call blocks on anything but the CPU.
pub trait PromptCodec: Send + Sync {
    /// Names the rendering rules. Part of every key under which rendered conversations are stored: rendering never
    /// changes under one name.
    fn renderer_version(&self) -> &str;

    /// Renders a conversation up to the point where the model speaks. Text of messages stays text: it never becomes a
    /// control token, however it is spelled.
    fn render(&self, conversation: &Conversation) -> Result<Prompt, PromptError>;

    /// A prompt of plain text, outside any conversation.
    fn render_raw(&self, text: &str) -> Prompt;

    /// Tokens that end an answer. They are not part of it.
    fn stop_tokens(&self) -> &[TokenId];

    /// The channel an answer to `prompt` begins in.
    fn first_channel(&self, prompt: &Prompt) -> Channel;

    /// Reads the answer to `prompt` as it is generated.
    fn read_answer(&self, prompt: &Prompt) -> Box<dyn AnswerReader>;

    /// What asking for a model by this name says about reasoning, where clients have learned that it does.
    fn thinking_by_model_name(&self, _name: &str) -> Option<ThinkingMode> {
        None
    }

    /// Other names by which clients know the models of this family.
    fn model_aliases(&self) -> &[&str] {
        &[]
    }
}

/// What a part of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Reasoning, shown apart from the answer or not at all.
    Reasoning,
    /// The answer's text.
    Content,
}

/// Turns the tokens of one answer into events, in order. Concatenated texts do not depend on how tokens are grouped
/// into calls, and no event ends inside a character.
pub trait AnswerReader: Send {
    /// Takes the next generated token (not a stop token) and appends what it completes to `events`.
    fn push(&mut self, token: TokenId, events: &mut Vec<AnswerEvent>);

    /// Ends the answer: whatever was held back is appended to `events`.
    fn finish(&mut self, events: &mut Vec<AnswerEvent>) -> AnswerEnd;
}

/// A part of an answer. Kinds other than text (tool calls) join here when a reader yields them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnswerEvent {
    /// Text of one channel; never empty.
    Text {
        /// Where the text belongs.
        channel: Channel,
        /// The text.
        text: String,
    },
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerEnd {
    /// The model was still reasoning: the answer has no content and counts as cut off.
    pub reasoning_open: bool,
}

/// Why a conversation cannot be rendered.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PromptError {
    #[error("the conversation has no messages")]
    NoMessages,
    #[error("an answer can only be continued when the last message is an assistant message")]
    PrefillWithoutAssistant,
}
