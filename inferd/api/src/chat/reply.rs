//! Replies and their chunks, as the OpenAI chat protocol spells them.

use crate::error::json_response;
use crate::generate::RequestLog;
use crate::{ApiError, usage};
use axum::response::Response;
use ds4_engine::{Channel, Delta, Event, EventStream, FinishReason, Finished, RequestFault};
use http::StatusCode;
use serde_json::{Map, Value, json};

/// What all chunks of one reply share.
pub(super) struct Replier {
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: String,
    /// The client wants the tokens beside the text.
    pub(super) token_ids: bool,
}

/// An answer as it grows.
#[derive(Default)]
struct Answer {
    reasoning: String,
    content: String,
    token_ids: Vec<u32>,
}

impl Answer {
    fn push(&mut self, delta: &Delta) {
        match delta.channel {
            Channel::Reasoning => self.reasoning.push_str(&delta.text),
            Channel::Content => self.content.push_str(&delta.text),
        }
        self.token_ids.extend(delta.token_ids.iter().map(|id| id.0));
    }
}

/// Waits for the whole answer. Dropping the future cancels the request.
pub(super) async fn respond(
    replier: Replier,
    mut events: EventStream,
    mut log: RequestLog,
) -> Result<Response, ApiError> {
    let mut answer = Answer::default();
    while let Some(event) = events.next().await {
        match event {
            Event::Delta(delta) => answer.push(&delta),
            Event::Finished(finished) => {
                log.finished(&finished);
                return Ok(json_response(StatusCode::OK, &replier.whole(answer, &finished)));
            }
            Event::Failed(fault) => return Err(log.failed(&fault)),
            // Requests with tools are refused, so there are no calls.
            Event::Call(_) | Event::Retrying => {}
            Event::Started(_) | Event::Prefill { .. } | Event::PromptLogprobs(_) | Event::Logprobs(_) => {}
        }
    }
    Err(log.failed(&RequestFault::EngineStopped))
}

impl Replier {
    fn whole(&self, answer: Answer, finished: &Finished) -> Value {
        let mut message = Map::new();
        message.insert("role".into(), "assistant".into());
        message.insert("content".into(), answer.content.into());
        if !answer.reasoning.is_empty() {
            message.insert("reasoning_content".into(), answer.reasoning.into());
        }
        let mut choice = json!({
            "index": 0,
            "message": message,
            "finish_reason": finish_reason(&finished.reason),
            "logprobs": null,
        });
        if self.token_ids {
            choice["token_ids"] = answer.token_ids.into();
        }
        json!({
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [choice],
            "usage": usage::openai(&finished.usage),
            "timings": usage::timings(&finished.timings, &finished.usage),
        })
    }

    /// The first chunk: the role.
    pub(super) fn role_chunk(&self) -> Value {
        self.chunk(json!({"role": "assistant", "content": ""}), None)
    }

    /// A chunk of text; `None` when there is nothing the client wants to see.
    pub(super) fn text_chunk(&self, delta: &Delta) -> Option<Value> {
        if delta.text.is_empty() && !self.token_ids {
            return None;
        }
        let field = match delta.channel {
            Channel::Reasoning => "reasoning_content",
            Channel::Content => "content",
        };
        let mut chunk = self.chunk(json!({ field: delta.text }), None);
        if self.token_ids {
            chunk["choices"][0]["token_ids"] = delta.token_ids.iter().map(|id| id.0).collect::<Vec<_>>().into();
        }
        Some(chunk)
    }

    /// The chunk that says why the answer ended.
    pub(super) fn finish_chunk(&self, finished: &Finished) -> Value {
        self.chunk(json!({}), Some(finish_reason(&finished.reason)))
    }

    /// The chunk without choices that carries the counts.
    pub(super) fn usage_chunk(&self, finished: &Finished) -> Value {
        let mut chunk = self.envelope(json!([]));
        chunk["usage"] = usage::openai(&finished.usage);
        chunk["timings"] = usage::timings(&finished.timings, &finished.usage);
        chunk
    }

    fn chunk(&self, delta: Value, finish_reason: Option<&str>) -> Value {
        self.envelope(json!([{"index": 0, "delta": delta, "finish_reason": finish_reason}]))
    }

    fn envelope(&self, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }
}

fn finish_reason(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::EndOfTurn | FinishReason::StopString(_) => "stop",
        FinishReason::Length => "length",
        FinishReason::ToolCalls => "tool_calls",
    }
}
