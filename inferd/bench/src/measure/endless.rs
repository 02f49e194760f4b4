//! A protocol whose answers do not end by themselves: a measurement needs as many tokens as it asks for.

use ds4_model::{
    AnswerMemory, AnswerReader, CallSyntax, Channel, Conversation, Prompt, PromptCodec, PromptError, ThinkingMode,
};
use ds4_units::TokenId;
use std::sync::Arc;

/// The same protocol without tokens that end an answer.
pub(crate) struct Endless(pub(crate) Arc<dyn PromptCodec>);

impl PromptCodec for Endless {
    fn renderer_version(&self) -> &str {
        self.0.renderer_version()
    }

    fn render(&self, conversation: &Conversation, memory: &AnswerMemory) -> Result<Prompt, PromptError> {
        self.0.render(conversation, memory)
    }

    fn render_raw(&self, text: &str) -> Prompt {
        self.0.render_raw(text)
    }

    fn stop_tokens(&self) -> &[TokenId] {
        &[]
    }

    fn call_syntax(&self) -> Option<&CallSyntax> {
        self.0.call_syntax()
    }

    fn first_channel(&self, prompt: &Prompt) -> Channel {
        self.0.first_channel(prompt)
    }

    fn read_answer(
        &self,
        prompt: &Prompt,
        conversation: &Conversation,
        memory: &Arc<AnswerMemory>,
    ) -> Box<dyn AnswerReader> {
        self.0.read_answer(prompt, conversation, memory)
    }

    fn read_raw(&self) -> Box<dyn AnswerReader> {
        self.0.read_raw()
    }

    fn thinking_by_model_name(&self, name: &str) -> Option<ThinkingMode> {
        self.0.thinking_by_model_name(name)
    }

    fn model_aliases(&self) -> &[&str] {
        self.0.model_aliases()
    }
}
