//! Requests to the engine, and when their tokens came.

use crate::error::BenchError;
use ds4_engine::{EngineHandle, Event, Finished, GenerateRequest, Keep, RequestFault, Sampling};
use ds4_model::{PromptCodec, PromptRecord, Tokenizer};
use ds4_units::{TokenId, Tokens};
use std::sync::Arc;
use std::time::Instant;

/// What a request needs, and the tokens that prompts are made of.
pub(crate) struct Requests {
    pub(crate) engine: EngineHandle,
    pub(crate) codec: Arc<dyn PromptCodec>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) tokens: Vec<TokenId>,
}

/// What became of a request.
pub(crate) struct Answered {
    pub(crate) finished: Finished,
    /// When tokens came, and how many at once.
    pub(crate) arrivals: Vec<(Instant, usize)>,
}

impl Requests {
    /// A prompt of so many tokens, the text's from `first` on.
    pub(crate) fn prompt(&self, first: usize, len: Tokens) -> PromptRecord {
        let mut record = PromptRecord::default();
        for &token in self.tokens.iter().cycle().skip(first % self.tokens.len()).take(len.index()) {
            record.push_generated(token, &self.tokenizer);
        }
        record
    }

    /// Writes an answer of so many tokens to a prompt. Blocks until its end.
    pub(crate) fn answer(&self, prompt: PromptRecord, tokens: Tokens) -> Result<Answered, BenchError> {
        let mut events = self.engine.submit(GenerateRequest {
            prompt,
            reader: self.codec.read_raw(),
            sampling: Sampling::GREEDY,
            stop: Vec::new(),
            max_tokens: tokens,
            constraints: Vec::new(),
            top_logprobs: None,
            prompt_logprobs: false,
            gaps: None,
            keep: Keep::Turn,
        })?;
        let mut arrivals = Vec::new();
        while let Some(event) = events.blocking_next() {
            match event {
                Event::Delta(delta) => arrivals.push((Instant::now(), delta.token_ids.len())),
                Event::Finished(finished) => return Ok(Answered { finished, arrivals }),
                Event::Failed(fault) => return Err(fault.into()),
                _ => {}
            }
        }
        Err(RequestFault::EngineStopped.into())
    }

    /// One request of every kind of step that nobody measures: the first ones take memory.
    pub(crate) fn warm_up(&self) -> Result<(), BenchError> {
        // Other tokens than any measured prompt begins with.
        let len = Tokens(self.engine.info().context.0.saturating_sub(10).clamp(1, 512));
        self.answer(self.prompt(self.tokens.len() / 2, len), Tokens(8)).map(drop)
    }
}
