//! Server-sent events.

use crate::limits::KEEPALIVE;
use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use http::{HeaderName, HeaderValue, header};
use serde_json::Value;
use std::convert::Infallible;
use std::fmt::{self, Write};
use tokio::time::{Instant, sleep_until};

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

/// Events that go out together.
#[derive(Default)]
pub(crate) struct Frames(BytesMut);

impl Frames {
    /// An event without a name. JSON text has no line ends, so one line carries it.
    pub(crate) fn data(&mut self, value: &Value) {
        self.push(format_args!("data: {value}\n\n"));
    }

    /// An event with a name.
    pub(crate) fn named(&mut self, event: &str, value: &Value) {
        self.push(format_args!("event: {event}\ndata: {value}\n\n"));
    }

    /// A line that clients skip and proxies take as a sign of life.
    pub(crate) fn comment(&mut self, text: &str) {
        self.push(format_args!(": {text}\n\n"));
    }

    /// The end mark of the OpenAI chat and completion streams.
    pub(crate) fn done(&mut self) {
        self.0.extend_from_slice(b"data: [DONE]\n\n");
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.0.freeze()
    }

    fn push(&mut self, frame: fmt::Arguments<'_>) {
        // Writing to memory does not fail.
        let _ = self.0.write_fmt(frame);
    }
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
