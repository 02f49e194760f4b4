//! Errors, classified once. Status, public message and the per-protocol spelling all come from one value; what only
//! operators may know stays in the log.

use axum::body::Body;
use axum::response::Response;
use ds4_engine::{Refused, RequestFault};
use ds4_units::Tokens;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use std::fmt::Display;

/// Seconds a client is told to wait when requests queue up.
const RETRY_QUEUE_S: u32 = 5;
/// Seconds a client is told to wait when every client place is taken.
const RETRY_CLIENTS_S: u32 = 10;
/// Seconds a client is told to wait while a worker starts: it is ready in about one.
const RETRY_LOADING_S: u32 = 1;

/// Tells clients that obey it not to send the same body again.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// What kind of failure it is: decides status, type and headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Invalid,
    ContextOverflow { prompt: Tokens, context: Tokens },
    Unauthorized,
    Forbidden,
    UnknownEndpoint,
    UnknownModel,
    MethodNotAllowed { allow: &'static str },
    TooLarge,
    UnsupportedMedia,
    Busy { retry_after_s: u32 },
    Unavailable { retry_after_s: Option<u32> },
    Engine,
}

/// A request's failure, as the client will see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    kind: Kind,
    message: String,
    param: Option<String>,
}

impl ApiError {
    fn new(kind: Kind, message: impl Into<String>) -> ApiError {
        ApiError { kind, message: message.into(), param: None }
    }

    /// A bad request in general.
    pub(crate) fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(Kind::Invalid, message)
    }

    /// A bad value of a field: `path: problem`.
    pub(crate) fn field(path: String, problem: impl Display) -> ApiError {
        ApiError { message: format!("{path}: {problem}"), param: Some(path), kind: Kind::Invalid }
    }

    /// A bad value of a field, in the published words without a colon: `path problem`.
    pub(crate) fn bare_field(path: String, problem: impl Display) -> ApiError {
        ApiError { message: format!("{path} {problem}"), param: Some(path), kind: Kind::Invalid }
    }

    /// A field with a message of its own.
    pub(crate) fn about(param: &str, message: impl Into<String>) -> ApiError {
        ApiError { kind: Kind::Invalid, message: message.into(), param: Some(param.into()) }
    }

    pub(crate) fn unauthorized() -> ApiError {
        ApiError::new(
            Kind::Unauthorized,
            "missing or wrong API key: send it as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"",
        )
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> ApiError {
        ApiError::new(Kind::Forbidden, message)
    }

    pub(crate) fn unknown_endpoint() -> ApiError {
        ApiError::new(Kind::UnknownEndpoint, "unknown endpoint")
    }

    pub(crate) fn unknown_model(id: &str) -> ApiError {
        ApiError {
            kind: Kind::UnknownModel,
            message: format!("model {id:?} is not served here; see /v1/models"),
            param: Some("model".into()),
        }
    }

    pub(crate) fn method_not_allowed(allow: &'static str) -> ApiError {
        ApiError::new(Kind::MethodNotAllowed { allow }, format!("method not allowed; use {allow}"))
    }

    pub(crate) fn body_too_large(limit: usize) -> ApiError {
        ApiError::new(Kind::TooLarge, format!("request body is larger than {limit} bytes"))
    }

    pub(crate) fn unsupported_media(message: impl Into<String>) -> ApiError {
        ApiError::new(Kind::UnsupportedMedia, message)
    }

    pub(crate) fn body_budget() -> ApiError {
        let kind = Kind::Busy { retry_after_s: RETRY_QUEUE_S };
        ApiError::new(kind, "server request-body budget exhausted; retry later")
    }

    pub(crate) fn too_many_clients() -> ApiError {
        let kind = Kind::Unavailable { retry_after_s: Some(RETRY_CLIENTS_S) };
        ApiError::new(kind, "server connection capacity reached; retry later")
    }

    pub(crate) fn loading() -> ApiError {
        let kind = Kind::Unavailable { retry_after_s: Some(RETRY_LOADING_S) };
        ApiError::new(kind, "the model is loading; retry shortly")
    }

    pub(crate) fn shutting_down() -> ApiError {
        // No time to promise: another worker takes over when its operator starts it.
        let kind = Kind::Unavailable { retry_after_s: Some(RETRY_QUEUE_S) };
        ApiError::new(kind, "server shutting down")
    }

    pub(crate) fn internal() -> ApiError {
        ApiError::new(Kind::Engine, "internal error; the server log has the details")
    }

    /// What a client is told.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The field it is about.
    pub fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        match self.kind {
            Kind::Invalid | Kind::ContextOverflow { .. } => StatusCode::BAD_REQUEST,
            Kind::Unauthorized => StatusCode::UNAUTHORIZED,
            Kind::Forbidden => StatusCode::FORBIDDEN,
            Kind::UnknownEndpoint | Kind::UnknownModel => StatusCode::NOT_FOUND,
            Kind::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Kind::UnsupportedMedia => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Kind::Busy { .. } => StatusCode::TOO_MANY_REQUESTS,
            Kind::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Engine => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The error object of the OpenAI family.
    pub(crate) fn openai(&self) -> Value {
        let mut error = json!({
            "message": self.message,
            "type": self.openai_type(),
            "param": self.param,
            "code": self.openai_code(),
        });
        if let Kind::ContextOverflow { prompt, context } = self.kind {
            error["n_prompt_tokens"] = prompt.0.into();
            error["n_ctx"] = context.0.into();
        }
        json!({ "error": error })
    }

    fn openai_type(&self) -> &'static str {
        match self.kind {
            Kind::Unauthorized => "authentication_error",
            Kind::Forbidden => "permission_error",
            Kind::Busy { .. } => "rate_limit_error",
            Kind::Engine | Kind::Unavailable { .. } => "server_error",
            _ => "invalid_request_error",
        }
    }

    fn openai_code(&self) -> Option<&'static str> {
        match self.kind {
            Kind::ContextOverflow { .. } => Some("context_length_exceeded"),
            Kind::Unauthorized => Some("invalid_api_key"),
            Kind::UnknownModel => Some("model_not_found"),
            Kind::TooLarge => Some("request_too_large"),
            _ => None,
        }
    }

    /// The reply for clients of the OpenAI family.
    pub(crate) fn into_openai_response(self) -> Response {
        let mut response = json_response(self.status(), &self.openai());
        let headers = response.headers_mut();
        match self.kind {
            Kind::MethodNotAllowed { allow } => {
                headers.insert(header::ALLOW, HeaderValue::from_static(allow));
            }
            Kind::Busy { retry_after_s } | Kind::Unavailable { retry_after_s: Some(retry_after_s) } => {
                headers.insert(header::RETRY_AFTER, retry_after_s.into());
            }
            Kind::Invalid | Kind::ContextOverflow { .. } => {
                headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
            }
            _ => {}
        }
        response
    }
}

