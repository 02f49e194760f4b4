//! Errors, classified once. Status, public message and the per-protocol spelling all come from one value; what only
//! operators may know stays in the log.

mod spelling;

pub(crate) use spelling::{Protocol, json_response};

use ds4_engine::{Refusal, Refused, RequestFault};
use ds4_governor::Reason;
use ds4_model::TextTooLarge;
use ds4_units::Tokens;
use http::StatusCode;
use std::fmt::Display;
use std::time::Duration;

/// Seconds a client is told to wait when nothing says how long it will take.
const RETRY_QUEUE_S: u32 = 5;
/// The same when every client place is taken.
const RETRY_CLIENTS_S: u32 = 10;
/// The longest wait a client is told: what a server does is not known for longer.
const RETRY_MOST_S: u32 = 120;
/// Seconds a client is told to wait for memory that nobody here is going to give back: others have it.
const RETRY_MEMORY_S: u32 = 30;

/// What kind of failure it is: decides status, type and headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// With the word that clients of the OpenAI family decide on, where there is one.
    Invalid {
        code: Option<&'static str>,
    },
    /// What a follow-up refers to was here and is not any more.
    ContinuationLost,
    ContextOverflow {
        prompt: Tokens,
        context: Tokens,
    },
    Unauthorized,
    Forbidden,
    UnknownEndpoint,
    UnknownModel,
    UnknownResponse,
    MethodNotAllowed {
        allow: &'static str,
    },
    TooLarge,
    UnsupportedMedia,
    Busy {
        retry_after_s: u32,
    },
    Unavailable {
        retry_after_s: Option<u32>,
    },
    /// Memory cannot carry it, now or at all.
    Memory(Refusal),
    Engine,
}

