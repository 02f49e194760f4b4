//! `POST /v1/completions`: the prompt as it is given.

mod chunks;
mod request;

use crate::answer::Answer;
use crate::ask::{Ask, Reading, Wording};
use crate::body::JsonBody;
use crate::surface::Surface;
use crate::{ApiError, generate, ids, logprobs, state, usage};
use chunks::Chunks;
use ds4_engine::{FinishReason, Finished, PositionLogprobs};
use ds4_model::Tokenizer;
use ds4_units::TokenId;
use serde_json::{Value, json};
use std::sync::Arc;

/// What the replies and chunks of one request share.
pub(crate) struct Completions {
    id: String,
    created: u64,
    model: String,
    token_ids: bool,
    include_usage: bool,
    /// Spells tokens, where the client wants their probabilities.
    logprobs: Option<Arc<Tokenizer>>,
    echo: Option<Echo>,
}

/// The prompt, to be repeated before the answer.
struct Echo {
    text: String,
    /// The first token of a prompt that came as tokens. Before one that came as text there is another that we add, so
    /// that all of its own tokens have a probability.
    first: Option<TokenId>,
}

impl Surface for Completions {
    const PROMPT_FIELD: &'static str = "prompt";

    type Writer = Chunks;

    fn read(body: &JsonBody, reading: Reading<'_>) -> Result<(Ask, Completions), ApiError> {
        let request = request::read(body, reading)?;
        let completions = Completions {
            id: ids::completion(),
            created: state::unix_time(),
            model: request.model,
            token_ids: request.token_ids,
            include_usage: request.include_usage,
            logprobs: request.ask.top_logprobs.map(|_| reading.serving.tokenizer.clone()),
            echo: request.echo.then(|| Echo::of(&request.ask.wording, reading)),
        };
        Ok((request.ask, completions))
    }

    fn whole(mut self, answer: Answer, finished: &Finished) -> Value {
        let (text, first) = match self.echo.take() {
            Some(echo) => (echo.text + &answer.content, echo.first),
            None => (answer.content, None),
        };
        let positions: Vec<PositionLogprobs> = answer.prompt_logprobs.into_iter().chain(answer.logprobs).collect();
        let logprobs = self.logprobs.as_deref().map(|tokenizer| logprobs::completion(first, &positions, tokenizer));
        let mut choice = json!({
            "text": text,
            "index": 0,
            "logprobs": logprobs,
            "finish_reason": finish_reason(&finished.reason),
        });
        if !answer.reasoning.is_empty() {
            choice["reasoning_content"] = answer.reasoning.into();
        }
        if self.token_ids {
            choice["token_ids"] = answer.token_ids.into();
        }
        let mut reply = self.envelope(json!([choice]));
        reply["usage"] = usage::openai(&finished.usage);
        reply["timings"] = usage::timings(&finished.timings, &finished.usage);
        reply
    }

    fn writer(self) -> Chunks {
        Chunks::new(self)
    }
}

impl Completions {
    fn envelope(&self, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }
}

impl Echo {
    fn of(wording: &Wording, reading: Reading<'_>) -> Echo {
        match wording {
            Wording::Tokens(tokens) => {
                Echo { text: generate::text_of(tokens, reading.serving), first: tokens.first().copied() }
            }
            Wording::Raw(text) => Echo { text: text.clone(), first: None },
            // Only raw prompts are repeated.
            Wording::Conversation(_) => Echo { text: String::new(), first: None },
        }
    }
}

fn finish_reason(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::EndOfTurn | FinishReason::StopString(_) | FinishReason::ToolCalls => "stop",
        FinishReason::Length => "length",
    }
}
