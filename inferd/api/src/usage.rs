//! `usage` and `timings`, beside every reply.

use ds4_engine::{Timings, Usage};
use serde_json::{Map, Value, json};

/// The `usage` object of the OpenAI chat family. Cached and written tokens together are the prompt.
pub(crate) fn openai(usage: &Usage) -> Value {
    let (prompt, completion) = (usage.prompt_tokens.0, usage.completion_tokens.0);
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens.0,
            "cache_write_tokens": prompt - usage.cached_tokens.0,
        },
        "completion_tokens_details": { "reasoning_tokens": usage.reasoning_tokens.0 },
    })
}

/// The `timings` object. Every number is finite; rates that mean nothing are left out.
pub(crate) fn timings(timings: &Timings, usage: &Usage) -> Value {
    let mut map = Map::new();
    map.insert("queued_ms".into(), rounded(timings.queued.as_secs_f64() * 1e3));
    if let Some(first) = timings.first_token {
        map.insert("ttft_ms".into(), rounded(first.as_secs_f64() * 1e3));
    }
    map.insert("prefill_tokens".into(), (usage.prompt_tokens.0 - usage.cached_tokens.0).into());
    map.insert("prefill_cached_tokens".into(), usage.cached_tokens.0.into());
    if let Some(rate) = timings.prefill_rate(usage) {
        map.insert("prefill_tok_s".into(), rounded(rate));
    }
    if let Some(rate) = timings.decode_rate(usage) {
        map.insert("decode_tok_s".into(), rounded(rate));
    }
    if let Some(tokens) = timings.tokens_per_step(usage) {
        map.insert("tok_per_step".into(), ((tokens * 100.0).round() / 100.0).into());
        map.insert("speculation_active".into(), true.into());
    }
    map.insert("reuse_kind".into(), timings.reuse.name().into());
    Value::Object(map)
}

/// One decimal.
fn rounded(value: f64) -> Value {
    ((value * 10.0).round() / 10.0).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_engine::ReuseKind;
    use ds4_units::Tokens;
    use std::time::Duration;

    fn usage(completion: u32) -> Usage {
        Usage {
            prompt_tokens: Tokens(100),
            cached_tokens: Tokens(60),
            completion_tokens: Tokens(completion),
            reasoning_tokens: Tokens(2),
        }
    }

    #[test]
    fn rates_and_times_have_one_decimal() {
        let timings = Timings {
            queued: Duration::from_millis(3),
            prefill: Duration::from_millis(300),
            first_token: Some(Duration::from_micros(304_260)),
            decode: Duration::from_millis(900),
            reuse: ReuseKind::Exact,
            guesses: 8,
            guesses_right: 5,
        };
        let expected = json!({"queued_ms": 3.0, "ttft_ms": 304.3, "prefill_tokens": 40, "prefill_cached_tokens": 60,
            "prefill_tok_s": 133.3, "decode_tok_s": 10.0, "tok_per_step": 2.0,
            "speculation_active": true, "reuse_kind": "exact"});
        assert_eq!(super::timings(&timings, &usage(10)), expected);
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        let timings = Timings {
            queued: Duration::ZERO,
            prefill: Duration::ZERO,
            first_token: None,
            decode: Duration::ZERO,
            reuse: ReuseKind::Cold,
            guesses: 0,
            guesses_right: 0,
        };
        let expected =
            json!({"queued_ms": 0.0, "prefill_tokens": 40, "prefill_cached_tokens": 60, "reuse_kind": "cold"});
        assert_eq!(super::timings(&timings, &usage(1)), expected);
    }
}
