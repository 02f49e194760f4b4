//! `POST /v1/responses`.

mod echo;
mod events;
mod input;
mod items;
pub(crate) mod kept;
mod offer;
mod request;

use crate::answer::Answer;
use crate::ask::{Ask, Reading};
use crate::body::JsonBody;
use crate::surface::Surface;
use crate::{ApiError, ids, state};
use ds4_engine::{FinishReason, Finished};
use echo::Echo;
use events::Events;
use items::Items;
use serde_json::{Map, Value, json};

/// What the replies and events of one request share.
pub(crate) struct Responses {
    id: String,
    created: u64,
    model: String,
    /// What a reply repeats of its request.
    echo: Echo,
    items: Items,
}

impl Surface for Responses {
    const PROMPT_FIELD: &'static str = "input";

    type Writer = Events;

    fn read(body: &JsonBody, reading: Reading<'_>) -> Result<(Ask, Responses), ApiError> {
        let id = ids::response();
        let request = request::read(body, &id, reading)?;
        let responses = Responses {
            id,
            created: state::unix_time(),
            model: request.model,
            echo: request.echo,
            items: Items {
                summary: request.summary,
                names: request.names,
                tokenizer: request.ask.top_logprobs.map(|_| reading.serving.tokenizer.clone()),
            },
        };
        Ok((request.ask, responses))
    }

    fn whole(self, answer: Answer, finished: &Finished) -> Value {
        let status = status(&finished.reason);
        let output = self.items.of_answer(&answer, status, finished.answer.reasoning_open);
        self.object(status, output, Some(finished))
    }

    fn writer(self) -> Events {
        Events::new(self)
    }
}

impl Responses {
    /// The response object.
    fn object(&self, status: &str, output: Vec<Value>, finished: Option<&Finished>) -> Value {
        let mut object = Map::new();
        object.insert("id".into(), self.id.as_str().into());
        object.insert("object".into(), "response".into());
        object.insert("created_at".into(), self.created.into());
        object.insert("status".into(), status.into());
        object.insert("error".into(), Value::Null);
        let incomplete = (status == INCOMPLETE).then(|| json!({"reason": "max_output_tokens"}));
        object.insert("incomplete_details".into(), incomplete.into());
        object.insert("model".into(), self.model.as_str().into());
        object.insert("output".into(), output.into());
        self.echo.add_to(&mut object);
        object.insert("usage".into(), finished.map(|finished| usage(&finished.usage)).into());
        if let Some(finished) = finished {
            object.insert("timings".into(), crate::usage::timings(&finished.timings, &finished.usage));
        }
        Value::Object(object)
    }
}

const COMPLETED: &str = "completed";
const INCOMPLETE: &str = "incomplete";
const IN_PROGRESS: &str = "in_progress";

fn status(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::EndOfTurn | FinishReason::StopString(_) | FinishReason::ToolCalls => COMPLETED,
        FinishReason::Length => INCOMPLETE,
    }
}

/// Every number is there: clients decide from them when to compact, and some wait for ever on a null.
fn usage(usage: &ds4_engine::Usage) -> Value {
    let (input, output) = (usage.prompt_tokens.0, usage.completion_tokens.0);
    json!({
        "input_tokens": input,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens.0,
            "cache_write_tokens": input - usage.cached_tokens.0,
        },
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens.0},
        "total_tokens": input + output,
    })
}

/// What a body's prompt counts, for `input_tokens`.
pub(crate) fn read_for_counting(body: &JsonBody, reading: Reading<'_>) -> Result<Ask, ApiError> {
    Ok(request::read(body, "", reading)?.ask)
}
