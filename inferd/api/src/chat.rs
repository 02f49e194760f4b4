//! `POST /v1/chat/completions`.

mod chunks;
mod message;
mod request;

use crate::answer::{Answer, Call};
use crate::ask::{Ask, Reading};
use crate::body::JsonBody;
use crate::surface::Surface;
use crate::{ApiError, ids, logprobs, state, usage};
use chunks::Chunks;
use ds4_engine::{FinishReason, Finished};
use ds4_model::Tokenizer;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// What the replies and chunks of one request share.
pub(crate) struct Chat {
    id: String,
    created: u64,
    model: String,
    /// The client wants the tokens beside the text.
    token_ids: bool,
    /// Spells tokens, where the client wants their probabilities.
    logprobs: Option<Arc<Tokenizer>>,
    /// The client wants the counts at the end of a stream.
    include_usage: bool,
}

impl Surface for Chat {
    const PROMPT_FIELD: &'static str = "messages";

    const RESAMPLES: bool = true;

    type Writer = Chunks;

    fn read(body: &JsonBody, reading: Reading<'_>) -> Result<(Ask, Chat), ApiError> {
        let request = request::read(body, reading)?;
        let chat = Chat {
            id: ids::chat_completion(),
            created: state::unix_time(),
            model: request.model,
            token_ids: request.token_ids,
            logprobs: request.ask.top_logprobs.map(|_| reading.serving.tokenizer.clone()),
            include_usage: request.include_usage,
        };
        Ok((request.ask, chat))
    }

    fn whole(self, answer: Answer, finished: &Finished) -> Value {
        let mut message = Map::new();
        message.insert("role".into(), "assistant".into());
        // Beside calls, no text is no content.
        let silent = answer.content.is_empty() && !answer.calls.is_empty();
        message.insert("content".into(), if silent { Value::Null } else { answer.content.into() });
        if !answer.reasoning.is_empty() {
            message.insert("reasoning_content".into(), answer.reasoning.into());
        }
        if !answer.calls.is_empty() {
            message.insert("tool_calls".into(), answer.calls.iter().map(call).collect());
        }
        let mut choice = json!({
            "index": 0,
            "message": message,
            "finish_reason": finish_reason(&finished.reason),
            "logprobs": self.logprobs.as_deref().map(|tokenizer| logprobs::chat(&answer.logprobs, tokenizer)),
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

    fn writer(self) -> Chunks {
        Chunks::new(self)
    }
}

fn finish_reason(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::EndOfTurn | FinishReason::StopString(_) => "stop",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::Length => "length",
    }
}

fn call(call: &Call) -> Value {
    json!({
        "id": call.id.with_prefix("call_"),
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    })
}
