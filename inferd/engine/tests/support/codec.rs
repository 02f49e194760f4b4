//! A prompt protocol of the plainest kind, which remembers what it was asked to render.

use super::vocabulary::{ASSISTANT, BOS, EOS, THINK, THINK_END, USER};
use ds4_model::{
    AnswerEnd, AnswerEvent, AnswerMemory, AnswerPosition, AnswerReader, AnswerSummary, Channel, Conversation,
    Detokenizer, Ending, Message, Piece, Prompt, PromptCodec, PromptError, ThinkingMode, Tokenizer,
};
use ds4_units::TokenId;
use std::sync::{Arc, Mutex};

pub struct PlainCodec {
    tokenizer: Arc<Tokenizer>,
    pub rendered: Mutex<Vec<Conversation>>,
}

impl PlainCodec {
    pub fn new(tokenizer: Arc<Tokenizer>) -> PlainCodec {
        PlainCodec { tokenizer, rendered: Mutex::default() }
    }
}

impl PromptCodec for PlainCodec {
    fn renderer_version(&self) -> &str {
        "plain-1"
    }

    fn render(&self, conversation: &Conversation, _memory: &AnswerMemory) -> Result<Prompt, PromptError> {
        self.rendered.lock().unwrap().push(conversation.clone());
        let mut prompt = Prompt::new();
        prompt.push_control(BOS);
        let last = conversation.messages.len().checked_sub(1).ok_or(PromptError::NoMessages)?;
        for (index, message) in conversation.messages.iter().enumerate() {
            match message {
                Message::System(system) | Message::Developer(system) => prompt.push_text(system.text.as_str()),
                Message::User(user) => {
                    prompt.push_control(USER);
                    prompt.push_text(user.text.as_str());
                }
                Message::ToolResult(result) => {
                    prompt.push_control(USER);
                    prompt.push_text(result.text.as_str());
                }
                Message::Assistant(assistant) => {
                    prompt.push_control(ASSISTANT);
                    prompt.push_control(THINK_END);
                    prompt.push_text(assistant.content.as_str());
                    if index != last || !conversation.prefill {
                        prompt.push_control(EOS);
                    }
                }
                Message::LatestReminder(text) => prompt.push_text(text.as_str()),
            }
        }
        if !conversation.prefill {
            prompt.push_control(ASSISTANT);
            prompt.push_control(if conversation.thinking == ThinkingMode::On { THINK } else { THINK_END });
        }
        Ok(prompt)
    }

    fn render_raw(&self, text: &str) -> Prompt {
        let mut prompt = Prompt::new();
        prompt.push_control(BOS);
        prompt.push_text(text);
        prompt
    }

    fn stop_tokens(&self) -> &[TokenId] {
        &[EOS]
    }

    fn first_channel(&self, prompt: &Prompt) -> Channel {
        match prompt.pieces().last() {
            Some(Piece::Control(token)) if *token == THINK => Channel::Reasoning,
            _ => Channel::Content,
        }
    }

    fn read_answer(&self, prompt: &Prompt, _: &Conversation, _: &Arc<AnswerMemory>) -> Box<dyn AnswerReader> {
        Box::new(PlainReader {
            channel: self.first_channel(prompt),
            text: Detokenizer::new(self.tokenizer.clone()),
            unseen: 0,
        })
    }

    fn read_raw(&self) -> Box<dyn AnswerReader> {
        Box::new(PlainReader { channel: Channel::Content, text: Detokenizer::new(self.tokenizer.clone()), unseen: 0 })
    }

    fn thinking_by_model_name(&self, name: &str) -> Option<ThinkingMode> {
        match name {
            "plain-fast" => Some(ThinkingMode::Off),
            "plain-thinker" => Some(ThinkingMode::On),
            _ => None,
        }
    }

    fn model_aliases(&self) -> &[&str] {
        &["plain"]
    }
}

struct PlainReader {
    channel: Channel,
    text: Detokenizer,
    /// Tokens that no event has accounted for.
    unseen: usize,
}

impl PlainReader {
    fn emit(&mut self, text: String, events: &mut Vec<AnswerEvent>) {
        if !text.is_empty() {
            let tokens = std::mem::take(&mut self.unseen);
            events.push(AnswerEvent::Text { channel: self.channel, text, tokens });
        }
    }
}

impl AnswerReader for PlainReader {
    fn push(&mut self, token: TokenId, events: &mut Vec<AnswerEvent>) {
        let text = self.text.push(token);
        self.unseen += 1;
        self.emit(text, events);
        if token == THINK_END {
            self.channel = Channel::Content;
        }
    }

    fn position(&self) -> AnswerPosition {
        match self.channel {
            Channel::Reasoning => AnswerPosition::Reasoning,
            Channel::Content => AnswerPosition::Content,
        }
    }

    fn finish(&mut self, _: Ending, events: &mut Vec<AnswerEvent>) -> AnswerEnd {
        let text = self.text.finish();
        self.emit(text, events);
        AnswerEnd::Done(AnswerSummary { reasoning_open: self.channel == Channel::Reasoning, ..Default::default() })
    }
}
