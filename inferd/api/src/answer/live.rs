//! The streamed form of a reply: events as they come, a sign of life when none comes.

use crate::ApiError;
use crate::ending::Ending;
use crate::sse::{self, Frames, Heartbeat};
use axum::response::Response;
use bytes::Bytes;
use ds4_engine::{CallDelta, Delta, Event, EventStream, Finished, PositionLogprobs, RequestFault, Started};
use std::time::Duration;

/// How long a stream's head waits for the engine's first word, so that a request that is refused gets the status that says
/// so. Who waits longer for a bank has a stream, with its signs of life, and learns there what became of the request.
const FIRST_WORD: Duration = Duration::from_secs(1);

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

    /// The answer begins again behind what was shown of it.
    fn retrying(&mut self) {}

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
    /// What the engine said before the stream began.
    first: Option<Event>,
    events: EventStream,
    ending: Ending,
    heartbeat: Heartbeat,
    silence: Silence,
    ended: bool,
}

/// Answers with a stream that begins when the request has its bank, or after [`FIRST_WORD`]. Dropping it cancels the
/// request.
///
/// # Errors
/// Why there is no answer, where that is known before the stream begins.
pub(crate) async fn stream<W: EventWriter>(
    writer: W,
    mut events: EventStream,
    mut ending: Ending,
) -> Result<Response, ApiError> {
    let first = match tokio::time::timeout(FIRST_WORD, events.next()).await {
        Ok(Some(Event::Failed(fault))) => return Err(ending.failed(&fault)),
        Ok(None) => return Err(ending.failed(&RequestFault::EngineStopped)),
        Ok(first) => first,
        Err(_) => None,
    };
    let heartbeat = Heartbeat::new();
    let live = Live { writer, first, events, ending, heartbeat, silence: Silence::Prefill, ended: false };
    Ok(sse::response(futures_util::stream::unfold(live, |mut live| async move {
        let bytes = live.next().await?;
        Some((bytes, live))
    })))
}

impl<W: EventWriter> Live<W> {
    /// The next bytes; `None` after the last.
    async fn next(&mut self) -> Option<Bytes> {
        let mut out = Frames::default();
        if let Some(first) = self.first.take() {
            self.write(first, &mut out);
        }
        while out.is_empty() && !self.ended {
            tokio::select! {
                biased;
                event = self.events.next() => {
                    let event = event.unwrap_or(Event::Failed(RequestFault::EngineStopped));
                    self.write(event, &mut out);
                }
                () = self.heartbeat.silent() => self.writer.silence(self.silence, &mut out),
            }
        }
        if out.is_empty() {
            return None;
        }
        self.heartbeat.sent();
        Some(out.into_bytes())
    }

    fn write(&mut self, event: Event, out: &mut Frames) {
        match event {
            Event::Started(started) => self.writer.started(&started, out),
            Event::Prefill { .. } => {}
            // What was shown stays shown; the second attempt goes on from there.
            Event::Retrying => self.writer.retrying(),
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
