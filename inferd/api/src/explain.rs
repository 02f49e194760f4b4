//! What a request's prompt is and which part of the request each byte of it comes from, without a server.

use crate::ask::{Reading, Wording};
use crate::body::JsonBody;
use crate::continuation::Continuations;
use crate::phase::Serving;
use crate::structured::GrammarCell;
use crate::surface::Surface;
use crate::{ApiError, KeepTurns, Machine, Settings, chat, completions, generate, messages, responses};
use ds4_engine::EngineHandle;
use ds4_model::{
    AnswerMemory, AssistantMessage, Conversation, Instructions, Message, ModelInfo, Piece, Prompt, PromptCodec,
    PromptRecord, PromptText, ThinkingMode, Tokenizer, ToolResult, UserMessage,
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
    /// Where each part's bytes begin, in order, and what it is.
    pub parts: Vec<(usize, String)>,
}

impl Explained {
    /// What the byte at `position` belongs to.
    pub fn part_at(&self, position: usize) -> &str {
        let part = self.parts.iter().rev().find(|(start, _)| *start <= position);
        part.map_or("what comes before message 1: tools, effort, the format of answers", |(_, part)| part)
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
        let serving = Serving { model_id: String::new(), engine, tokenizer, codec, machine: Machine::default() };
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
        let parts = match &wording {
            Wording::Conversation(conversation) => self.parts(conversation, &text),
            Wording::Raw(_) | Wording::Tokens(_) => vec![(0, S::PROMPT_FIELD.to_owned())],
        };
        Ok(Explained { record: prompt.record, text, parts })
    }

    /// Where the prompt begins to differ when one of its messages says something else.
    fn parts(&self, conversation: &Conversation, text: &[u8]) -> Vec<(usize, String)> {
        let begins = |index: usize, other: Message| {
            let mut changed = conversation.clone();
            changed.messages[index] = other;
            let prompt = self.serving.codec.render(&changed, &self.memory).ok()?;
            Some(self.spelled(&prompt).iter().zip(text).take_while(|(a, b)| a == b).count())
        };
        let mut parts: Vec<(usize, String)> = Vec::new();
        let mut push = |start: Option<usize>, name: String| {
            let least = parts.last().map_or(0, |(start, _)| *start);
            parts.extend(start.map(|start| (start.max(least), name)));
        };
        for (index, message) in conversation.messages.iter().enumerate() {
            push(begins(index, another(message)), format!("message {} ({})", index + 1, role(message)));
        }
        if let Some((index, last)) = conversation.messages.iter().enumerate().next_back() {
            push(begins(index, longer(last)), opening(conversation));
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

/// What no message says.
const OTHER: &str = "\u{1}";

/// A message of the same role that differs from its first byte on.
fn another(message: &Message) -> Message {
    let text = || PromptText::new(OTHER);
    match message.clone() {
        Message::System(body) => Message::System(Instructions { text: text(), ..body }),
        Message::Developer(body) => Message::Developer(Instructions { text: text(), ..body }),
        Message::User(user) => Message::User(UserMessage { text: text(), ..user }),
        Message::Assistant(_) => {
            let answer = AssistantMessage { reasoning: text(), content: text(), tool_calls: Vec::new() };
            Message::Assistant(answer)
        }
        Message::ToolResult(result) => Message::ToolResult(ToolResult { text: text(), ..result }),
        Message::LatestReminder(_) => Message::LatestReminder(text()),
    }
}

/// The message, and something after it.
fn longer(message: &Message) -> Message {
    let more = |text: &PromptText| PromptText::new(format!("{}{OTHER}", text.as_str()));
    match message.clone() {
        Message::System(body) => Message::System(Instructions { text: more(&body.text), ..body }),
        Message::Developer(body) => Message::Developer(Instructions { text: more(&body.text), ..body }),
        Message::User(user) => Message::User(UserMessage { text: more(&user.text), ..user }),
        Message::Assistant(answer) => Message::Assistant(AssistantMessage { content: more(&answer.content), ..answer }),
        Message::ToolResult(result) => Message::ToolResult(ToolResult { text: more(&result.text), ..result }),
        Message::LatestReminder(text) => Message::LatestReminder(more(&text)),
    }
}

fn opening(conversation: &Conversation) -> String {
    let reasons = if conversation.thinking == ThinkingMode::On { ", which reasons" } else { "" };
    format!("the opening of the answer{reasons}")
}
