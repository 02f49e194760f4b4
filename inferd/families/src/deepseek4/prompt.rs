//! The prompt protocol of DeepSeek V4, after the model's reference encoder.
//!
//! `render.rs` prints conversations, `turns.rs` says what a turn is, `answer.rs` reads what the model generates,
//! `dsml.rs` is the markup of tool calls in both directions, `wording.rs` holds every fixed text and `markers.rs` the
//! control tokens.

mod answer;
mod dsml;
mod markers;
mod render;
mod turns;
mod wording;

use ds4_model::{
    AnswerMemory, AnswerReader, CallSyntax, Channel, Conversation, FamilyError, Message, Piece, Prompt, PromptCodec,
    PromptError, ThinkingMode, Tokenizer, TokenizerError,
};
use ds4_units::TokenId;
use markers::Markers;
use std::sync::Arc;

/// Which release of the model the wording follows. Files do not state it; the first release is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptProfile {
    /// The first release: only `max` effort has a preamble, and a trailing system message opens no answer.
    #[default]
    Release,
    /// The later releases: `high` and `max` have preambles, and a system message before an answer opens it.
    Revised,
}

impl PromptProfile {
    /// The profile of this name, or the default one when none is named.
    pub fn from_name(name: Option<&str>) -> Result<PromptProfile, FamilyError> {
        match name {
            None => Ok(PromptProfile::default()),
            Some("release") => Ok(PromptProfile::Release),
            Some("revised") => Ok(PromptProfile::Revised),
            Some(other) => {
                Err(FamilyError::UnknownPromptProfile { found: other.to_owned(), known: "release, revised".to_owned() })
            }
        }
    }

    /// The rendering rules' name. The number changes whenever a rendered byte does.
    fn renderer_version(self) -> &'static str {
        match self {
            PromptProfile::Release => "deepseek4-release-1",
            PromptProfile::Revised => "deepseek4-revised-1",
        }
    }
}

/// The prompt codec of the family.
pub struct DeepSeek4Codec {
    protocol: Arc<Protocol>,
    stop_tokens: [TokenId; 1],
}

/// What rendering and reading need.
struct Protocol {
    tokenizer: Arc<Tokenizer>,
    profile: PromptProfile,
    markers: Markers,
    /// The tools text up to the schemas.
    tools_head: Prompt,
}

impl DeepSeek4Codec {
    /// A codec over the file's own vocabulary, which must have the protocol's control tokens.
    pub fn new(tokenizer: Arc<Tokenizer>, profile: PromptProfile) -> Result<DeepSeek4Codec, TokenizerError> {
        let markers = Markers::find(&tokenizer)?;
        let tools_head = tokenizer.parse_trusted(wording::TOOLS_HEAD);
        let stop_tokens = [markers.end_of_sentence];
        Ok(DeepSeek4Codec { protocol: Arc::new(Protocol { tokenizer, profile, markers, tools_head }), stop_tokens })
    }
}

impl PromptCodec for DeepSeek4Codec {
    fn renderer_version(&self) -> &str {
        self.protocol.profile.renderer_version()
    }

    fn render(&self, conversation: &Conversation, memory: &AnswerMemory) -> Result<Prompt, PromptError> {
        let last = conversation.messages.last().ok_or(PromptError::NoMessages)?;
        if conversation.prefill && !matches!(last, Message::Assistant(_)) {
            return Err(PromptError::PrefillWithoutAssistant);
        }
        Ok(render::render(&self.protocol, conversation, memory))
    }

    fn render_raw(&self, text: &str) -> Prompt {
        let mut prompt = Prompt::new();
        prompt.push_control(self.protocol.markers.begin_of_sentence);
        prompt.push_text(text);
        prompt
    }

    fn stop_tokens(&self) -> &[TokenId] {
        &self.stop_tokens
    }

    fn call_syntax(&self) -> Option<&CallSyntax> {
        Some(&wording::CALL_SYNTAX)
    }

    fn first_channel(&self, prompt: &Prompt) -> Channel {
        match prompt.pieces().last() {
            Some(Piece::Control(token)) if *token == self.protocol.markers.think => Channel::Reasoning,
            _ => Channel::Content,
        }
    }

    fn read_answer(
        &self,
        prompt: &Prompt,
        conversation: &Conversation,
        memory: &Arc<AnswerMemory>,
    ) -> Box<dyn AnswerReader> {
        let opens = self.first_channel(prompt);
        Box::new(answer::Reader::new(self.protocol.clone(), opens, conversation, memory))
    }

    fn read_raw(&self) -> Box<dyn AnswerReader> {
        Box::new(answer::Reader::raw(self.protocol.clone()))
    }

    fn thinking_by_model_name(&self, name: &str) -> Option<ThinkingMode> {
        match name {
            "deepseek-chat" => Some(ThinkingMode::Off),
            "deepseek-reasoner" => Some(ThinkingMode::On),
            _ => None,
        }
    }

    fn model_aliases(&self) -> &[&str] {
        &["deepseek-v4-flash", "deepseek-v4-pro"]
    }
}

#[cfg(test)]
mod tests;
