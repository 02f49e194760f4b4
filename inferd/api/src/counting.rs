//! Prompts that are only counted: `POST /v1/messages/count_tokens` and `/v1/responses/input_tokens`.
//!
//! A body is read, rendered and tokenised exactly as the real request would be, on the pool. It waits for no bank and
//! is never shed.

use crate::ask::{Ask, Reading};
use crate::body::JsonBody;
use crate::caller::Caller;
use crate::error::json_response;
use crate::state::Shared;
use crate::{ApiError, generate, messages, responses};
use axum::extract::{Extension, Request, State};
use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

pub(crate) async fn messages(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    let count = count(&shared, request, messages::read_for_counting, "messages").await;
    reply(&caller, count.map(|tokens| json!({ "input_tokens": tokens })))
}

pub(crate) async fn responses(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    let count = count(&shared, request, responses::read_for_counting, "input").await;
    reply(&caller, count.map(|tokens| json!({"object": "response.input_tokens", "input_tokens": tokens})))
}

/// Reads a body of one surface.
type Read = fn(&JsonBody, Reading<'_>) -> Result<Ask, ApiError>;

async fn count(shared: &Shared, request: Request, read: Read, field: &'static str) -> Result<usize, ApiError> {
    let serving = shared.phase.serving()?;
    let body = shared.read_body(request).await?;
    let shared = shared.clone();
    let pool = shared.clone();
    pool.pool
        .run(move || {
            let reading = Reading { counting: true, ..shared.reading(&serving) };
            let ask = read(&body.parse()?, reading)?;
            drop(body);
            generate::count(reading, &ask.wording, field)
        })
        .await
}

/// The reply of a handler that answers at once.
pub(crate) fn reply(caller: &Caller, result: Result<Value, ApiError>) -> Response {
    match result {
        Ok(body) => json_response(StatusCode::OK, &body),
        Err(error) => caller.refuse(&error),
    }
}
