//! Whole chat replies.

use crate::client::{Reply, Server, settings};
use ds4_api::Settings;
use ds4_model::ThinkingMode;
use http::StatusCode;
use serde_json::{Value, json};

/// Takes out what differs from run to run, after checking that it is there and finite.
pub(crate) fn settled(mut body: Value) -> Value {
    let id = body["id"].as_str().unwrap().to_owned();
    let digits = id.strip_prefix("chatcmpl-").unwrap();
    assert!(digits.len() == 24 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    body["id"] = "ID".into();
    assert!(body["created"].as_u64().unwrap() > 1_700_000_000);
    body["created"] = 0.into();
    if let Some(timings) = body.get_mut("timings").and_then(Value::as_object_mut) {
        for name in ["queued_ms", "ttft_ms", "prefill_tok_s", "decode_tok_s"] {
            if let Some(time) = timings.remove(name) {
                assert!(time.as_f64().unwrap().is_finite(), "{name}");
            }
        }
    }
    body
}

async fn ask(server: &Server, extra: Value) -> Reply {
    let mut body = json!({"messages": [{"role": "user", "content": "Why?"}], "temperature": 0});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    server.post(body.to_string()).await
}

#[tokio::test]
async fn a_reply_has_every_field_of_the_contract() {
    let server = Server::saying("Because.");
    let reply = ask(&server, json!({"model": "what-i-call-it", "return_token_ids": true})).await;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.headers["content-type"], "application/json");
    assert!(reply.headers["x-request-id"].to_str().unwrap().starts_with("req_"));
    let expected = json!({
        "id": "ID", "object": "chat.completion", "created": 0, "model": "what-i-call-it",
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": "Because."},
            "finish_reason": "stop",
            "logprobs": null,
            "token_ids": [66, 101, 99, 97, 117, 115, 101, 46],
        }],
        "usage": {
            "prompt_tokens": 8, "completion_tokens": 8, "total_tokens": 16,
            "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 8},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
        "timings": {"prefill_tokens": 8, "prefill_cached_tokens": 0, "reuse_kind": "cold"},
    });
    assert_eq!(settled(reply.json()), expected);
}

#[tokio::test]
async fn null_is_absent_in_every_optional_field() {
    let server = Server::saying("ok");
    let names = [
        "model",
        "max_tokens",
        "max_completion_tokens",
        "top_p",
        "min_p",
        "top_k",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "thinking",
        "reasoning_effort",
        "think",
        "enable_thinking",
        "chat_template_kwargs",
        "reasoning",
        "response_format",
        "return_token_ids",
        "logprobs",
        "top_logprobs",
        "n",
        "logit_bias",
        "frequency_penalty",
        "presence_penalty",
        "prediction",
        "modalities",
        "audio",
        "user",
        "metadata",
        "store",
        "service_tier",
        "prompt_cache_key",
        "verbosity",
        "safety_identifier",
    ];
    let nulls: serde_json::Map<String, Value> = names.iter().map(|name| (name.to_string(), Value::Null)).collect();
    let reply = ask(&server, nulls.into()).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    assert_eq!(reply.json()["model"], "test-model");
}

