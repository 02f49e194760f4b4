//! What happens when a request ends, however it ends: its log line, its trace, what is kept of its turn.

use crate::answer::{Answer, Call};
use crate::continuation::{Kept, Protocol};
use crate::fuse::BodyHash;
use crate::slip::Slip;
use crate::state::{ClientPlace, Shared};
use crate::trace::Entry;
use crate::{ApiError, error, slip};
use ds4_engine::{EventStream, Finished, RequestFault};
use ds4_model::{AssistantMessage, PromptText, ToolArguments, ToolCall};
use std::time::Instant;

/// Sees a request to its end. One that is dropped early was cancelled.
pub(crate) struct Ending {
    pub(crate) shared: Shared,
    /// The label of its surface.
    pub(crate) surface: &'static str,
    pub(crate) received: Instant,
    pub(crate) request_id: String,
    pub(crate) body: BodyHash,
    /// The turn without its answer.
    pub(crate) kept: Option<Kept>,
    pub(crate) trace: Option<Entry>,
    /// The answer may be a slip.
    pub(crate) slip: Option<Slip>,
    pub(crate) answer: Answer,
    pub(crate) ended: bool,
    pub(crate) _place: ClientPlace,
}

impl Ending {
    /// The answer is complete.
    pub(crate) fn finished(&mut self, finished: &Finished) {
        self.ended = true;
        self.note_slip(finished);
        self.log(finished);
        self.shared.telemetry.answered(self.surface, finished, self.received.elapsed());
        if let Some(mut kept) = self.kept.take() {
            kept.said.transcript.answer(said(&self.answer, kept.protocol));
            self.shared.continuations.keep(kept);
        }
        if let (Some(entry), Some(trace)) = (self.trace.take(), &self.shared.traces.all) {
            trace.write(entry.finished(&self.answer, finished));
        }
    }

    /// When the answer is a slip and the request is to be asked again: the events of the second answer, of which this
    /// is the end from now on.
    pub(crate) fn ask_again(&mut self, finished: &Finished) -> Option<EventStream> {
        let gaps = self.shared.telemetry.gaps(self.surface);
        self.note_slip(finished)?.ask_again(Some(gaps)).inspect(|_| self.answer = Answer::default())
    }

    /// Writes a slip down, and gives back what is needed to ask again.
    fn note_slip(&mut self, finished: &Finished) -> Option<Slip> {
        let mut slip = self.slip.take().filter(|_| slip::is_slip(&self.answer, finished))?;
        tracing::info!(request_id = %self.request_id, "the answer announces a tool call and makes none");
        if let (Some(line), Some(slips)) = (slip.line(&self.answer, finished), &self.shared.traces.slips) {
            slips.write(line);
        }
        Some(slip)
    }

    /// There is no answer, or no more of it.
    pub(crate) fn failed(&mut self, fault: &RequestFault) -> ApiError {
        self.ended = true;
        tracing::warn!(request_id = %self.request_id, %fault, "failed");
        if let (Some(entry), Some(trace)) = (self.trace.take(), &self.shared.traces.all) {
            trace.write(entry.failed(&self.answer, fault));
        }
        let recurring = matches!(fault, RequestFault::Step(_)).then(|| self.shared.fuse.fault(self.body)).flatten();
        match fault {
            RequestFault::QueuedTooLong { .. } => self.shared.telemetry.shed("queue_age"),
            RequestFault::SlowReader { .. } => self.shared.telemetry.shed("slow_reader"),
            _ => {}
        }
        let error = error::fault(fault);
        recurring.unwrap_or(error)
    }

    fn log(&self, finished: &Finished) {
        let (usage, timings) = (&finished.usage, &finished.timings);
        tracing::info!(
            request_id = %self.request_id,
            prompt_tokens = usage.prompt_tokens.0,
            cached_tokens = usage.cached_tokens.0,
            completion_tokens = usage.completion_tokens.0,
            calls = finished.answer.calls,
            tool_outcome = finished.answer.outcome.map(|outcome| outcome.name()),
            reuse = timings.reuse.name(),
            queued_ms = timings.queued.as_millis() as u64,
            ttft_ms = timings.first_token.map(|time| time.as_millis() as u64),
            "completed"
        );
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        tracing::info!(request_id = %self.request_id, "canceled");
        if let (Some(entry), Some(trace)) = (self.trace.take(), &self.shared.traces.all) {
            trace.write(entry.canceled(&self.answer));
        }
    }
}

/// An answer as a client would send it back.
fn said(answer: &Answer, protocol: Protocol) -> AssistantMessage {
    let prefix = match protocol {
        Protocol::Responses => "call_",
        Protocol::Messages => "toolu_",
    };
    let call = |call: &Call| ToolCall {
        id: call.id.with_prefix(prefix),
        name: call.name.clone(),
        arguments: ToolArguments::parse(&call.arguments),
    };
    AssistantMessage {
        reasoning: PromptText::new(answer.reasoning.as_str()),
        content: PromptText::new(answer.content.as_str()),
        // Nobody answers a call that was cut off.
        tool_calls: answer.calls.iter().filter(|call| call.complete).map(call).collect(),
    }
}
