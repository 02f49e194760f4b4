//! Who is asking: the id that a request's log lines carry, and the protocol its errors are spelled in.

use crate::ApiError;
use crate::error::Protocol;
use axum::extract::Request;
use axum::response::Response;

/// One request, for handlers and log lines.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) request_id: String,
    pub(crate) protocol: Protocol,
}

impl Caller {
    /// The reply to a request that cannot be served.
    pub(crate) fn refuse(&self, error: &ApiError) -> Response {
        error.response(self.protocol, &self.request_id)
    }

    /// The caller that the guard attached to `request`.
    pub(crate) fn of(request: &Request) -> Caller {
        let attached = request.extensions().get::<Caller>().cloned();
        attached
            .unwrap_or_else(|| Caller { request_id: String::new(), protocol: Protocol::of_path(request.uri().path()) })
    }
}
