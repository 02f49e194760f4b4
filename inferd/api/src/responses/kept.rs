//! `GET` and `DELETE /v1/responses/{id}`: what is left of a reply once it was sent.
//!
//! A turn is kept so that a follow-up can go on from it, not its reply: reading one back is refused by name.

use crate::ApiError;
use crate::caller::Caller;
use crate::counting::reply;
use crate::state::Shared;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use serde_json::json;

pub(crate) async fn get(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Response {
    let kept = shared.continuations.by_response(&id).is_some();
    let what = if kept { "is kept to be gone on from (previous_response_id) only" } else { "was not found" };
    let message = format!("Response with id {id:?} {what}: replies are not stored");
    reply(&caller, Err(ApiError::unknown_response(message)))
}

/// Forgets a turn. What follows it can still be gone on from.
pub(crate) async fn delete(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Response {
    let forgotten = if shared.continuations.forget(&id) {
        Ok(json!({"id": id, "object": "response", "deleted": true}))
    } else {
        Err(ApiError::unknown_response(format!("Response with id {id:?} was not found")))
    };
    reply(&caller, forgotten)
}
