//! `GET /v1/models` and `/v1/models/{id}`.

use crate::caller::Caller;
use crate::error::json_response;
use crate::phase::Serving;
use crate::state::Shared;
use crate::{ApiError, Settings};
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

/// `created` of every model: the loaded file's age says nothing a client could use.
const CREATED: u64 = 1_767_225_600;

pub(crate) async fn list(State(shared): State<Shared>, Extension(caller): Extension<Caller>) -> Response {
    answer(&shared, &caller, |settings, serving| {
        let id = &serving.model_id;
        Ok(json!({
            "object": "list",
            "data": [model(settings, serving)],
            "has_more": false,
            "first_id": id,
            "last_id": id,
        }))
    })
}

pub(crate) async fn one(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Response {
    answer(&shared, &caller, |settings, serving| {
        let known = id == serving.model_id || serving.codec.model_aliases().contains(&id.as_str());
        if known { Ok(model(settings, serving)) } else { Err(ApiError::unknown_model(&id)) }
    })
}

fn answer(shared: &Shared, caller: &Caller, make: impl Fn(&Settings, &Serving) -> Result<Value, ApiError>) -> Response {
    match shared.phase.serving().and_then(|serving| make(&shared.settings, &serving)) {
        Ok(body) => json_response(StatusCode::OK, &body),
        Err(error) => caller.refuse(&error),
    }
}

/// What is loaded, in the words of the OpenAI, OpenRouter, vLLM and Anthropic readers at once.
fn model(settings: &Settings, serving: &Serving) -> Value {
    let info = serving.engine.info();
    let context = info.context.0;
    json!({
        "id": serving.model_id,
        "object": "model",
        "type": "model",
        "created": CREATED,
        "owned_by": "ds4",
        "name": serving.model_id,
        "display_name": serving.model_id,
        "context_length": context,
        "max_model_len": context,
        "meta": { "n_ctx_train": info.trained_context.0 },
        "top_provider": {
            "context_length": context,
            "max_completion_tokens": settings.max_tokens.0.min(context),
            "is_moderated": false,
        },
        "supported_parameters": [
            "tools", "tool_choice", "max_tokens", "temperature", "top_p", "top_k", "min_p", "stop", "seed", "stream", "reasoning_effort",
        ],
    })
}
