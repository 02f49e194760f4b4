//! The streamed form of a reply: events as they come, a sign of life when none comes.

use crate::ApiError;
use crate::ending::Ending;
use crate::sse::{self, Frames, Heartbeat};
use axum::response::Response;
use bytes::Bytes;
use ds4_engine::{CallDelta, Delta, Event, EventStream, Finished, PositionLogprobs, RequestFault, Started};

/// What silence on a stream means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The request waits or its prompt is being computed.
    Prefill,
    /// The answer is being written, out of sight.
    Decode,
}

impl Silence {
    /// The published word.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Silence::Prefill => "prefill",
            Silence::Decode => "decode",
        }
    }
}

/// Spells a surface's events. After `finished` or `failed` nothing more is asked of it.
pub(crate) trait EventWriter: Send + 'static {
    /// The request has its bank.
    fn started(&mut self, started: &Started, out: &mut Frames);

    /// More text.
    fn delta(&mut self, delta: &Delta, out: &mut Frames);

    /// More of a tool call.
    fn call(&mut self, delta: &CallDelta, out: &mut Frames);

    /// What was likely at the next positions of the prompt; only where the request asked.
    fn prompt_logprobs(&mut self, _positions: Vec<PositionLogprobs>, _out: &mut Frames) {}

    /// What was likely at the position whose text comes next; only where the request asked.
    fn logprobs(&mut self, _position: PositionLogprobs, _out: &mut Frames) {}

    /// Nothing was sent for a while.
    fn silence(&mut self, silence: Silence, out: &mut Frames);

    /// The answer is complete.
    fn finished(&mut self, finished: &Finished, out: &mut Frames);

    /// There will be no more answer.
    fn failed(&mut self, error: &ApiError, out: &mut Frames);
}

/// One stream, as a state between frames.
struct Live<W> {
    writer: W,
    events: EventStream,
    ending: Ending,
    heartbeat: Heartbeat,
    silence: Silence,
    ended: bool,
}

/// Answers with a stream that begins at once. Dropping it cancels the request.
pub(crate) fn stream<W: EventWriter>(writer: W, events: EventStream, ending: Ending) -> Response {
    let heartbeat = Heartbeat::new();
    let live = Live { writer, events, ending, heartbeat, silence: Silence::Prefill, ended: false };
    sse::response(futures_util::stream::unfold(live, |mut live| async move {
        let bytes = live.next().await?;
        Some((bytes, live))
    }))
}

impl<W: EventWriter> Live<W> {
    /// The next bytes; `None` after the last.
    async fn next(&mut self) -> Option<Bytes> {
        let mut out = Frames::default();
        while !self.ended {
            tokio::select! {
                biased;
                event = self.events.next() => {
                    let event = event.unwrap_or(Event::Failed(RequestFault::EngineStopped));
                    self.write(event, &mut out);
                }
                () = self.heartbeat.silent() => self.writer.silence(self.silence, &mut out),
            }
            if !out.is_empty() {
                self.heartbeat.sent();
                return Some(out.into_bytes());
            }
        }
        None
    }

    fn write(&mut self, event: Event, out: &mut Frames) {
        match event {
            Event::Started(started) => self.writer.started(&started, out),
            // What was shown stays shown; the second attempt goes on from there.
            Event::Prefill { .. } | Event::Retrying => {}
            Event::PromptLogprobs(positions) => self.writer.prompt_logprobs(positions, out),
            Event::Logprobs(position) => self.writer.logprobs(position, out),
            Event::Call(delta) => {
                self.silence = Silence::Decode;
                self.ending.answer.push_call(&delta);
                self.writer.call(&delta, out);
            }
            Event::Delta(delta) => {
                self.silence = Silence::Decode;
                self.ending.answer.push(&delta);
                self.writer.delta(&delta, out);
            }
            Event::Finished(finished) => {
                self.ended = true;
                self.ending.finished(&finished);
                self.writer.finished(&finished, out);
            }
            Event::Failed(fault) => {
                self.ended = true;
                self.writer.failed(&self.ending.failed(&fault), out);
            }
        }
    }
}
