//! `GET /version`.

use crate::error::json_response;
use axum::response::Response;
use http::StatusCode;
use serde_json::json;

pub(crate) async fn version() -> Response {
    json_response(StatusCode::OK, &json!({ "version": env!("CARGO_PKG_VERSION") }))
}
