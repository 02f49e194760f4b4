//! The streamed form of a response.

use super::items::{self, call_item};
use super::{COMPLETED, IN_PROGRESS, INCOMPLETE, Responses, status};
use crate::answer::{Call, EventWriter, Silence};
use crate::logprobs::Pairing;
use crate::sse::Frames;
use crate::tools::Target;
use crate::{ApiError, ids};
use ds4_engine::{CallDelta, Channel, Delta, Finished, PositionLogprobs, Started};
use ds4_model::CallEvent;
use serde_json::{Value, json};

/// The item that is being written.
enum Open {
    Reasoning { id: String, text: String },
    Message { id: String, text: String, positions: Vec<PositionLogprobs> },
    Call { id: String, target: Target, call: Call },
}

/// Spells events. Every one has the next number; items follow each other, each closed before the next.
pub(crate) struct Events {
    response: Responses,
    sequence: u64,
    created: bool,
    open: Option<Open>,
    output: Vec<Value>,
    pairing: Pairing,
}

impl Events {
    pub(super) fn new(response: Responses) -> Events {
        Events { response, sequence: 0, created: false, open: None, output: Vec::new(), pairing: Pairing::default() }
    }

    fn send(&mut self, kind: &str, fields: Value, out: &mut Frames) {
        let mut event = json!({"type": kind, "sequence_number": self.sequence});
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        self.sequence += 1;
        out.named(kind, &event);
    }

    fn send_response(&mut self, kind: &str, response: Value, out: &mut Frames) {
        self.send(kind, json!({ "response": response }), out);
    }

    fn create(&mut self, out: &mut Frames) {
        if !self.created {
            self.created = true;
            let response = self.response.object(IN_PROGRESS, Vec::new(), None);
            self.send_response("response.created", response, out);
        }
    }

    /// Where the item that is open, or the next one, stands.
    fn index(&self) -> usize {
        self.output.len()
    }

    fn begin(&mut self, open: Open, out: &mut Frames) {
        let index = self.index();
        let (id, item) = match &open {
            Open::Reasoning { id, .. } => (id.clone(), items::reasoning(id, "", IN_PROGRESS)),
            Open::Message { id, .. } => (id.clone(), items::message(id, "", json!([]), IN_PROGRESS)),
            Open::Call { id, target, call } => (id.clone(), call_item(id, target, call, IN_PROGRESS)),
        };
        self.send("response.output_item.added", json!({"output_index": index, "item": item}), out);
        match &open {
            Open::Reasoning { .. } => self.send(
                "response.reasoning_summary_part.added",
                json!({"item_id": id, "output_index": index, "summary_index": 0,
                    "part": {"type": "summary_text", "text": ""}}),
                out,
            ),
            Open::Message { .. } => self.send(
                "response.content_part.added",
                json!({"item_id": id, "output_index": index, "content_index": 0, "part": items::output_text("", json!([]))}),
                out,
            ),
            Open::Call { .. } => {}
        }
        self.open = Some(open);
    }

    /// Closes the open item.
    fn close(&mut self, status: &str, out: &mut Frames) {
        let Some(open) = self.open.take() else { return };
        let item = match &open {
            Open::Reasoning { id, text } => self.close_reasoning(id, text, status, out),
            Open::Message { id, text, positions } => self.close_message(id, text, positions, status, out),
            Open::Call { id, target, call } => self.close_call(id, target, call, status, out),
        };
        let index = self.index();
        self.send("response.output_item.done", json!({"output_index": index, "item": item}), out);
        self.output.push(item);
    }

    fn close_reasoning(&mut self, id: &str, text: &str, status: &str, out: &mut Frames) -> Value {
        let place = json!({"item_id": id, "output_index": self.index(), "summary_index": 0});
        self.send("response.reasoning_summary_text.done", with(&place, "text", text.into()), out);
        let part = json!({"type": "summary_text", "text": text});
        self.send("response.reasoning_summary_part.done", with(&place, "part", part), out);
        items::reasoning(id, text, status)
    }

    fn close_message(
        &mut self,
        id: &str,
        text: &str,
        positions: &[PositionLogprobs],
        status: &str,
        out: &mut Frames,
    ) -> Value {
        let logprobs = self.response.items.logprobs(positions);
        let place = json!({"item_id": id, "output_index": self.index(), "content_index": 0});
        let done = with(&with(&place, "text", text.into()), "logprobs", logprobs.clone());
        self.send("response.output_text.done", done, out);
        self.send("response.content_part.done", with(&place, "part", items::output_text(text, logprobs.clone())), out);
        items::message(id, text, logprobs, status)
    }

