//! Output items.

use super::offer::FREE_TEXT;
use super::{COMPLETED, INCOMPLETE};
use crate::answer::{Answer, Call};
use crate::tools::{Names, Target};
use crate::{ids, logprobs};
use ds4_engine::PositionLogprobs;
use ds4_model::Tokenizer;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// How items of one response are spelled.
pub(super) struct Items {
    /// The client wants to see the reasoning.
    pub(super) summary: bool,
    pub(super) names: Names,
    /// Spells tokens, where the client wants their probabilities.
    pub(super) tokenizer: Option<Arc<Tokenizer>>,
}

impl Items {
    /// What was likely at each position of a text; nothing, unless the client asked.
    pub(super) fn logprobs(&self, positions: &[PositionLogprobs]) -> Value {
        self.tokenizer.as_deref().map_or_else(|| json!([]), |tokenizer| logprobs::list(positions, tokenizer))
    }

    /// The items of a whole answer. Only the last of one that was cut off is incomplete.
    pub(super) fn of_answer(&self, answer: &Answer, status: &str, reasoning_open: bool) -> Vec<Value> {
        let mut items = Vec::new();
        if self.summary && !answer.reasoning.is_empty() {
            let status = if reasoning_open { INCOMPLETE } else { COMPLETED };
            items.push(reasoning(&ids::item("rs_"), &answer.reasoning, status));
        }
        if !answer.content.is_empty() {
            let status = if answer.calls.is_empty() { status } else { COMPLETED };
            items.push(message(&ids::item("msg_"), &answer.content, self.logprobs(&answer.logprobs), status));
        }
        items.extend(answer.calls.iter().map(|call| {
            let target = self.names.target(&call.name);
            call_item(&ids::item(prefix(&target)), &target, call, if call.complete { COMPLETED } else { INCOMPLETE })
        }));
        items
    }
}

pub(super) fn reasoning(id: &str, text: &str, status: &str) -> Value {
    let summary = if text.is_empty() { json!([]) } else { json!([{"type": "summary_text", "text": text}]) };
    json!({"type": "reasoning", "id": id, "status": status, "summary": summary})
}

pub(super) fn message(id: &str, text: &str, logprobs: Value, status: &str) -> Value {
    let content = if text.is_empty() { json!([]) } else { json!([output_text(text, logprobs)]) };
    json!({"type": "message", "id": id, "status": status, "role": "assistant", "content": content})
}

pub(super) fn output_text(text: &str, logprobs: Value) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs})
}

/// What the ids of a target's items begin with.
pub(super) fn prefix(target: &Target) -> &'static str {
    match target {
        Target::Function { .. } => "fc_",
        Target::Custom { .. } => "ctc_",
        Target::ToolSearch => "tsc_",
    }
}

pub(super) fn call_item(id: &str, target: &Target, call: &Call, status: &str) -> Value {
    let call_id = call.id.with_prefix("call_");
    match target {
        Target::Function { name, namespace } => {
            let mut item = json!({"type": "function_call", "id": id, "call_id": call_id, "name": name,
                "arguments": call.arguments, "status": status});
            if let Some(namespace) = namespace {
                item["namespace"] = namespace.as_str().into();
            }
            item
        }
        Target::Custom { name } => json!({"type": "custom_tool_call", "id": id, "call_id": call_id, "name": name,
            "input": free_text(&call.arguments), "status": status}),
        Target::ToolSearch => json!({"type": "tool_search_call", "id": id, "call_id": call_id, "execution": "client",
            "arguments": object(&call.arguments), "status": status}),
    }
}

fn object(arguments: &str) -> Value {
    serde_json::from_str(arguments).unwrap_or_else(|_| Value::Object(Map::new()))
}

/// The text in the one argument of a free-text tool; other arguments as they are.
pub(super) fn free_text(arguments: &str) -> String {
    match object(arguments).get(FREE_TEXT).and_then(Value::as_str) {
        Some(text) => text.to_owned(),
        None if arguments.is_empty() || arguments == "{}" => String::new(),
        None => arguments.to_owned(),
    }
}
