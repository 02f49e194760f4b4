//! How each protocol spells an error.

use super::{ApiError, Kind, RETRY_MEMORY_S, seconds};
use axum::body::Body;
use axum::response::Response;
use ds4_governor::Reason;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};

/// Tells clients that obey it not to send the same body again.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The two ways in which clients expect errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Chat, completions, responses, and whatever belongs to nobody.
    OpenAi,
    /// Messages.
    Anthropic,
}

impl Protocol {
    /// The protocol that owns a path.
    pub(crate) fn of_path(path: &str) -> Protocol {
        let below = path.strip_prefix("/v1/messages");
        if below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            Protocol::Anthropic
        } else {
            Protocol::OpenAi
        }
    }
}

impl ApiError {
    /// The reply that carries this error.
    pub(crate) fn response(&self, protocol: Protocol, request_id: &str) -> Response {
        let body = match protocol {
            Protocol::OpenAi => self.openai(),
            Protocol::Anthropic => {
                let mut body = self.anthropic();
                body["request_id"] = request_id.into();
                body
            }
        };
        let mut response = json_response(self.status(), &body);
        let headers = response.headers_mut();
        match self.kind {
            Kind::MethodNotAllowed { allow } => {
                headers.insert(header::ALLOW, HeaderValue::from_static(allow));
            }
            Kind::Busy { retry_after_s } | Kind::Unavailable { retry_after_s: Some(retry_after_s) } => {
                headers.insert(header::RETRY_AFTER, retry_after_s.into());
            }
            Kind::Memory(refusal) if refusal.reason.retryable() => {
                let unknown = if refusal.reason == Reason::ObsRetry { 1 } else { RETRY_MEMORY_S };
                headers.insert(header::RETRY_AFTER, refusal.retry_after.map_or(unknown, seconds).into());
            }
            Kind::Invalid { .. } | Kind::ContextOverflow { .. } | Kind::ContinuationLost | Kind::Memory(_) => {
                headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
            }
            _ => {}
        }
        response
    }

    /// The error object of the OpenAI family.
    pub(crate) fn openai(&self) -> Value {
        let mut error = json!({
            "message": self.message,
            "type": self.openai_type(),
            "param": self.param,
            "code": self.openai_code(),
        });
        self.add_counts(&mut error);
        json!({ "error": error })
    }

    /// The error object of the Messages protocol.
    pub(crate) fn anthropic(&self) -> Value {
        let mut error = json!({ "type": self.anthropic_type(), "message": self.anthropic_message() });
        self.add_counts(&mut error);
        json!({ "type": "error", "error": error })
    }

    fn add_counts(&self, error: &mut Value) {
        if let Kind::ContextOverflow { prompt, context } = self.kind {
            error["n_prompt_tokens"] = prompt.0.into();
            error["n_ctx"] = context.0.into();
        }
        if let Kind::Memory(refusal) = self.kind {
            error["retryable"] = refusal.reason.retryable().into();
            error["deficit_bytes"] = refusal.deficit.0.into();
            error["max_admissible_tokens"] = refusal.max_admissible_tokens.0.into();
            error["code"] = refusal.reason.name().into();
        }
    }

    /// What went wrong, by the words clients decide on; `None` for most.
    pub(crate) fn openai_code(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Invalid { code } => code,
            Kind::Memory(refusal) => Some(refusal.reason.name()),
            Kind::ContextOverflow { .. } => Some("context_length_exceeded"),
            Kind::ContinuationLost => Some("continuation_unavailable"),
            Kind::Unauthorized => Some("invalid_api_key"),
            Kind::UnknownModel => Some("model_not_found"),
            Kind::UnknownResponse => Some("response_not_found"),
            Kind::TooLarge => Some("request_too_large"),
            _ => None,
        }
    }

    fn openai_type(&self) -> &'static str {
        match self.kind {
            Kind::Unauthorized => "authentication_error",
            Kind::Forbidden => "permission_error",
            Kind::Busy { .. } => "rate_limit_error",
            Kind::Memory(refusal) if refusal.reason == Reason::ClassBudget => "invalid_request_error",
            Kind::Engine | Kind::Unavailable { .. } | Kind::Memory(_) => "server_error",
            _ => "invalid_request_error",
        }
    }

    fn anthropic_type(&self) -> &'static str {
        match self.kind {
            Kind::Unauthorized => "authentication_error",
            Kind::Forbidden => "permission_error",
            Kind::UnknownEndpoint | Kind::UnknownModel | Kind::UnknownResponse => "not_found_error",
            Kind::TooLarge => "request_too_large",
            Kind::Busy { .. } => "rate_limit_error",
            Kind::Engine => "api_error",
            Kind::Memory(refusal) if refusal.reason.retryable() => "overloaded_error",
            Kind::Memory(refusal) if refusal.reason == Reason::Fault => "api_error",
            Kind::Unavailable { .. } => "overloaded_error",
            _ => "invalid_request_error",
        }
    }

    /// Clients of this protocol begin to compact a conversation at these words and no others.
    fn anthropic_message(&self) -> String {
        match self.kind {
            Kind::ContextOverflow { prompt, context } => {
                format!("prompt is too long: {} tokens > {} maximum", prompt.0, context.0)
            }
            _ => self.message.clone(),
        }
    }

    /// The object of an OpenAI stream whose first byte is out: whatever went wrong, it was ours.
    pub(crate) fn openai_after_first_byte(&self) -> Value {
        json!({ "error": { "message": self.message, "type": "server_error", "param": null, "code": null } })
    }

    /// The same for a Messages stream.
    pub(crate) fn anthropic_after_first_byte(&self) -> Value {
        json!({ "type": "error", "error": { "type": "api_error", "message": self.message } })
    }
}

/// A JSON reply.
pub(crate) fn json_response(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
