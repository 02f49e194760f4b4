//! What a request must not be, and the exact words it gets.

use crate::client::Server;
use http::StatusCode;
use serde_json::{Value, json};

fn invalid(message: &str, param: Option<&str>) -> Value {
    json!({"error": {"message": message, "type": "invalid_request_error", "param": param, "code": null}})
}

async fn assert_refused(cases: Vec<(Value, &str, &str)>) {
    let server = Server::saying("never");
    for (body, message, param) in cases {
        let reply = server.post(body.to_string()).await;
        assert_eq!(reply.json(), invalid(message, Some(param)), "{body}");
        assert_eq!(reply.status, StatusCode::BAD_REQUEST);
        assert_eq!(reply.headers["x-should-retry"], "false");
    }
    assert!(server.controls().steps().is_empty(), "nothing was computed");
}

#[tokio::test]
async fn messages_that_are_wrong_are_named_by_their_path() {
    let message = |message: Value| json!({"messages": [{"content": "x"}, message]});
    let part = |part: Value| message(json!({"role": "user", "content": [{"type": "text", "text": "x"}, part]}));
    let call = |call: Value| message(json!({"role": "assistant", "tool_calls": [call]}));
    assert_refused(vec![
        (json!({}), "missing messages", "messages"),
        (json!({"messages": null}), "missing messages", "messages"),
        (json!({"messages": "x"}), "messages: must be an array", "messages"),
        (json!({"messages": []}), "messages: must not be empty", "messages"),
        (message(json!("x")), "messages[1]: must be an object", "messages[1]"),
        (message(json!({"role": 3})), "messages[1].role: must be a string", "messages[1].role"),
        (
            message(json!({"role": "wizard"})),
            "messages[1].role: unsupported \"wizard\"; use system, developer, user, assistant or tool",
            "messages[1].role",
        ),
        (
            message(json!({"role": "user", "content": 3})),
            "messages[1].content: must be a string or an array of parts",
            "messages[1].content",
        ),
        (part(json!(3)), "messages[1].content[1]: must be an object", "messages[1].content[1]"),
        (part(json!({"type": "text"})), "messages[1].content[1].text: is missing", "messages[1].content[1].text"),
        (
            part(json!({"type": "text", "text": 3})),
            "messages[1].content[1].text: must be a string",
            "messages[1].content[1].text",
        ),
        (
            part(json!({"type": "image_url", "image_url": {"url": "x"}})),
            "messages[1].content[1].type: unsupported \"image_url\": unsupported chat content block; this model reads \
             text",
            "messages[1].content[1].type",
        ),
        (
            call(json!({"id": "c", "type": "function"})),
            "messages[1].tool_calls[0].function: is missing",
            "messages[1].tool_calls[0].function",
        ),
        (
            call(json!({"id": "c", "function": {"arguments": "{}"}})),
            "messages[1].tool_calls[0].function.name: is missing",
            "messages[1].tool_calls[0].function.name",
        ),
        (
            call(json!({"id": "c", "function": {"name": "f"}})),
            "messages[1].tool_calls[0].function.arguments: is missing",
            "messages[1].tool_calls[0].function.arguments",
        ),
        (
            call(json!({"id": "c", "function": {"name": "f", "arguments": 3}})),
            "messages[1].tool_calls[0].function.arguments: must be a string or an object",
            "messages[1].tool_calls[0].function.arguments",
        ),
    ])
    .await;
}

#[tokio::test]
async fn fields_that_are_wrong_are_named() {
    let with = |name: &str, value: Value| json!({"messages": [{"content": "x"}], name: value});
    assert_refused(vec![
        (with("model", json!(3)), "model: must be a string", "model"),
        (with("max_tokens", json!(-1)), "max_tokens must be >= 0", "max_tokens"),
        (with("max_tokens", json!(1.5)), "max_tokens: must be an integer", "max_tokens"),
        (with("max_completion_tokens", json!(-1)), "max_completion_tokens must be >= 0", "max_completion_tokens"),
        (with("temperature", json!(2.5)), "temperature: must be a number from 0 to 2", "temperature"),
        (with("top_p", json!(0.0)), "top_p: must be a number above 0 and up to 1", "top_p"),
        (with("stream", json!(1)), "stream: must be true or false", "stream"),
        (with("stream_options", json!(true)), "stream_options: must be an object", "stream_options"),
        (
            with("stream_options", json!({"include_usage": "yes"})),
            "stream_options.include_usage: must be true or false",
            "stream_options.include_usage",
        ),
        (with("return_token_ids", json!(1)), "return_token_ids: must be true or false", "return_token_ids"),
        (with("thinking", json!("on")), "thinking: must be true, false or an object with a type", "thinking"),
        (with("think", json!("on")), "think: must be true or false", "think"),
        (
            with("reasoning_effort", json!("gigantic")),
            "reasoning_effort: must be none, off, minimal, low, medium, high, xhigh or max",
            "reasoning_effort",
        ),
        (with("reasoning", json!("high")), "reasoning: must be an object", "reasoning"),
        (with("parallel_tool_calls", json!(1)), "parallel_tool_calls: must be true or false", "parallel_tool_calls"),
    ])
    .await;
}

#[tokio::test]
async fn what_does_not_work_yet_is_refused_by_name() {
    let with = |name: &str, value: Value| json!({"messages": [{"content": "x"}], name: value});
    assert_refused(vec![
        (with("n", json!(2)), "n: is not supported; leave it out", "n"),
        (with("logit_bias", json!({"5": 1})), "logit_bias: is not supported; leave it out", "logit_bias"),
        (with("tool_choice", json!("required")), "tool_choice: needs tools, and there are none", "tool_choice"),
        (with("tool_choice", json!("sometimes")), "tool_choice=sometimes not supported", "tool_choice"),
    ])
    .await;
}

#[tokio::test]
async fn a_prompt_that_fills_the_context_is_refused_before_any_computing() {
    let server = Server::saying("never");
    let reply = server.post(json!({"messages": [{"content": "x".repeat(396)}]}).to_string()).await;
    let expected = json!({"error": {
        "message": "Prompt has 400 tokens, but the configured context size is 400 tokens",
        "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded",
        "n_prompt_tokens": 400, "n_ctx": 400,
    }});
    assert_eq!((reply.status, reply.json()), (StatusCode::BAD_REQUEST, expected));
    assert!(server.controls().steps().is_empty());
}

#[tokio::test]
async fn text_that_is_no_json_is_refused_with_its_place() {
    let server = Server::saying("never");
    for (body, message) in [
        ("", "invalid JSON request: line 1 column 0"),
        ("{\"messages\": [\n}", "invalid JSON request: line 2 column 1"),
        ("{} {}", "invalid JSON request: line 1 column 4"),
        ("\u{feff}{}", "invalid JSON request: line 1 column 1"),
    ] {
        let reply = server.post(body).await;
        assert_eq!((reply.status, reply.json()), (StatusCode::BAD_REQUEST, invalid(message, None)), "{body:?}");
    }
    assert_eq!(server.post("[]").await.json(), invalid("body: must be an object", Some("body")));
}

#[tokio::test]
async fn nesting_is_cut_at_its_limit_and_not_below() {
    let server = Server::saying("ok");
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!("{{\"messages\": [{{\"content\": \"x\"}}], \"unknown\": {open}{close}}}")
    };
    assert_eq!(server.post(nested(126)).await.status, StatusCode::OK);
    for depth in [127, 100_000] {
        let reply = server.post(nested(depth)).await;
        assert_eq!(reply.json(), invalid("invalid JSON request: nested 128 levels deep or more", None));
    }
}