    fn close_call(&mut self, id: &str, target: &Target, call: &Call, status: &str, out: &mut Frames) -> Value {
        let place = json!({"item_id": id, "output_index": self.index()});
        match target {
            Target::Function { name, .. } => {
                let done =
                    with(&with(&place, "arguments", call.arguments.as_str().into()), "name", name.as_str().into());
                self.send("response.function_call_arguments.done", done, out);
            }
            Target::Custom { .. } => {
                let text = items::free_text(&call.arguments);
                let delta = with(&place, "delta", text.as_str().into());
                self.send("response.custom_tool_call_input.delta", delta, out);
                self.send("response.custom_tool_call_input.done", with(&place, "input", text.into()), out);
            }
            Target::ToolSearch => {}
        }
        call_item(id, target, call, status)
    }

    fn more_arguments(&mut self, json: &str, out: &mut Frames) {
        let Some(Open::Call { id, target, call }) = &mut self.open else { return };
        call.arguments.push_str(json);
        if matches!(target, Target::Function { .. }) {
            let id = id.clone();
            let fields = json!({"item_id": id, "output_index": self.index(), "delta": json});
            self.send("response.function_call_arguments.delta", fields, out);
        }
    }
}

impl EventWriter for Events {
    fn started(&mut self, _: &Started, out: &mut Frames) {
        self.create(out);
        let response = self.response.object(IN_PROGRESS, Vec::new(), None);
        self.send_response("response.in_progress", response, out);
    }

    fn delta(&mut self, delta: &Delta, out: &mut Frames) {
        let drawn = self.pairing.take(&delta.token_ids);
        let hidden = delta.channel == Channel::Reasoning && !self.response.items.summary;
        if delta.text.is_empty() || hidden {
            return;
        }
        let fits = matches!(
            (&self.open, delta.channel),
            (Some(Open::Reasoning { .. }), Channel::Reasoning) | (Some(Open::Message { .. }), Channel::Content)
        );
        if !fits {
            self.close(COMPLETED, out);
            let open = match delta.channel {
                Channel::Reasoning => Open::Reasoning { id: ids::item("rs_"), text: String::new() },
                Channel::Content => Open::Message { id: ids::item("msg_"), text: String::new(), positions: Vec::new() },
            };
            self.begin(open, out);
        }
        let index = self.index();
        let (kind, fields) = match &mut self.open {
            Some(Open::Reasoning { id, text }) => {
                text.push_str(&delta.text);
                let fields = json!({"item_id": id, "output_index": index, "summary_index": 0, "delta": delta.text});
                ("response.reasoning_summary_text.delta", fields)
            }
            Some(Open::Message { id, text, positions }) => {
                text.push_str(&delta.text);
                let logprobs = self.response.items.logprobs(&drawn);
                positions.extend(drawn);
                let fields = json!({"item_id": id, "output_index": index, "content_index": 0, "delta": delta.text,
                    "logprobs": logprobs});
                ("response.output_text.delta", fields)
            }
            _ => return,
        };
        self.send(kind, fields, out);
    }

    fn call(&mut self, delta: &CallDelta, out: &mut Frames) {
        match &delta.event {
            CallEvent::Start { id, name, .. } => {
                self.close(COMPLETED, out);
                let target = self.response.items.names.target(name);
                let call = Call { id: *id, name: name.clone(), arguments: String::new(), complete: false };
                self.begin(Open::Call { id: ids::item(items::prefix(&target)), target, call }, out);
            }
            CallEvent::Arguments { json, .. } => self.more_arguments(json, out),
            CallEvent::End { .. } => self.close(COMPLETED, out),
        }
    }

    fn logprobs(&mut self, position: PositionLogprobs, _: &mut Frames) {
        self.pairing.push(position);
    }

    fn retrying(&mut self) {
        self.pairing = Pairing::default();
    }

    fn silence(&mut self, _: Silence, out: &mut Frames) {
        self.create(out);
        let response = self.response.object(IN_PROGRESS, self.output.clone(), None);
        self.send_response("response.in_progress", response, out);
    }

    fn finished(&mut self, finished: &Finished, out: &mut Frames) {
        let status = status(&finished.reason);
        self.close(if finished.answer.reasoning_open { INCOMPLETE } else { status }, out);
        let output = std::mem::take(&mut self.output);
        let response = self.response.object(status, output, Some(finished));
        self.send_response(&format!("response.{status}"), response, out);
    }

    fn failed(&mut self, error: &ApiError, out: &mut Frames) {
        self.create(out);
        if error.is_of_the_turn() {
            self.close(INCOMPLETE, out);
            let output = std::mem::take(&mut self.output);
            let mut response = self.response.object("failed", output, None);
            let code = error.openai_code().unwrap_or("server_error");
            response["error"] = json!({"code": code, "message": error.message()});
            self.send_response("response.failed", response, out);
        } else {
            let fields = json!({"code": "server_error", "message": error.message(), "param": null});
            self.send("error", fields, out);
        }
    }
}

/// An object with one field more.
fn with(object: &Value, name: &str, value: Value) -> Value {
    let mut object = object.clone();
    object[name] = value;
    object
}
