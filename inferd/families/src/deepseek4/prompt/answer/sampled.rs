//! Remembering an answer as it was sampled.

use super::surface::{State, Surface};
use crate::deepseek4::prompt::dsml::BlockCall;
use ds4_model::{
    AnswerMemory, AssistantMessage, Conversation, Message, PastReasoning, Prompt, PromptText, SampledCalls,
    SampledPart, ToolOutcome, VisibleKey,
};
use ds4_units::TokenId;
use std::sync::Arc;

/// What is needed to remember the answer to one conversation.
pub(super) struct Sampled {
    memory: Option<Arc<AnswerMemory>>,
    /// The conversation that is answered, when later prompts will want the answer's reasoning.
    conversation: Option<VisibleKey>,
    /// Where in the answer's text control tokens are spelled out.
    controls: Vec<Spelled>,
}

/// A control token in the answer's text.
struct Spelled {
    at: usize,
    len: usize,
    token: TokenId,
}

impl Sampled {
    pub(super) fn new(conversation: &Conversation, memory: &Arc<AnswerMemory>) -> Sampled {
        let keeps_reasoning = match conversation.past_reasoning {
            PastReasoning::Keep => true,
            PastReasoning::Drop => !conversation.tools.schemas.is_empty(),
            PastReasoning::Never => false,
        };
        // An answer that goes on from its beginning is another message for the client than for us.
        let keeps_reasoning = keeps_reasoning && !conversation.prefill;
        Sampled {
            memory: Some(memory.clone()),
            conversation: keeps_reasoning.then(|| VisibleKey::of(&conversation.messages)),
            controls: Vec::new(),
        }
    }

    /// Remembers nothing.
    pub(super) fn nothing() -> Sampled {
        Sampled { memory: None, conversation: None, controls: Vec::new() }
    }

    /// A control token is spelled out in the next `len` bytes of the answer's text.
    pub(super) fn note_control(&mut self, at: usize, len: usize, token: TokenId) {
        self.controls.push(Spelled { at, len, token });
    }

    pub(super) fn forget(&mut self) {
        self.controls.clear();
    }

    /// Remembers what the surface read, now that the answer is over, and returns it.
    pub(super) fn remember(&mut self, surface: &Surface, retried: bool) -> Vec<SampledPart> {
        let mut parts = Vec::new();
        let Some(memory) = &self.memory else { return parts };
        let calls: Vec<_> = surface.shown_calls.iter().map(BlockCall::to_tool_call).collect();
        if surface.outcome == Some(ToolOutcome::Ok)
            && let State::Calls(block) = &surface.state
        {
            let sampled = SampledCalls { block: self.pieces(&block.raw, block.start), calls: calls.clone() };
            parts.push(SampledPart::Calls(Arc::new(sampled)));
        }
        if let Some(mut key) = self.conversation
            && !surface.reasoning.is_empty()
            && !matches!(surface.state, State::Reasoning(_))
            && !retried
        {
            key.push(&Message::Assistant(AssistantMessage {
                reasoning: PromptText::default(),
                content: PromptText::new(surface.content.clone()),
                tool_calls: calls,
            }));
            parts.push(SampledPart::Reasoning(key, PromptText::new(surface.reasoning.clone())));
        }
        parts.iter().for_each(|part| memory.remember(part.clone()));
        parts
    }

    /// Text that begins at `start` of the answer's text, with control tokens where they were generated.
    fn pieces(&self, raw: &str, start: usize) -> Prompt {
        let mut prompt = Prompt::new();
        let mut at = 0;
        for control in &self.controls {
            let Some(position) = control.at.checked_sub(start) else { continue };
            prompt.push_text(raw.get(at..position).unwrap_or_default());
            prompt.push_control(control.token);
            at = position + control.len;
        }
        prompt.push_text(raw.get(at..).unwrap_or_default());
        prompt
    }
}
