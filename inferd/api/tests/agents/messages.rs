//! What only the Messages surface does.

use crate::world::{MESSAGES, World, block, messages_tool};
use ds4_api::Settings;
use ds4_model::ThinkingMode;
use http::StatusCode;
use serde_json::{Value, json};

fn body(extra: Value) -> Value {
    let mut body = json!({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "x"}]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn a_reply_has_every_field_of_the_protocol() {
    let world = World::saying(&["hm</think>Yes."]);
    let reply = world.post(MESSAGES, &body(json!({"thinking": {"type": "adaptive"}}))).await;
    assert_eq!(reply.headers["request-id"], reply.headers["x-request-id"]);
    let mut message = reply.ok();
    let id = message["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("msg_") && id.len() == 28);
    message.as_object_mut().unwrap().remove("timings").unwrap();
    let expected = json!({"id": id, "type": "message", "role": "assistant", "model": "m", "content": [
            {"type": "thinking", "thinking": "hm", "signature": id}, {"type": "text", "text": "Yes."}],
        "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0,
            "output_tokens": 7}});
    assert_eq!(message, expected);
}

#[tokio::test]
async fn thinking_is_off_where_the_field_is_absent_and_the_operator_may_turn_that_round() {
    let world = World::saying(&["ok"]);
    let on_by_default =
        World::with(&["</think>ok"], Settings { anthropic_thinking: ThinkingMode::On, ..Settings::default() });
    for (extra, silent_on, thinks) in [
        (json!({}), false, false),
        (json!({"output_config": {"effort": "high"}}), false, false),
        (json!({"thinking": {"type": "disabled"}}), true, false),
        (json!({"thinking": {"type": "adaptive"}}), false, true),
        (json!({"thinking": {"type": "enabled", "budget_tokens": 1024, "display": "summarized"}}), false, true),
        (json!({}), true, true),
    ] {
        let world = if silent_on { &on_by_default } else { &world };
        world.post(MESSAGES, &body(extra.clone())).await.ok();
        let opening = if thinks { "<think>" } else { "</think>" };
        assert!(world.last_prompt().ends_with(opening), "{extra}");
    }
}

#[tokio::test]
async fn thinking_without_text_is_followed_by_an_empty_text() {
    let world = World::saying(&["hm</think>"]);
    let extra = json!({"thinking": {"type": "enabled"}});
    let reply = world.post(MESSAGES, &body(extra)).await.ok();
    assert_eq!(reply["content"][1], json!({"type": "text", "text": ""}));
    let extra = json!({"thinking": {"type": "enabled"}, "stream": true});
    let events = world.post(MESSAGES, &body(extra)).await.events();
    let started: Vec<&Value> = events
        .iter()
        .filter(|event| event.name == "content_block_start")
        .map(|event| &event.data["content_block"]["type"])
        .collect();
    assert_eq!(started, ["thinking", "text"]);
}

#[tokio::test]
async fn a_stop_sequence_is_named_and_a_spent_budget_too() {
    let world = World::saying(&["one two three"]);
    let reply = world.post(MESSAGES, &body(json!({"stop_sequences": [" t"]}))).await.ok();
    assert_eq!((&reply["stop_reason"], &reply["stop_sequence"]), (&json!("stop_sequence"), &json!(" t")));
    assert_eq!(reply["content"], json!([{"type": "text", "text": "one"}]));
    let reply = world.post(MESSAGES, &body(json!({"max_tokens": 3}))).await.ok();
    assert_eq!((&reply["stop_reason"], &reply["content"][0]["text"]), (&json!("max_tokens"), &json!("one")));
    let reply = world.post(MESSAGES, &body(json!({"max_tokens": 0}))).await.ok();
    assert_eq!((&reply["stop_reason"], &reply["content"]), (&json!("max_tokens"), &json!([])));
}

#[tokio::test]
async fn what_is_computed_counts_as_written_only_where_the_client_marks_the_cache() {
    let world = World::saying(&["ok"]);
    let marked = body(json!({"system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}]}));
    let usage = world.post(MESSAGES, &marked).await.ok()["usage"].clone();
    assert_eq!((&usage["input_tokens"], &usage["cache_creation_input_tokens"]), (&json!(0), &json!(6)));
    let again = world.post(MESSAGES, &marked).await.ok()["usage"].clone();
    assert!(again["cache_read_input_tokens"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn results_keep_their_order_and_errors_say_something() {
    let world = World::saying(&["ok"]);
    let messages = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "a", "name": "bash", "input": {}},
            {"type": "tool_use", "id": "b", "name": "bash", "input": {}},
            {"type": "tool_use", "id": "c", "name": "bash", "input": {}}]},
        {"role": "user", "content": [
            {"tool_use_id": "a", "type": "tool_result", "content": [{"type": "text", "text": "one"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}]},
            {"tool_use_id": "b", "type": "tool_result", "is_error": true},
            {"tool_use_id": "c", "type": "tool_result", "content": "three", "is_error": false},
            {"type": "text", "text": "and now?"}]}]);
    world.post(MESSAGES, &body(json!({"messages": messages, "tools": [messages_tool()]}))).await.ok();
    let prompt = world.last_prompt();
    let results = "<｜User｜><tool_result>one\n\n[image omitted]</tool_result>\n\n<tool_result>error</tool_result>\n\n\
                   <tool_result>three</tool_result>\n\nand now?<｜Assistant｜></think>";
    assert!(prompt.ends_with(results), "{prompt}");
}

#[tokio::test]
async fn errors_are_spelled_in_the_protocols_way() {
    let world = World::of(&["ok"], Settings::default(), 50, 1);
    for (extra, status, kind, message) in [
        (json!({"messages": []}), 400, "invalid_request_error", "messages: must not be empty"),
        (
            json!({"messages": [{"role": "tool", "content": "x"}]}),
            400,
            "invalid_request_error",
            "messages[0].role: unsupported \"tool\"; use user, assistant or system",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}),
            400,
            "invalid_request_error",
            "messages[0].content[0].type: unsupported \"image\": unsupported content block; \
            this model reads text",
        ),
        (
            json!({"mcp_servers": [{"url": "x"}]}),
            400,
            "invalid_request_error",
            "mcp_servers: is not supported; leave it out",
        ),
        (
            json!({"messages": [{"role": "user", "content": "x".repeat(60)}]}),
            400,
            "invalid_request_error",
            "prompt is too long: 64 tokens > 50 maximum",
        ),
    ] {
        let reply = world.post(MESSAGES, &body(extra)).await;
        let error = reply.json();
        assert_eq!((reply.status.as_u16(), &error["type"]), (status, &json!("error")), "{error}");
        assert_eq!((&error["error"]["type"], &error["error"]["message"]), (&json!(kind), &json!(message)));
        assert_eq!(error["request_id"], reply.headers["request-id"].to_str().unwrap());
        assert_eq!(reply.headers["x-should-retry"], "false");
    }
    let nothing = world.post("/v1/messages/batches", &json!({})).await;
    assert_eq!((nothing.status, &nothing.json()["error"]["type"]), (StatusCode::NOT_FOUND, &json!("not_found_error")));
}

#[tokio::test]
async fn calls_are_buffered_until_they_are_whole_unless_the_operator_wants_them_live() {
    let answer = block(&[("bash", &[("command", true, "echo hello")])]);
    let fragments = |live: bool| {
        let answer = answer.clone();
        async move {
            let world = World::with(&[&answer], Settings { anthropic_live_args: live, ..Settings::default() });
            let extra = json!({"tools": [messages_tool()], "stream": true, "max_tokens": 500});
            let events = world.post(MESSAGES, &body(extra)).await.events();
            let json: Vec<String> = events
                .iter()
                .filter_map(|event| event.data["delta"]["partial_json"].as_str().map(str::to_owned))
                .collect();
            json
        }
    };
    assert_eq!(fragments(false).await, ["{\"command\":\"echo hello\"}"]);
    let live = fragments(true).await;
    assert!(live.len() > 5 && live.concat() == "{\"command\":\"echo hello\"}", "{live:?}");
}