/// A request's failure, as the client will see it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
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
        ApiError::new(Kind::Invalid { code: None }, message)
    }

    /// A bad value of a field: `path: problem`.
    pub(crate) fn field(path: String, problem: impl Display) -> ApiError {
        ApiError { message: format!("{path}: {problem}"), param: Some(path), kind: Kind::Invalid { code: None } }
    }

    /// A bad value of a field, in the published words without a colon: `path problem`.
    pub(crate) fn bare_field(path: String, problem: impl Display) -> ApiError {
        ApiError { message: format!("{path} {problem}"), param: Some(path), kind: Kind::Invalid { code: None } }
    }

    /// A field with a message of its own.
    pub(crate) fn about(param: &str, message: impl Into<String>) -> ApiError {
        ApiError { kind: Kind::Invalid { code: None }, message: message.into(), param: Some(param.into()) }
    }

    /// A bad request, with the word that clients of the OpenAI family decide on.
    pub(crate) fn coded(code: &'static str, param: &str, message: impl Into<String>) -> ApiError {
        ApiError { kind: Kind::Invalid { code: Some(code) }, message: message.into(), param: Some(param.into()) }
    }

    /// What a follow-up refers to was here and is not any more.
    pub(crate) fn continuation_lost(message: impl Into<String>) -> ApiError {
        ApiError::new(Kind::ContinuationLost, message)
    }

    /// A request whose body has failed in the engine before and would again.
    pub(crate) fn recurring(message: impl Into<String>) -> ApiError {
        ApiError::new(Kind::Invalid { code: Some("invalid_prompt") }, message)
    }

    /// Whether it is about this one turn, and not about the server.
    pub(crate) fn is_of_the_turn(&self) -> bool {
        matches!(self.kind, Kind::Engine | Kind::Invalid { .. })
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

    pub(crate) fn unknown_response(message: impl Into<String>) -> ApiError {
        ApiError { kind: Kind::UnknownResponse, message: message.into(), param: Some("response_id".into()) }
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

    /// `wait` is how long those who are here will take.
    pub(crate) fn too_many_clients(wait: Option<Duration>) -> ApiError {
        let kind = Kind::Unavailable { retry_after_s: Some(wait.map_or(RETRY_CLIENTS_S, seconds)) };
        ApiError::new(kind, "server connection capacity reached; retry later")
    }

    /// `since` is how long it has been loading: it will take as long again, as far as anybody can tell. A worker that gets
    /// its weights from an owner is ready within the first second.
    pub(crate) fn loading(since: Duration) -> ApiError {
        let kind = Kind::Unavailable { retry_after_s: Some(seconds(since)) };
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

    /// The size of a prompt that does not fit.
    pub(crate) fn overflowing_prompt(&self) -> Option<Tokens> {
        match self.kind {
            Kind::ContextOverflow { prompt, .. } => Some(prompt),
            _ => None,
        }
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
            Kind::Invalid { .. } | Kind::ContextOverflow { .. } => StatusCode::BAD_REQUEST,
            Kind::ContinuationLost => StatusCode::CONFLICT,
            Kind::Unauthorized => StatusCode::UNAUTHORIZED,
            Kind::Forbidden => StatusCode::FORBIDDEN,
            Kind::UnknownEndpoint | Kind::UnknownModel | Kind::UnknownResponse => StatusCode::NOT_FOUND,
            Kind::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Kind::UnsupportedMedia => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Kind::Busy { .. } => StatusCode::TOO_MANY_REQUESTS,
            Kind::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Memory(refusal) => match refusal.reason {
                Reason::ClassBudget => StatusCode::BAD_REQUEST,
                Reason::LiveHeadroom | Reason::ObsRetry | Reason::Pressure => StatusCode::SERVICE_UNAVAILABLE,
                Reason::Unsupported => StatusCode::NOT_IMPLEMENTED,
                Reason::Fault => StatusCode::INTERNAL_SERVER_ERROR,
            },
            Kind::Engine => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A wait in whole seconds, at least one.
fn seconds(wait: Duration) -> u32 {
    wait.as_secs_f64().ceil().clamp(1.0, f64::from(RETRY_MOST_S)) as u32
}

/// The engine's refusals, `param` being the field that holds the prompt and `wait` how long the queue will take.
pub(crate) fn refused(refused: Refused, param: &str, wait: Option<Duration>) -> ApiError {
    let busy = Kind::Busy { retry_after_s: wait.map_or(RETRY_QUEUE_S, seconds) };
    match refused {
        Refused::QueueFull { .. } => ApiError::new(busy, "request queue is full; retry later"),
        Refused::QueueBytesFull { .. } => {
            ApiError::new(busy, "the prompts that wait take all the memory there is for them; retry later")
        }
        Refused::EmptyPrompt => ApiError::about(param, format!("{param}: the prompt is empty")),
        Refused::PromptTooLong { prompt, context } => overflow(prompt, context, param),
        Refused::Stopped => ApiError::shutting_down(),
    }
}

/// A prompt that was not tokenised to its end, `param` being the field that holds it.
pub(crate) fn too_large(large: TextTooLarge, context: Tokens, param: &str) -> ApiError {
    match large {
        TextTooLarge::Tokens { at_least } => overflow(at_least, context, param),
        unbroken @ TextTooLarge::Unbroken { .. } => ApiError::field(param.into(), unbroken),
    }
}

fn overflow(prompt: Tokens, context: Tokens, param: &str) -> ApiError {
    ApiError {
        kind: Kind::ContextOverflow { prompt, context },
        message: format!("Prompt has {} tokens, but the configured context size is {} tokens", prompt.0, context.0),
        param: Some(param.into()),
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
        RequestFault::Memory(refusal) => ApiError::new(Kind::Memory(*refusal), format!("not enough memory: {refusal}")),
        RequestFault::QueuedTooLong { limit, wait } => ApiError::new(
            Kind::Busy { retry_after_s: seconds(wait.unwrap_or(*limit)) },
            format!("the request waited for {} s; retry later", limit.as_secs()),
        ),
        RequestFault::Step(reason) => {
            tracing::error!(%reason, "a request failed in the engine");
            ApiError::new(Kind::Engine, "the engine could not compute this request")
        }
    }
}
