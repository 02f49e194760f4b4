//! Token counts as the Messages protocol states them: the prompt in three parts that do not overlap.

use ds4_engine::{Started, Usage};
use ds4_units::Tokens;
use serde_json::{Value, json};

/// The counts of a whole reply.
pub(super) fn whole(usage: &Usage, caching: bool) -> Value {
    let mut counts = prompt(usage.prompt_tokens, usage.cached_tokens, caching);
    counts["output_tokens"] = usage.completion_tokens.0.into();
    counts
}

/// What is known when the answer begins.
pub(super) fn at_start(started: &Started, caching: bool) -> Value {
    let mut counts = prompt(started.prompt_tokens, started.cached_tokens, caching);
    counts["output_tokens"] = 0.into();
    counts
}

/// What is computed counts as written where the client marked what to keep, else as plain input.
fn prompt(prompt: Tokens, cached: Tokens, caching: bool) -> Value {
    let computed = prompt.0 - cached.0;
    let (input, written) = if caching { (0, computed) } else { (computed, 0) };
    json!({
        "input_tokens": input,
        "cache_read_input_tokens": cached.0,
        "cache_creation_input_tokens": written,
    })
}
