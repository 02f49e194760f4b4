//! What a request's prompt is and which part of the request each byte of it comes from, without a server.

use crate::ask::{Reading, Wording};
use crate::body::JsonBody;
use crate::continuation::Continuations;
use crate::phase::Serving;
use crate::structured::GrammarCell;
use crate::surface::Surface;
use crate::{ApiError, KeepTurns, Settings, chat, completions, generate, messages, responses};
use ds4_engine::EngineHandle;
use ds4_model::{
    AnswerMemory, Conversation, Message, ModelInfo, Piece, Prompt, PromptCodec, PromptRecord, ThinkingMode, Tokenizer,
};
use serde_json::Value;
use std::sync::Arc;

/// Which surface a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
    /// `/v1/responses`
    Responses,
    /// `/v1/messages`
    Messages,
}

impl RequestKind {
    /// The surface behind a path.
    pub fn of_path(path: &str) -> Option<RequestKind> {
        match path {
            "/v1/chat/completions" => Some(RequestKind::Chat),
            "/v1/completions" => Some(RequestKind::Completions),
            "/v1/responses" => Some(RequestKind::Responses),
            "/v1/messages" => Some(RequestKind::Messages),
            _ => None,
        }
    }

    /// The surface whose fields a body has. Chat and Messages share theirs: instructions beside the messages, or tools
    /// with an `input_schema`, are Messages.
    pub fn of_body(body: &Value) -> RequestKind {
        let has = |field: &str| !body[field].is_null();
        let tools = body["tools"].as_array();
        let has_input_schema = tools.is_some_and(|tools| tools.iter().any(|tool| !tool["input_schema"].is_null()));
        if has("input") {
            RequestKind::Responses
        } else if has("prompt") {
            RequestKind::Completions
        } else if has("system") || has_input_schema {
            RequestKind::Messages
        } else {
            RequestKind::Chat
        }
    }
}

/// A request's prompt.
pub struct Explained {
    /// Pieces and tokens.
    pub record: PromptRecord,
    /// The rendered bytes, control tokens spelled out.
    pub text: Vec<u8>,
    /// Where each part's bytes end, in order, and what it is.
    pub parts: Vec<(usize, String)>,
}

impl Explained {
    /// What the byte at `position` belongs to.
    pub fn part_at(&self, position: usize) -> &str {
        self.parts.iter().find(|(end, _)| *end > position).map_or("the end of the prompt", |(_, part)| part)
    }
}

/// Reads requests as the server would, and computes nothing.
pub struct Explainer {
    serving: Serving,
    settings: Settings,
    memory: Arc<AnswerMemory>,
    grammars: GrammarCell,
    continuations: Continuations,
}

impl Explainer {
    /// For a model of these facts. `memory` is what is known of earlier answers.
    pub fn new(
        info: ModelInfo,
        tokenizer: Arc<Tokenizer>,
        codec: Arc<dyn PromptCodec>,
        settings: Settings,
        memory: Arc<AnswerMemory>,
    ) -> Explainer {
        let engine = EngineHandle::to_nowhere(info);
        let serving = Serving { model_id: String::new(), engine, tokenizer, codec };
        let continuations = Continuations::new(KeepTurns { records: 0, ..KeepTurns::default() });
        Explainer { serving, settings, memory, grammars: GrammarCell::default(), continuations }
    }

    /// Reads and renders a request. Blocks for as long as that takes.
    pub fn explain(&self, kind: RequestKind, body: &[u8]) -> Result<Explained, ApiError> {
        let body = &JsonBody::parse(body)?;
        match kind {
            RequestKind::Chat => self.read::<chat::Chat>(body),
            RequestKind::Completions => self.read::<completions::Completions>(body),
            RequestKind::Responses => self.read::<responses::Responses>(body),
            RequestKind::Messages => self.read::<messages::Messages>(body),
        }
    }

    fn read<S: Surface>(&self, body: &JsonBody) -> Result<Explained, ApiError> {
        let reading = Reading {
            serving: &self.serving,
            settings: &self.settings,
            memory: &self.memory,
            grammars: &self.grammars,
            continuations: &self.continuations,
            counting: true,
        };
        let wording = S::read(body, reading)?.0.wording;
        let prompt = generate::render(reading, &wording, S::PROMPT_FIELD)?;
        let text = self.spelled(&prompt.rendered);
        let mut parts = match &wording {
            Wording::Conversation(conversation) => self.parts(conversation, &text),
            Wording::Raw(_) | Wording::Tokens(_) => Vec::new(),
        };
        let rest = if parts.is_empty() { S::PROMPT_FIELD.to_owned() } else { opening(&wording) };
        parts.push((text.len(), rest));
        Ok(Explained { record: prompt.record, text, parts })
    }

    /// How far the prompt is the same when the conversation ends after each of its messages.
    fn parts(&self, conversation: &Conversation, text: &[u8]) -> Vec<(usize, String)> {
        let mut parts: Vec<(usize, String)> = Vec::new();
        for count in 1..=conversation.messages.len() {
            let shorter = Conversation {
                messages: conversation.messages[..count].to_vec(),
                prefill: conversation.prefill && count == conversation.messages.len(),
                ..conversation.clone()
            };
            let Ok(prompt) = self.serving.codec.render(&shorter, &self.memory) else { continue };
            let same = self.spelled(&prompt).iter().zip(text).take_while(|(a, b)| a == b).count();
            let role = role(&conversation.messages[count - 1]);
            let name = match count {
                1 if conversation.tools.schemas.is_empty() => format!("message 1 ({role}), or what comes before it"),
                1 => format!("message 1 ({role}), or the tools that come before it"),
                _ => format!("message {count} ({role})"),
            };
            parts.push((same.max(parts.last().map_or(0, |(end, _)| *end)), name));
        }
        parts
    }

    fn spelled(&self, prompt: &Prompt) -> Vec<u8> {
        let mut text = Vec::new();
        for piece in prompt.pieces() {
            match piece {
                Piece::Control(token) => text.extend(self.serving.tokenizer.token_bytes(*token).unwrap_or_default()),
                Piece::Text(piece) => text.extend(piece.as_str().as_bytes()),
            }
        }
        text
    }
}

fn role(message: &Message) -> &'static str {
    match message {
        Message::System(_) => "system",
        Message::Developer(_) => "developer",
        Message::User(_) => "user",
        Message::Assistant(_) => "assistant",
        Message::ToolResult(_) => "tool result",
        Message::LatestReminder(_) => "reminder",
    }
}

fn opening(wording: &Wording) -> String {
    match wording {
        Wording::Conversation(conversation) if conversation.thinking == ThinkingMode::On => {
            "the opening of the answer, which reasons".into()
        }
        _ => "the opening of the answer".into(),
    }
}
