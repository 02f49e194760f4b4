//! Counted prompts, tokens and templates.

use crate::support::vocabulary::SIZE;
use crate::world::{CHAT, MESSAGES, RESPONSES, World, control, messages_tool, responses_tool};
use serde_json::json;

#[tokio::test]
async fn a_counted_prompt_is_the_one_that_is_charged() {
    let world = World::saying(&["ok"]);
    let message = json!({"model": "m", "max_tokens": 5, "system": [{"type": "text", "text": "Be brief.",
        "cache_control": {"type": "ephemeral"}}], "tools": [messages_tool()], "thinking": {"type": "enabled"},
        "messages": [{"role": "user", "content": "hello"}]});
    let counted = world.post("/v1/messages/count_tokens", &message).await.ok();
    let usage = world.post(MESSAGES, &message).await.ok()["usage"].clone();
    let parts = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
    let charged: u64 = parts.iter().map(|name| usage[name].as_u64().unwrap()).sum();
    assert_eq!(counted, json!({ "input_tokens": charged }));
    let response = json!({"input": "hello", "tools": [responses_tool()], "instructions": "Be brief."});
    let counted = world.post("/v1/responses/input_tokens", &response).await.ok();
    let charged = world.post(RESPONSES, &response).await.ok()["usage"]["input_tokens"].clone();
    assert_eq!(counted, json!({"object": "response.input_tokens", "input_tokens": charged}));
}

#[tokio::test]
async fn counting_needs_no_system_no_tools_and_no_budget_and_never_waits_for_a_bank() {
    let world = World::saying(&["ok"]);
    world.controls.hold();
    let running = world.send(CHAT, json!({"messages": [{"content": "x"}], "stream": true}).to_string()).await;
    let body = json!({"model": "m", "tools": [], "messages": [{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "alone"}]}]});
    assert!(world.post("/v1/messages/count_tokens", &body).await.ok()["input_tokens"].as_u64().unwrap() > 5);
    drop(running);
    world.controls.release();
}

#[tokio::test]
async fn a_text_becomes_tokens_and_tokens_become_the_text() {
    let world = World::saying(&["ok"]);
    let tokens = world.post("/tokenize", &json!({"prompt": "hé"})).await.ok();
    assert_eq!(
        tokens,
        json!({"count": 4, "max_model_len": 200_000, "tokens": [control("<｜begin▁of▁sentence｜>"), 104, 195, 169]})
    );
    let plain = json!({"content": "hi", "add_special_tokens": false, "return_token_strs": true});
    let tokens = world.post("/tokenize", &plain).await.ok();
    assert_eq!((&tokens["tokens"], &tokens["token_strs"]), (&json!([104, 105]), &json!(["h", "i"])));
    let text = world.post("/detokenize", &json!({"tokens": [104, 195, 169, control("<think>")]})).await.ok();
    assert_eq!(text["prompt"], "hé<think>");
    let refused = world.post("/detokenize", &json!({"tokens": [104, 99_999]})).await;
    assert_eq!(refused.json()["error"]["message"], format!("tokens[1]: must be a token id below {SIZE}"));
}

#[tokio::test]
async fn a_template_is_the_prompt_of_a_chat_request() {
    let world = World::saying(&["ok"]);
    let body = json!({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U <｜User｜>"}],
        "thinking": false});
    let prompt = world.prompt(&body).await;
    assert_eq!(prompt, "<｜begin▁of▁sentence｜>S<｜User｜>U <｜User｜><｜Assistant｜></think>");
    let tokens = world.post("/tokenize", &body).await.ok();
    let charged = world.post(CHAT, &body).await.ok()["usage"]["prompt_tokens"].clone();
    assert_eq!(tokens["count"], charged);
}
