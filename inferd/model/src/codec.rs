//! A model family's prompt protocol: conversations in, prompts out; generated tokens in, events out.

use crate::{AnswerMemory, AnswerReader, CallSyntax, Channel, Conversation, Prompt, ThinkingMode};
use ds4_units::TokenId;
use std::sync::Arc;

/// The prompt protocol of one model family. Request handlers share one; no call blocks on anything but the CPU.
pub trait PromptCodec: Send + Sync {
    /// Names the rendering rules. Part of every key under which rendered conversations are stored: rendering never
    /// changes under one name.
    fn renderer_version(&self) -> &str;

    /// Renders a conversation up to the point where the model speaks. Text of messages stays text: it never becomes a
    /// control token, however it is spelled. Earlier answers that `memory` knows are said exactly as they were sampled.
    fn render(&self, conversation: &Conversation, memory: &AnswerMemory) -> Result<Prompt, PromptError>;

    /// A prompt of plain text, outside any conversation.
    fn render_raw(&self, text: &str) -> Prompt;

    /// Tokens that end an answer. They are not part of it.
    fn stop_tokens(&self) -> &[TokenId];

    /// How a block of tool calls is spelled, where a grammar can hold one to its schemas.
    fn call_syntax(&self) -> Option<&CallSyntax> {
        None
    }

    /// The channel an answer to `prompt` begins in.
    fn first_channel(&self, prompt: &Prompt) -> Channel;

    /// Reads the answer to `prompt`, which is what `conversation` rendered to, as it is generated. What the answer
    /// holds is remembered in `memory` when it ends.
    fn read_answer(
        &self,
        prompt: &Prompt,
        conversation: &Conversation,
        memory: &Arc<AnswerMemory>,
    ) -> Box<dyn AnswerReader>;

    /// Reads what follows a plain text: all of it is content, markup included.
    fn read_raw(&self) -> Box<dyn AnswerReader>;

    /// What asking for a model by this name says about reasoning, where clients have learned that it does.
    fn thinking_by_model_name(&self, _name: &str) -> Option<ThinkingMode> {
        None
    }

    /// Other names by which clients know the models of this family.
    fn model_aliases(&self) -> &[&str] {
        &[]
    }
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
