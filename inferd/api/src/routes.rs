//! Which path leads where.

use crate::caller::Caller;
use crate::guard::guard;
use crate::state::Shared;
use crate::{
    ApiError, chat, completions, counting, health, messages, metrics, models, responses, stats, surface, tokens,
    version,
};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{MethodRouter, get, head, post};

const READ: &str = "GET, HEAD";

/// All routes behind the checks that every request passes.
pub(crate) fn router(shared: Shared) -> Router {
    Router::new()
        .route("/", only(head(root), "HEAD"))
        .route("/health", only(get(health::health), READ))
        .route("/v1/health", only(get(health::health), READ))
        .route("/metrics", only(get(metrics::metrics), READ))
        .route("/v1/stats", only(get(stats::stats), READ))
        .route("/version", only(get(version::version), READ))
        .route("/v1/models", only(get(models::list), READ))
        .route("/v1/models/{*id}", only(get(models::one), READ))
        .route("/v1/chat/completions", only(post(surface::create::<chat::Chat>), "POST"))
        .route("/v1/completions", only(post(surface::create::<completions::Completions>), "POST"))
        .route("/v1/responses", only(post(surface::create::<responses::Responses>), "POST"))
        .route("/v1/responses/input_tokens", only(post(counting::responses), "POST"))
        .route("/v1/responses/{id}", only(kept_response(), "GET, HEAD, DELETE"))
        .route("/v1/messages", only(post(surface::create::<messages::Messages>), "POST"))
        .route("/v1/messages/count_tokens", only(post(counting::messages), "POST"))
        .route("/tokenizer_info", only(get(tokens::info), "GET, HEAD"))
        .route("/tokenize", only(post(tokens::tokenize), "POST"))
        .route("/detokenize", only(post(tokens::detokenize), "POST"))
        .route("/apply-template", only(post(tokens::apply_template), "POST"))
        .fallback(unknown_endpoint)
        // Bodies are counted and limited where they are read.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(shared.clone(), guard))
        .with_state(shared)
}

/// A kept response. `POST` is of endpoints that share the form of its path and are not there.
fn kept_response() -> MethodRouter<Shared> {
    get(responses::kept::get).delete(responses::kept::delete).post(unknown_endpoint)
}

/// A route that names its methods when it is asked with another.
fn only(route: MethodRouter<Shared>, allow: &'static str) -> MethodRouter<Shared> {
    route.fallback(
        move |request: Request| async move { Caller::of(&request).refuse(&ApiError::method_not_allowed(allow)) },
    )
}

async fn root() {}

async fn unknown_endpoint(request: Request) -> Response {
    Caller::of(&request).refuse(&ApiError::unknown_endpoint())
}
