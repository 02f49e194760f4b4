//! The streamed form of a chat reply.

use super::reply::Replier;
use crate::error;
use crate::generate::RequestLog;
use crate::sse::{self, Heartbeat};
use axum::response::Response;
use bytes::Bytes;
use ds4_engine::{Event, EventStream, Finished, RequestFault};
use serde_json::Value;

/// One stream, as a state between chunks.
struct ChatStream {
    replier: Replier,
    events: EventStream,
    include_usage: bool,
    log: RequestLog,
    heartbeat: Heartbeat,
    /// What silence means now: the comment that breaks it.
    silence: &'static str,
    ended: bool,
}

/// Answers with a stream that begins at once. Dropping it cancels the request.
pub(super) fn respond(replier: Replier, events: EventStream, include_usage: bool, log: RequestLog) -> Response {
    let stream = ChatStream {
        replier,
        events,
        include_usage,
        log,
        heartbeat: Heartbeat::new(),
        silence: "prefill",
        ended: false,
    };
    sse::response(futures_util::stream::unfold(stream, |mut stream| async move {
        let bytes = stream.next().await?;
        Some((bytes, stream))
    }))
}

impl ChatStream {
    /// The next bytes; `None` after the last.
    async fn next(&mut self) -> Option<Bytes> {
        while !self.ended {
            let event = tokio::select! {
                biased;
                event = self.events.next() => event.unwrap_or(Event::Failed(RequestFault::EngineStopped)),
                () = self.heartbeat.silent() => return Some(sse::comment(self.silence)),
            };
            if let Some(bytes) = self.write(event) {
                self.heartbeat.sent();
                return Some(bytes);
            }
        }
        None
    }

    fn write(&mut self, event: Event) -> Option<Bytes> {
        match event {
            Event::Started(_) => Some(self.data(self.replier.role_chunk())),
            Event::Prefill { .. } | Event::PromptLogprobs(_) | Event::Logprobs(_) => None,
            // Requests with tools are refused, so there are no calls.
            Event::Call(_) | Event::Retrying => None,
            Event::Delta(delta) => {
                self.silence = "decode";
                self.replier.text_chunk(&delta).map(|chunk| self.data(chunk))
            }
            Event::Finished(finished) => Some(self.finish(&finished)),
            Event::Failed(fault) => {
                self.ended = true;
                // No [DONE] after it: a client that sees one takes the answer for complete.
                let error = self.log.failed(&fault);
                Some(sse::named("error", &error::after_first_byte(&error)))
            }
        }
    }

    fn finish(&mut self, finished: &Finished) -> Bytes {
        self.ended = true;
        self.log.finished(finished);
        let mut bytes = self.data(self.replier.finish_chunk(finished)).to_vec();
        if self.include_usage {
            bytes.extend_from_slice(&sse::data(&self.replier.usage_chunk(finished)));
        }
        bytes.extend_from_slice(sse::DONE);
        bytes.into()
    }

    /// A chunk; those before the usage chunk say that it is still to come.
    fn data(&self, mut chunk: Value) -> Bytes {
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        sse::data(&chunk)
    }
}
