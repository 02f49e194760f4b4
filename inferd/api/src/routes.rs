//! Which path leads where.

use crate::guard::guard;
use crate::state::Shared;
use crate::{ApiError, chat, health, models};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{MethodRouter, get, head, post};

/// All routes behind the checks that every request passes.
pub(crate) fn router(shared: Shared) -> Router {
    Router::new()
        .route("/", only(head(root), "HEAD"))
        .route("/health", only(get(health::health), "GET, HEAD"))
        .route("/v1/health", only(get(health::health), "GET, HEAD"))
        .route("/v1/models", only(get(models::list), "GET, HEAD"))
        .route("/v1/models/{*id}", only(get(models::one), "GET, HEAD"))
        .route("/v1/chat/completions", only(post(chat::create), "POST"))
        .fallback(unknown_endpoint)
        // Bodies are counted and limited where they are read.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(shared.clone(), guard))
        .with_state(shared)
}

/// A route that names its methods when it is asked with another.
fn only(route: MethodRouter<Shared>, allow: &'static str) -> MethodRouter<Shared> {
    route.fallback(move || async move { ApiError::method_not_allowed(allow).into_openai_response() })
}

async fn root() {}

async fn unknown_endpoint() -> Response {
    ApiError::unknown_endpoint().into_openai_response()
}
