//! From a conversation to the engine's events: what every generating surface does.

use crate::error::refused;
use crate::phase::Serving;
use crate::state::ClientPlace;
use crate::{ApiError, error};
use ds4_engine::{EventStream, Finished, GenerateRequest, RequestFault, Sampling};
use ds4_model::{AnswerReader, Conversation, PromptRecord};
use ds4_units::Tokens;

/// A conversation as the engine takes it.
pub(crate) struct Prepared {
    prompt: PromptRecord,
    reader: Box<dyn AnswerReader>,
}

/// How the answer is wanted.
pub(crate) struct Generation {
    pub(crate) sampling: Sampling,
    pub(crate) stop: Vec<String>,
    pub(crate) max_tokens: Tokens,
}

/// Renders and tokenises. Blocks for as long as that takes: call it on the pool.
pub(crate) fn prepare(serving: &Serving, conversation: &Conversation) -> Result<Prepared, ApiError> {
    let prompt = serving.codec.render(conversation, &serving.memory);
    let prompt = prompt.map_err(|error| ApiError::about("messages", format!("messages: {error}")))?;
    let reader = serving.codec.read_answer(&prompt, conversation, &serving.memory);
    Ok(Prepared { prompt: PromptRecord::new(&prompt, &serving.tokenizer), reader })
}

/// Hands a prepared request to the engine. `prompt_field` is what an error about the prompt points at.
pub(crate) fn submit(
    serving: &Serving,
    prepared: Prepared,
    generation: Generation,
    prompt_field: &str,
) -> Result<EventStream, ApiError> {
    let request = GenerateRequest {
        prompt: prepared.prompt,
        reader: prepared.reader,
        sampling: generation.sampling,
        stop: generation.stop,
        max_tokens: generation.max_tokens,
        constraint: None,
        top_logprobs: None,
        prompt_logprobs: false,
    };
    serving.engine.submit(request).map_err(|refusal| refused(refusal, prompt_field))
}

/// Writes the one log line of a request, whatever becomes of it: one that is dropped early was cancelled.
pub(crate) struct RequestLog {
    request_id: String,
    ended: bool,
    _place: ClientPlace,
}

impl RequestLog {
    pub(crate) fn new(request_id: String, place: ClientPlace) -> RequestLog {
        RequestLog { request_id, ended: false, _place: place }
    }

    pub(crate) fn finished(&mut self, finished: &Finished) {
        self.ended = true;
        let (usage, timings) = (&finished.usage, &finished.timings);
        tracing::info!(
            request_id = %self.request_id,
            prompt_tokens = usage.prompt_tokens.0,
            cached_tokens = usage.cached_tokens.0,
            completion_tokens = usage.completion_tokens.0,
            reuse = timings.reuse.name(),
            queued_ms = timings.queued.as_millis() as u64,
            ttft_ms = timings.first_token.map(|time| time.as_millis() as u64),
            "completed"
        );
    }

    pub(crate) fn failed(&mut self, fault: &RequestFault) -> ApiError {
        self.ended = true;
        tracing::warn!(request_id = %self.request_id, %fault, "failed");
        error::fault(fault)
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        if !self.ended {
            tracing::info!(request_id = %self.request_id, "canceled");
        }
    }
}
