//! What of a request reaches the prompt.

use crate::client::Server;
use ds4_model::{Conversation, Effort, Message};
use http::StatusCode;
use serde_json::{Value, json};

async fn conversation(messages: Value, extra: Value) -> Conversation {
    let server = Server::saying("ok");
    let mut body = json!({"messages": messages});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let reply = server.post(body.to_string()).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let rendered = server.bench.codec.rendered.lock().unwrap();
    assert_eq!(rendered.len(), 1, "a request is rendered once");
    rendered[0].clone()
}

/// Role and text of each message.
async fn texts(messages: Value) -> Vec<(&'static str, String)> {
    let conversation = conversation(messages, json!({})).await;
    conversation
        .messages
        .iter()
        .map(|message| match message {
            Message::System(system) => ("system", system.text.as_str().to_owned()),
            Message::User(user) => ("user", user.text.as_str().to_owned()),
            Message::Assistant(assistant) => ("assistant", assistant.content.as_str().to_owned()),
            Message::ToolResult(result) => ("result", result.text.as_str().to_owned()),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn owned(list: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    list.iter().map(|(role, text)| (*role, text.to_string())).collect()
}

#[tokio::test]
async fn leading_instructions_are_joined_and_late_ones_stay_in_place() {
    let messages = json!([
        {"role": "system", "content": "a"}, {"role": "developer", "content": "b"}, {"role": "system", "content": "c"},
        {"role": "user", "content": "d"}, {"role": "system", "content": "e"}, {"role": "user", "content": "f"},
    ]);
    let expected = [("system", "a\n\nb\n\nc"), ("user", "d"), ("user", "e"), ("user", "f")];
    assert_eq!(texts(messages).await, owned(&expected));
}

#[tokio::test]
async fn content_is_a_string_or_parts_or_nothing() {
    let messages = json!([
        {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"text": "c"}]},
        {"role": "assistant", "content": ""}, {"role": "user", "content": null}, {"role": "assistant", "content": []},
        {"role": "user"},
    ]);
    let expected = [("user", "abc"), ("assistant", ""), ("user", ""), ("assistant", ""), ("user", "")];
    assert_eq!(texts(messages).await, owned(&expected));
}

#[tokio::test]
async fn half_a_surrogate_pair_in_a_text_does_not_end_a_conversation() {
    let server = Server::saying("ok");
    let reply = server.post(r#"{"messages": [{"content": "cut \ud83d"}]}"#).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    let rendered = server.bench.codec.rendered.lock().unwrap();
    let Message::User(user) = &rendered[0].messages[0] else { panic!() };
    assert_eq!(user.text.as_str(), "cut \u{FFFD}");
}

#[tokio::test]
async fn past_calls_and_results_are_rendered_even_where_calls_do_not_work() {
    let messages = json!([
        {"role": "user", "content": "do it"},
        {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1.50}"}},
            {"id": "c2", "type": "function", "function": {"name": "g", "arguments": {}}},
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "tool", "tool_call_id": "unknown", "content": [{"type": "text", "text": "odd"}]},
        {"role": "function", "name": "g", "content": "old"},
    ]);
    let conversation = conversation(messages, json!({})).await;
    let Message::Assistant(assistant) = &conversation.messages[1] else { panic!() };
    assert_eq!(assistant.reasoning.as_str(), "hm");
    let names: Vec<_> = assistant.tool_calls.iter().map(|call| (call.id.as_str(), call.name.as_str())).collect();
    assert_eq!(names, [("c1", "f"), ("c2", "g")]);
    let results: Vec<_> = conversation.messages[2..]
        .iter()
        .map(|message| match message {
            Message::ToolResult(result) => (result.call_id.as_str(), result.text.as_str()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(results, [("c1", "done"), ("unknown", "odd"), ("g", "old")]);
}

#[tokio::test]
async fn a_last_assistant_message_is_continued() {
    let open = json!([{"content": "count"}, {"role": "assistant", "content": "1, 2"}]);
    assert!(conversation(open, json!({})).await.prefill);
    let closed = json!([{"role": "assistant", "content": "1, 2"}, {"content": "go on"}]);
    assert!(!conversation(closed, json!({})).await.prefill);
}

#[tokio::test]
async fn efforts_are_levels() {
    for (extra, effort) in [
        (json!({}), None),
        (json!({"reasoning_effort": "minimal"}), Some(Effort::Low)),
        (json!({"reasoning_effort": "medium"}), Some(Effort::Low)),
        (json!({"reasoning": {"effort": "xhigh"}}), Some(Effort::High)),
        (json!({"reasoning_effort": "max"}), Some(Effort::Max)),
        (json!({"reasoning_effort": "none"}), None),
    ] {
        assert_eq!(conversation(json!([{"content": "x"}]), extra).await.effort, effort);
    }
}
