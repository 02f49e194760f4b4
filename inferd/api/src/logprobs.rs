//! Log-probabilities: the fields that ask for them, and how the protocols spell them.

use crate::ApiError;
use crate::reader::Fields;
use ds4_engine::{Logprob, PositionLogprobs};
use ds4_model::Tokenizer;
use ds4_units::TokenId;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;

/// Most alternatives at a position of an answer.
pub(crate) const TOP_MAX: u32 = 20;

/// Most alternatives where those of a whole prompt may come with them.
const TOP_MAX_OF_COMPLETIONS: u32 = 5;

/// Reads `logprobs` (whether) and `top_logprobs` (how many alternatives) of a chat request.
pub(crate) fn of_chat(fields: Fields<'_>) -> Result<Option<usize>, ApiError> {
    let wanted = fields.bool("logprobs")?.unwrap_or(false);
    match top(fields, "top_logprobs", TOP_MAX)? {
        Some(count) if wanted => Ok(Some(count)),
        Some(1..) => Err(ApiError::about("top_logprobs", "top_logprobs: needs \"logprobs\": true")),
        _ => Ok(wanted.then_some(0)),
    }
}

/// Reads `logprobs` (how many alternatives) of a completion request.
pub(crate) fn of_completions(fields: Fields<'_>) -> Result<Option<usize>, ApiError> {
    // Some clients send what the chat form has.
    if fields.get("logprobs").is_some_and(|node| *node.value() == false) {
        return Ok(None);
    }
    top(fields, "logprobs", TOP_MAX_OF_COMPLETIONS)
}

/// Reads a number of alternatives.
pub(crate) fn top<'a>(fields: Fields<'a>, name: &'a str, most: u32) -> Result<Option<usize>, ApiError> {
    match fields.count(name)? {
        Some(count) if count > most => Err(ApiError::field(name.to_owned(), format!("must be at most {most}"))),
        count => Ok(count.map(|count| count as usize)),
    }
}

/// Finds the positions of the tokens that a piece of text decodes from. Positions come when tokens are drawn, text when
/// it is certain, and tokens that were not drawn have none.
#[derive(Debug, Default)]
pub(crate) struct Pairing {
    drawn: VecDeque<PositionLogprobs>,
}

impl Pairing {
    pub(crate) fn push(&mut self, position: PositionLogprobs) {
        self.drawn.push_back(position);
    }

    /// The positions of these tokens, which are the next of the answer.
    pub(crate) fn take(&mut self, tokens: &[TokenId]) -> Vec<PositionLogprobs> {
        let mut found = Vec::new();
        for token in tokens {
            if self.drawn.front().is_some_and(|position| position.drawn.token == *token) {
                found.extend(self.drawn.pop_front());
            }
        }
        found
    }
}

/// The `logprobs` object of a chat choice, for the tokens of its content.
pub(crate) fn chat(positions: &[PositionLogprobs], tokenizer: &Tokenizer) -> Value {
    json!({"content": list(positions, tokenizer), "refusal": null})
}

/// One object for each position.
pub(crate) fn list(positions: &[PositionLogprobs], tokenizer: &Tokenizer) -> Value {
    let one = |entry: &Logprob| {
        let bytes = tokenizer.token_bytes(entry.token).unwrap_or_default();
        json!({"token": String::from_utf8_lossy(bytes), "logprob": entry.logprob, "bytes": bytes})
    };
    // A control token between reasoning and content is no part of a text.
    let of_text = positions.iter().filter(|position| !tokenizer.is_control(position.drawn.token));
    of_text
        .map(|position| {
            let mut object = one(&position.drawn);
            object["top_logprobs"] = position.top.iter().map(one).collect();
            object
        })
        .collect()
}

/// The `logprobs` object of a completion choice. The first token of a prompt has no probability: `first` is given
/// alone.
pub(crate) fn completion(first: Option<TokenId>, positions: &[PositionLogprobs], tokenizer: &Tokenizer) -> Value {
    let (mut tokens, mut token_logprobs, mut top_logprobs, mut text_offset) = (vec![], vec![], vec![], vec![]);
    let mut offset = 0;
    let mut text_of = |token: TokenId| {
        let text = text_of(token, tokenizer);
        text_offset.push(offset);
        offset += text.chars().count();
        tokens.push(text);
    };
    if let Some(token) = first {
        text_of(token);
        token_logprobs.push(Value::Null);
        top_logprobs.push(Value::Null);
    }
    for position in positions {
        text_of(position.drawn.token);
        token_logprobs.push(position.drawn.logprob.into());
        top_logprobs.push(alternatives(position, tokenizer));
    }
    json!({
        "tokens": tokens,
        "token_logprobs": token_logprobs,
        "top_logprobs": top_logprobs,
        "text_offset": text_offset,
    })
}

/// The likeliest tokens by their text; the one that was drawn is always among them.
fn alternatives(position: &PositionLogprobs, tokenizer: &Tokenizer) -> Value {
    if position.top.is_empty() {
        return json!({});
    }
    let mut map = Map::new();
    for entry in position.top.iter().chain([&position.drawn]) {
        map.entry(text_of(entry.token, tokenizer)).or_insert_with(|| entry.logprob.into());
    }
    Value::Object(map)
}

/// A token's text, or its bytes where they are no text by themselves.
fn text_of(token: TokenId, tokenizer: &Tokenizer) -> String {
    let bytes = tokenizer.token_bytes(token).unwrap_or_default();
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |text, byte| format!("{text}\\x{byte:02x}")),
    }
}
