//! Remembering an answer as it was sampled.

use super::surface::{State, Surface};
use crate::deepseek4::prompt::dsml::BlockCall;
use ds4_model::{
    AnswerMemory, AssistantMessage, Conversation, Message, PastReasoning, Prompt, PromptText, SampledCalls,
    ToolOutcome, VisibleKey,
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

    /// Remembers what the surface read, now that the answer is over.
    pub(super) fn remember(&mut self, surface: &Surface, retried: bool) {
        let Some(memory) = &self.memory else { return };
        let ids: Vec<_> = surface.shown_calls.iter().map(|call| call.id).collect();
        let calls: Vec<_> = surface.shown_calls.iter().map(BlockCall::to_tool_call).collect();
        if surface.outcome == Some(ToolOutcome::Ok)
            && let State::Calls(block) = &surface.state
        {
            let sampled = SampledCalls { block: self.pieces(&block.raw, block.start), calls: calls.clone() };
            memory.remember_calls(&ids, sampled);
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
            memory.remember_reasoning(key, PromptText::new(surface.reasoning.clone()));
        }
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
