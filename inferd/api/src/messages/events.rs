//! The streamed form of a message.

use super::{Messages, stop_reason, usage};
use crate::ApiError;
use crate::answer::{EventWriter, Silence};
use crate::sse::Frames;
use ds4_engine::{CallDelta, Channel, Delta, Finished, Started};
use ds4_model::CallEvent;
use serde_json::{Value, json};

/// What an open content block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Thinking,
    Text,
    ToolUse,
}

/// Spells events. Blocks are numbered from 0 and closed in order.
pub(crate) struct Events {
    message: Messages,
    open: Option<Block>,
    /// Blocks begun so far.
    begun: usize,
    /// There was thinking, and nothing visible since.
    only_thinking: bool,
}

impl Events {
    pub(super) fn new(message: Messages) -> Events {
        Events { message, open: None, begun: 0, only_thinking: false }
    }

    fn begin(&mut self, block: Block, content_block: Value, out: &mut Frames) {
        self.close(out);
        let event = json!({"type": "content_block_start", "index": self.begun, "content_block": content_block});
        out.named("content_block_start", &event);
        self.open = Some(block);
        self.begun += 1;
        self.only_thinking = block == Block::Thinking;
    }

    fn delta_of_block(&self, delta: Value, out: &mut Frames) {
        let index = self.begun.saturating_sub(1);
        out.named("content_block_delta", &json!({"type": "content_block_delta", "index": index, "delta": delta}));
    }

    fn close(&mut self, out: &mut Frames) {
        let Some(block) = self.open.take() else { return };
        if block == Block::Thinking {
            self.delta_of_block(json!({"type": "signature_delta", "signature": self.message.id}), out);
        }
        let index = self.begun.saturating_sub(1);
        out.named("content_block_stop", &json!({"type": "content_block_stop", "index": index}));
    }
}

impl EventWriter for Events {
    fn started(&mut self, started: &Started, out: &mut Frames) {
        let mut message = self.message.envelope(Vec::new());
        message["usage"] = usage::at_start(started, self.message.caching);
        out.named("message_start", &json!({"type": "message_start", "message": message}));
        out.named("ping", &json!({"type": "ping"}));
    }

    fn delta(&mut self, delta: &Delta, out: &mut Frames) {
        if delta.text.is_empty() {
            return;
        }
        let (block, begin, change) = match delta.channel {
            Channel::Reasoning => (
                Block::Thinking,
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                json!({"type": "thinking_delta", "thinking": delta.text}),
            ),
            Channel::Content => {
                (Block::Text, json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": delta.text}))
            }
        };
        if self.open != Some(block) {
            self.begin(block, begin, out);
        }
        self.delta_of_block(change, out);
    }

    fn call(&mut self, delta: &CallDelta, out: &mut Frames) {
        match &delta.event {
            CallEvent::Start { id, name, .. } => {
                let id = id.with_prefix("toolu_");
                let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                self.begin(Block::ToolUse, block, out);
            }
            CallEvent::Arguments { json, .. } => {
                self.delta_of_block(json!({"type": "input_json_delta", "partial_json": json}), out);
            }
            CallEvent::End { .. } => self.close(out),
        }
    }

    fn silence(&mut self, _: Silence, out: &mut Frames) {
        out.named("ping", &json!({"type": "ping"}));
    }

    fn finished(&mut self, finished: &Finished, out: &mut Frames) {
        if self.only_thinking {
            self.begin(Block::Text, json!({"type": "text", "text": ""}), out);
        }
        self.close(out);
        let (reason, sequence) = stop_reason(&finished.reason);
        let event = json!({
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": usage::whole(&finished.usage, self.message.caching),
            "timings": crate::usage::timings(&finished.timings, &finished.usage),
        });
        out.named("message_delta", &event);
        out.named("message_stop", &json!({"type": "message_stop"}));
    }

    fn failed(&mut self, error: &ApiError, out: &mut Frames) {
        out.named("error", &error.anthropic_after_first_byte());
    }
}
