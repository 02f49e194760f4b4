//! Server-sent events.

use crate::limits::KEEPALIVE;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::{HeaderName, HeaderValue, header};
use serde_json::Value;
use std::convert::Infallible;
use tokio::time::{Instant, sleep_until};

/// The end mark of the OpenAI chat and completion streams.
pub(crate) const DONE: &[u8] = b"data: [DONE]\n\n";

/// A stream of ready-made events.
pub(crate) fn response(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let mut response = Response::new(Body::from_stream(events.map(Ok::<_, Infallible>)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Tells a proxy in between not to collect events.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// An event without a name. JSON text has no line ends, so one line carries it.
pub(crate) fn data(value: &Value) -> Bytes {
    format!("data: {value}\n\n").into()
}

/// An event with a name.
pub(crate) fn named(event: &str, value: &Value) -> Bytes {
    format!("event: {event}\ndata: {value}\n\n").into()
}

/// A line that clients skip and proxies take as a sign of life.
pub(crate) fn comment(text: &str) -> Bytes {
    format!(": {text}\n\n").into()
}

/// Breaks silence by the clock, not by progress: a prefill chunk may take longer than a proxy's patience.
pub(crate) struct Heartbeat {
    due: Instant,
}

impl Heartbeat {
    pub(crate) fn new() -> Heartbeat {
        Heartbeat { due: Instant::now() + KEEPALIVE }
    }

    /// Something was sent.
    pub(crate) fn sent(&mut self) {
        self.due = Instant::now() + KEEPALIVE;
    }

    /// Returns when nothing was sent for too long.
    pub(crate) async fn silent(&mut self) {
        sleep_until(self.due).await;
        self.sent();
    }
}
