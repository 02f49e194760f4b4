//! The streamed form of a chat reply.

use super::{Chat, finish_reason};
use crate::answer::{EventWriter, Silence};
use crate::logprobs::{self, Pairing};
use crate::sse::Frames;
use crate::{ApiError, usage};
use ds4_engine::{CallDelta, Channel, Delta, Finished, PositionLogprobs, Started};
use ds4_model::CallEvent;
use ds4_units::TokenId;
use serde_json::{Value, json};

/// Spells chunks.
pub(crate) struct Chunks {
    chat: Chat,
    pairing: Pairing,
}

impl Chunks {
    pub(super) fn new(chat: Chat) -> Chunks {
        Chunks { chat, pairing: Pairing::default() }
    }

    fn chunk(&self, delta: Value, finish_reason: Option<&str>) -> Value {
        self.envelope(json!([{"index": 0, "delta": delta, "finish_reason": finish_reason}]))
    }

    fn envelope(&self, choices: Value) -> Value {
        json!({
            "id": self.chat.id,
            "object": "chat.completion.chunk",
            "created": self.chat.created,
            "model": self.chat.model,
            "choices": choices,
        })
    }

    /// Sends a chunk; those before the usage chunk say that it is still to come.
    fn send(&self, mut chunk: Value, out: &mut Frames) {
        if self.chat.include_usage {
            chunk["usage"] = Value::Null;
        }
        out.data(&chunk);
    }

    /// Sends a part of the answer, with its tokens and what was likely where the client wants them.
    fn send_with_tokens(&mut self, delta: Value, tokens: &[TokenId], of_content: bool, out: &mut Frames) {
        let positions = self.pairing.take(tokens);
        let mut chunk = self.chunk(delta, None);
        if let Some(tokenizer) = self.chat.logprobs.as_deref().filter(|_| of_content) {
            chunk["choices"][0]["logprobs"] = logprobs::chat(&positions, tokenizer);
        }
        if self.chat.token_ids {
            chunk["choices"][0]["token_ids"] = tokens.iter().map(|id| id.0).collect::<Vec<_>>().into();
        }
        self.send(chunk, out);
    }
}

impl EventWriter for Chunks {
    fn started(&mut self, _: &Started, out: &mut Frames) {
        self.send(self.chunk(json!({"role": "assistant", "content": ""}), None), out);
    }

    fn delta(&mut self, delta: &Delta, out: &mut Frames) {
        if delta.text.is_empty() && !self.chat.token_ids && self.chat.logprobs.is_none() {
            return;
        }
        let of_content = delta.channel == Channel::Content;
        let field = if of_content { "content" } else { "reasoning_content" };
        self.send_with_tokens(json!({ field: delta.text }), &delta.token_ids, of_content, out);
    }

    fn call(&mut self, delta: &CallDelta, out: &mut Frames) {
        let call = match &delta.event {
            CallEvent::Start { index, id, name } => json!([{
                "index": index,
                "id": id.with_prefix("call_"),
                "type": "function",
                "function": {"name": name, "arguments": ""},
            }]),
            CallEvent::Arguments { index, json } => json!([{"index": index, "function": {"arguments": json}}]),
            // The tokens of the markup around calls belong to the answer too.
            CallEvent::End { .. } if self.chat.token_ids && !delta.token_ids.is_empty() => Value::Null,
            CallEvent::End { .. } => return,
        };
        let delta_json = if call.is_null() { json!({}) } else { json!({ "tool_calls": call }) };
        self.send_with_tokens(delta_json, &delta.token_ids, false, out);
    }

    fn logprobs(&mut self, position: PositionLogprobs, _: &mut Frames) {
        self.pairing.push(position);
    }

    fn retrying(&mut self) {
        self.pairing = Pairing::default();
    }

    fn silence(&mut self, silence: Silence, out: &mut Frames) {
        out.comment(silence.name());
    }

    fn finished(&mut self, finished: &Finished, out: &mut Frames) {
        self.send(self.chunk(json!({}), Some(finish_reason(&finished.reason))), out);
        if self.chat.include_usage {
            let mut chunk = self.envelope(json!([]));
            chunk["usage"] = usage::openai(&finished.usage);
            chunk["timings"] = usage::timings(&finished.timings, &finished.usage);
            out.data(&chunk);
        }
        out.done();
    }

    fn failed(&mut self, error: &ApiError, out: &mut Frames) {
        // No [DONE] after it: a client that sees one takes the answer for complete.
        out.named("error", &error.openai_after_first_byte());
    }
}