/// The engine's refusals, `param` being the field that holds the prompt.
pub(crate) fn refused(refused: Refused, param: &str) -> ApiError {
    match refused {
        Refused::QueueFull { .. } => {
            ApiError::new(Kind::Busy { retry_after_s: RETRY_QUEUE_S }, "request queue is full; retry later")
        }
        Refused::EmptyPrompt => ApiError::about(param, format!("{param}: the prompt is empty")),
        Refused::PromptTooLong { prompt, context } => ApiError {
            kind: Kind::ContextOverflow { prompt, context },
            message: format!("Prompt has {} tokens, but the configured context size is {} tokens", prompt.0, context.0),
            param: Some(param.into()),
        },
        Refused::Stopped => ApiError::shutting_down(),
    }
}

/// Faults of a request that was running.
pub(crate) fn fault(fault: &RequestFault) -> ApiError {
    match fault {
        RequestFault::EngineStopped => ApiError::shutting_down(),
        RequestFault::SlowReader { .. } => {
            ApiError::new(Kind::Engine, "the client read too slowly and its request was dropped")
        }
        // The same request would meet it again: no status that clients repeat on.
        RequestFault::Constraint(fault) => ApiError::about("response_format", format!("response_format: {fault}")),
        RequestFault::Memory(refusal) => ApiError::new(
            if refusal.reason.retryable() {
                Kind::Unavailable { retry_after_s: Some(RETRY_QUEUE_S) }
            } else {
                Kind::Invalid
            },
            format!("not enough memory: {refusal}"),
        ),
        RequestFault::Step(reason) => {
            tracing::error!(%reason, "a request failed in the engine");
            ApiError::new(Kind::Engine, "the engine could not compute this request")
        }
    }
}

/// A JSON reply.
pub(crate) fn json_response(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The error object of a stream whose first byte is out: whatever went wrong, it was ours.
pub(crate) fn after_first_byte(error: &ApiError) -> Value {
    json!({ "error": { "message": error.message, "type": "server_error", "param": null, "code": null } })
}
