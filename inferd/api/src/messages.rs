//! `POST /v1/messages` and `/v1/messages/count_tokens`.

mod blocks;
mod events;
mod request;
mod usage;

use crate::answer::{Answer, Call};
use crate::ask::{Ask, Reading};
use crate::body::JsonBody;
use crate::surface::Surface;
use crate::{ApiError, ids};
use ds4_engine::{FinishReason, Finished};
use events::Events;
use serde_json::{Map, Value, json};

/// What the replies and events of one request share.
pub(crate) struct Messages {
    /// Also the signature of thinking blocks: clients demote a block without one to plain text.
    id: String,
    model: String,
    /// The client marked what to keep: what is computed counts as written to the cache.
    caching: bool,
}

impl Surface for Messages {
    const PROMPT_FIELD: &'static str = "messages";

    type Writer = Events;

    fn read(body: &JsonBody, reading: Reading<'_>) -> Result<(Ask, Messages), ApiError> {
        let request = request::read(body, reading)?;
        let message = Messages { id: ids::message(), model: request.model, caching: request.caching };
        Ok((request.ask, message))
    }

    fn whole(self, answer: Answer, finished: &Finished) -> Value {
        let mut reply = self.envelope(content(&self.id, &answer));
        let (reason, sequence) = stop_reason(&finished.reason);
        reply["stop_reason"] = reason.into();
        reply["stop_sequence"] = sequence.into();
        reply["usage"] = usage::whole(&finished.usage, self.caching);
        reply["timings"] = crate::usage::timings(&finished.timings, &finished.usage);
        reply
    }

    fn writer(self) -> Events {
        Events::new(self)
    }
}

impl Messages {
    /// A message without an end.
    fn envelope(&self, content: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": null,
            "stop_sequence": null,
        })
    }
}

/// The blocks of an answer. With nothing visible after the thinking there is one empty text.
fn content(signature: &str, answer: &Answer) -> Vec<Value> {
    let mut blocks = Vec::new();
    if !answer.reasoning.is_empty() {
        blocks.push(json!({"type": "thinking", "thinking": answer.reasoning, "signature": signature}));
    }
    let silent = answer.content.is_empty();
    if !silent || (answer.calls.is_empty() && !blocks.is_empty()) {
        blocks.push(json!({"type": "text", "text": answer.content}));
    }
    blocks.extend(answer.calls.iter().map(tool_use));
    blocks
}

fn tool_use(call: &Call) -> Value {
    // The arguments of a call that was cut off may be no JSON.
    let input = serde_json::from_str(&call.arguments).unwrap_or_else(|_| Value::Object(Map::new()));
    json!({"type": "tool_use", "id": call.id.with_prefix("toolu_"), "name": call.name, "input": input})
}

/// The reason in the protocol's words, and the stop string that was found.
fn stop_reason(reason: &FinishReason) -> (&'static str, Option<&str>) {
    match reason {
        FinishReason::EndOfTurn => ("end_turn", None),
        FinishReason::StopString(text) => ("stop_sequence", Some(text)),
        FinishReason::ToolCalls => ("tool_use", None),
        FinishReason::Length => ("max_tokens", None),
    }
}

/// What a body's prompt counts, for `count_tokens`.
pub(crate) fn read_for_counting(body: &JsonBody, reading: Reading<'_>) -> Result<Ask, ApiError> {
    Ok(request::read(body, reading)?.ask)
}