#[tokio::test]
async fn fields_that_mean_nothing_here_are_skipped() {
    let server = Server::saying("ok");
    let extra = json!({"user": 3, "metadata": {"a": 1}, "store": true, "service_tier": "auto", "verbosity": "low",
        "unknown_field": [1, {}], "tools": [], "tool_choice": "auto", "parallel_tool_calls": false,
        "response_format": {"type": "text"}});
    assert_eq!(ask(&server, extra).await.status, StatusCode::OK);
    let forbidden = json!({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"});
    assert_eq!(ask(&server, forbidden).await.status, StatusCode::OK);
}

#[tokio::test]
async fn reasoning_stands_apart_from_the_answer() {
    let server = Server::saying("hm</think>Yes.");
    let reply = ask(&server, json!({"thinking": {"type": "enabled"}})).await.json();
    let message = &reply["choices"][0]["message"];
    assert_eq!(*message, json!({"role": "assistant", "content": "Yes.", "reasoning_content": "hm"}));
    assert_eq!(reply["usage"]["completion_tokens_details"]["reasoning_tokens"], 2);
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn reasoning_without_an_answer_counts_as_cut_off() {
    let server = Server::saying("hm");
    let reply = ask(&server, json!({"think": true})).await.json();
    assert_eq!(reply["choices"][0]["message"], json!({"role": "assistant", "content": "", "reasoning_content": "hm"}));
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn the_budget_ends_an_answer_and_its_newer_name_wins() {
    let server = Server::saying("Because.");
    for (extra, content) in [
        (json!({"max_tokens": 3}), "Bec"),
        (json!({"max_completion_tokens": 2, "max_tokens": 5}), "Be"),
        (json!({"max_tokens": 5, "max_completion_tokens": 2}), "Be"),
        (json!({"max_tokens": 0}), ""),
    ] {
        let reply = ask(&server, extra).await.json();
        assert_eq!(reply["choices"][0]["message"]["content"], content);
        assert_eq!(reply["choices"][0]["finish_reason"], "length");
    }
    let reply = ask(&server, json!({"max_tokens": 99_999_999_999u64})).await.json();
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn a_stop_string_ends_the_answer_and_is_not_part_of_it() {
    let server = Server::saying("one two three");
    for stop in [json!(" t"), json!(["never", " t", ""])] {
        let reply = ask(&server, json!({"stop": stop})).await.json();
        assert_eq!(reply["choices"][0]["message"]["content"], "one");
        assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    }
}

#[tokio::test]
async fn the_next_turn_reports_what_was_cached() {
    let server = Server::saying("Fine.");
    let turn = |messages: Value| json!({"messages": messages, "temperature": 0}).to_string();
    server.post(turn(json!([{"content": "How?"}]))).await;
    let next = json!([{"content": "How?"}, {"role": "assistant", "content": "Fine."}, {"content": "Good."}]);
    let reply = server.post(turn(next)).await.json();
    // BOS, user, 4 letters, assistant, marker; 5 letters of the answer. New: end mark, user, 5 letters, 2 openers.
    assert_eq!(reply["usage"]["prompt_tokens_details"], json!({"cached_tokens": 13, "cache_write_tokens": 9}));
    assert_eq!(reply["timings"]["reuse_kind"], "exact");
}

#[tokio::test]
async fn a_request_that_cannot_be_computed_is_a_server_error_without_its_reason() {
    let server = Server::saying("never");
    server.controls().poison(ds4_units::TokenId(b'W'.into()));
    let reply = ask(&server, json!({})).await;
    let expected = json!({"error": {"message": "the engine could not compute this request", "type": "server_error",
        "param": null, "code": null}});
    assert_eq!((reply.status, reply.json()), (StatusCode::INTERNAL_SERVER_ERROR, expected));
}

#[tokio::test]
async fn the_many_spellings_of_thinking_are_understood() {
    let server = Server::with("x", Settings { thinking: ThinkingMode::On, ..settings() });
    for (extra, thinking) in [
        (json!({}), ThinkingMode::On),
        (json!({"thinking": false}), ThinkingMode::Off),
        (json!({"thinking": {"type": "disabled"}}), ThinkingMode::Off),
        (json!({"thinking": {"type": "adaptive"}}), ThinkingMode::On),
        (json!({"enable_thinking": false}), ThinkingMode::Off),
        (json!({"chat_template_kwargs": {"enable_thinking": false}}), ThinkingMode::Off),
        (json!({"chat_template_kwargs": {"thinking": false, "other": 1}}), ThinkingMode::Off),
        (json!({"reasoning": {"enabled": false}}), ThinkingMode::Off),
        (json!({"reasoning": {"effort": "none"}}), ThinkingMode::Off),
        (json!({"reasoning_effort": "off"}), ThinkingMode::Off),
        (json!({"reasoning_effort": "high"}), ThinkingMode::On),
        (json!({"thinking": true, "reasoning_effort": "none"}), ThinkingMode::On),
        (json!({"model": "plain-fast"}), ThinkingMode::Off),
        (json!({"model": "plain-fast", "thinking": true}), ThinkingMode::On),
        (json!({"model": "plain-thinker", "reasoning_effort": "none"}), ThinkingMode::Off),
    ] {
        assert_eq!(ask(&server, extra.clone()).await.status, StatusCode::OK);
        let rendered = server.bench.codec.rendered.lock().unwrap().last().unwrap().clone();
        assert_eq!(rendered.thinking, thinking, "{extra}");
    }
}
