//! The streamed form of a completion.

use super::{Completions, finish_reason};
use crate::answer::{EventWriter, Silence};
use crate::logprobs::{self, Pairing};
use crate::sse::Frames;
use crate::{ApiError, usage};
use ds4_engine::{CallDelta, Channel, Delta, Finished, PositionLogprobs, Started};
use serde_json::{Value, json};

/// Spells chunks.
pub(crate) struct Chunks {
    completions: Completions,
    pairing: Pairing,
}

impl Chunks {
    pub(super) fn new(completions: Completions) -> Chunks {
        Chunks { completions, pairing: Pairing::default() }
    }

    /// Sends a chunk with one choice; those before the usage chunk say that it is still to come.
    fn send(&self, choice: Value, out: &mut Frames) {
        let mut chunk = self.completions.envelope(json!([choice]));
        if self.completions.include_usage {
            chunk["usage"] = Value::Null;
        }
        out.data(&chunk);
    }
}

impl EventWriter for Chunks {
    fn started(&mut self, _: &Started, _: &mut Frames) {}

    fn delta(&mut self, delta: &Delta, out: &mut Frames) {
        let positions = self.pairing.take(&delta.token_ids);
        if delta.text.is_empty() && !self.completions.token_ids && positions.is_empty() {
            return;
        }
        let mut choice = json!({"text": "", "index": 0, "logprobs": null, "finish_reason": null});
        match delta.channel {
            Channel::Content => choice["text"] = delta.text.as_str().into(),
            Channel::Reasoning => choice["reasoning_content"] = delta.text.as_str().into(),
        }
        if let Some(tokenizer) = self.completions.logprobs.as_deref() {
            choice["logprobs"] = logprobs::completion(None, &positions, tokenizer);
        }
        if self.completions.token_ids {
            choice["token_ids"] = delta.token_ids.iter().map(|id| id.0).collect::<Vec<_>>().into();
        }
        self.send(choice, out);
    }

    fn call(&mut self, _: &CallDelta, _: &mut Frames) {}

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
        let reason = finish_reason(&finished.reason);
        self.send(json!({"text": "", "index": 0, "logprobs": null, "finish_reason": reason}), out);
        if self.completions.include_usage {
            let mut chunk = self.completions.envelope(json!([]));
            chunk["usage"] = usage::openai(&finished.usage);
            chunk["timings"] = usage::timings(&finished.timings, &finished.usage);
            out.data(&chunk);
        }
        out.done();
    }

    fn failed(&mut self, error: &ApiError, out: &mut Frames) {
        out.named("error", &error.openai_after_first_byte());
    }
}
