//! What happens when a request ends, however it ends: its log line, its trace, what is kept of its turn.

use crate::answer::{Answer, Call};
use crate::continuation::{Kept, Protocol};
use crate::fuse::BodyHash;
use crate::state::{ClientPlace, Shared};
use crate::trace::Entry;
use crate::{ApiError, error};
use ds4_engine::{Finished, RequestFault};
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
    pub(crate) answer: Answer,
    pub(crate) ended: bool,
    pub(crate) _place: ClientPlace,
}

impl Ending {
    /// The answer is complete.
    pub(crate) fn finished(&mut self, finished: &Finished) {
        self.ended = true;
        self.log(finished);
        self.shared.telemetry.answered(self.surface, finished, self.received.elapsed());
        if let Some(mut kept) = self.kept.take() {
            kept.said.transcript.answer(said(&self.answer, kept.protocol));
            self.shared.continuations.keep(kept);
        }
        if let (Some(entry), Some(trace)) = (self.trace.take(), &self.shared.trace) {
            trace.write(entry.finished(&self.answer, finished));
        }
    }

    /// There is no answer, or no more of it.
    pub(crate) fn failed(&mut self, fault: &RequestFault) -> ApiError {
        self.ended = true;
        tracing::warn!(request_id = %self.request_id, %fault, "failed");
        if let (Some(entry), Some(trace)) = (self.trace.take(), &self.shared.trace) {
            trace.write(entry.failed(&self.answer, fault));
        }
        let recurring = matches!(fault, RequestFault::Step(_)).then(|| self.shared.fuse.fault(self.body)).flatten();
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
        if let (Some(entry), Some(trace)) = (self.trace.take(), &self.shared.trace) {
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
