//! `POST /v1/completions`: the prompt as it is given.

mod chunks;
mod request;

use crate::answer::Answer;
use crate::ask::{Ask, Reading};
use crate::surface::Surface;
use crate::{ApiError, ids, state, usage};
use chunks::Chunks;
use ds4_engine::{FinishReason, Finished};
use serde_json::{Value, json};

/// What the replies and chunks of one request share.
pub(crate) struct Completions {
    id: String,
    created: u64,
    model: String,
    token_ids: bool,
    include_usage: bool,
}

impl Surface for Completions {
    const PROMPT_FIELD: &'static str = "prompt";

    type Writer = Chunks;

    fn read(body: &Value, reading: Reading<'_>) -> Result<(Ask, Completions), ApiError> {
        let request = request::read(body, reading)?;
        let completions = Completions {
            id: ids::completion(),
            created: state::unix_time(),
            model: request.model,
            token_ids: request.token_ids,
            include_usage: request.include_usage,
        };
        Ok((request.ask, completions))
    }

    fn whole(self, answer: Answer, finished: &Finished) -> Value {
        let mut choice = json!({
            "text": answer.content,
            "index": 0,
            "logprobs": null,
            "finish_reason": finish_reason(&finished.reason),
        });
        if !answer.reasoning.is_empty() {
            choice["reasoning_content"] = answer.reasoning.into();
        }
        if self.token_ids {
            choice["token_ids"] = answer.token_ids.into();
        }
        let mut reply = self.envelope(json!([choice]));
        reply["usage"] = usage::openai(&finished.usage);
        reply["timings"] = usage::timings(&finished.timings, &finished.usage);
        reply
    }

    fn writer(self) -> Chunks {
        Chunks::new(self)
    }
}

impl Completions {
    fn envelope(&self, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }
}

fn finish_reason(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::EndOfTurn | FinishReason::StopString(_) | FinishReason::ToolCalls => "stop",
        FinishReason::Length => "length",
    }
}
