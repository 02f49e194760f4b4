//! From the engine's events to a reply, whole or streamed.

mod live;

pub(crate) use live::{EventWriter, Silence, stream};

use crate::ApiError;
use crate::ending::Ending;
use crate::error::json_response;
use crate::logprobs::Pairing;
use crate::surface::Surface;
use axum::response::Response;
use ds4_engine::{CallDelta, Channel, Delta, Event, EventStream, PositionLogprobs, RequestFault};
use ds4_model::{CallEvent, CallId};
use http::StatusCode;

/// An answer as it grows.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) reasoning: String,
    pub(crate) content: String,
    /// Complete calls, and one that was cut off.
    pub(crate) calls: Vec<Call>,
    /// All tokens of the answer, in order.
    pub(crate) token_ids: Vec<u32>,
    /// What was likely at the prompt's positions from its second token on, for requests that ask.
    pub(crate) prompt_logprobs: Vec<PositionLogprobs>,
    /// What was likely at each position of the content, for requests that ask.
    pub(crate) logprobs: Vec<PositionLogprobs>,
    /// What was likely where the next tokens were drawn.
    pairing: Pairing,
}

/// A tool call as it grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) id: CallId,
    pub(crate) name: String,
    /// JSON text.
    pub(crate) arguments: String,
    /// Nothing is missing.
    pub(crate) complete: bool,
}

impl Answer {
    /// Takes a part of a call.
    pub(crate) fn push_call(&mut self, delta: &CallDelta) {
        match &delta.event {
            CallEvent::Start { id, name, .. } => {
                self.calls.push(Call { id: *id, name: name.clone(), arguments: String::new(), complete: false });
            }
            CallEvent::Arguments { json, .. } => {
                if let Some(call) = self.calls.last_mut() {
                    call.arguments.push_str(json);
                }
            }
            CallEvent::End { .. } => {
                if let Some(call) = self.calls.last_mut() {
                    call.complete = true;
                }
            }
        }
        self.pairing.take(&delta.token_ids);
        self.token_ids.extend(delta.token_ids.iter().map(|id| id.0));
    }

    pub(crate) fn push(&mut self, delta: &Delta) {
        let positions = self.pairing.take(&delta.token_ids);
        match delta.channel {
            Channel::Reasoning => self.reasoning.push_str(&delta.text),
            Channel::Content => {
                self.content.push_str(&delta.text);
                self.logprobs.extend(positions);
            }
        }
        self.token_ids.extend(delta.token_ids.iter().map(|id| id.0));
    }
}

/// Waits for the whole answer. Dropping the future cancels the request.
pub(crate) async fn whole<S: Surface>(
    surface: S,
    mut events: EventStream,
    mut ending: Ending,
) -> Result<Response, ApiError> {
    while let Some(event) = events.next().await {
        match event {
            Event::Delta(delta) => ending.answer.push(&delta),
            Event::Call(delta) => ending.answer.push_call(&delta),
            Event::PromptLogprobs(positions) => ending.answer.prompt_logprobs.extend(positions),
            Event::Logprobs(position) => ending.answer.pairing.push(position),
            // Nothing of the first attempt is part of the reply.
            Event::Retrying => ending.answer = Answer::default(),
            Event::Finished(finished) => {
                if let Some(second) = ending.ask_again(&finished) {
                    events = second;
                    continue;
                }
                ending.finished(&finished);
                let answer = std::mem::take(&mut ending.answer);
                return Ok(json_response(StatusCode::OK, &surface.whole(answer, &finished)));
            }
            Event::Failed(fault) => return Err(ending.failed(&fault)),
            Event::Started(_) | Event::Prefill { .. } => {}
        }
    }
    Err(ending.failed(&RequestFault::EngineStopped))
}
