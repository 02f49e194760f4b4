//! `GET /health`: answers from the first moment to the last.

use crate::error::json_response;
use crate::phase::Phase;
use crate::state::Shared;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

pub(crate) async fn health(State(shared): State<Shared>) -> Response {
    let (status, word) = match shared.phase.now() {
        Phase::Loading => (StatusCode::SERVICE_UNAVAILABLE, "loading"),
        Phase::Ready(_) => (StatusCode::OK, "ok"),
        Phase::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
    };
    let mut response = json_response(status, &json!({ "status": word }));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status != StatusCode::OK {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
