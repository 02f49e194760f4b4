//! Whole streams, event by event, on every surface.

use crate::world::{
    CHAT, COMPLETIONS, MESSAGES, RESPONSES, Sent, World, block, chat_tool, messages_tool, responses_tool,
};
use serde_json::{Value, json};

/// What the model says in these streams: reasoning, text, two calls.
fn answer() -> String {
    let calls =
        block(&[("bash", &[("command", true, "ls"), ("limit", false, "3")]), ("bash", &[("command", true, "pwd")])]);
    format!("hm</think>Sure.{calls}")
}

/// Takes out what differs from run to run, after checking that it is there.
fn settle(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, value) in map.iter_mut() {
                let text = value.as_str().unwrap_or_default();
                let is_id = matches!(name.as_str(), "id" | "call_id" | "item_id" | "signature");
                if let Some(prefix) = text.find('_').filter(|_| is_id) {
                    assert!(text[prefix + 1..].len() >= 24, "{text}");
                    *value = format!("{}#", &text[..=prefix]).into();
                } else if is_id && text.contains('-') {
                    *value = format!("{}#", &text[..=text.find('-').unwrap()]).into();
                } else if matches!(name.as_str(), "created" | "created_at" | "timings") {
                    *value = 0.into();
                } else {
                    settle(value);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(settle),
        _ => {}
    }
}

async fn stream(path: &str, body: Value) -> Vec<Sent> {
    let world = World::saying(&[&answer()]);
    let mut events = world.post(path, &body).await.events();
    events.iter_mut().for_each(|event| settle(&mut event.data));
    events
}

/// Joins the text of events that differ in `pointer` only, as they come one token at a time.
fn joined(events: Vec<Sent>, pointers: &[&str]) -> Vec<Sent> {
    let mut joined: Vec<Sent> = Vec::new();
    for event in events {
        let text = |event: &Sent, pointer: &str| event.data.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let pointer = pointers.iter().find(|pointer| text(&event, pointer).is_some());
        let same = pointer.filter(|pointer| {
            joined.last().is_some_and(|last| {
                let without = |event: &Sent| {
                    let mut data = event.data.clone();
                    *data.pointer_mut(pointer).unwrap() = "".into();
                    data.as_object_mut().unwrap().remove("sequence_number");
                    (event.name.clone(), data)
                };
                text(last, pointer).is_some_and(|text| !text.is_empty()) && without(last) == without(&event)
            })
        });
        match same {
            Some(pointer) => {
                let more = text(&event, pointer).unwrap();
                let last = joined.last_mut().unwrap().data.pointer_mut(pointer).unwrap();
                *last = format!("{}{more}", last.as_str().unwrap()).into();
            }
            None => joined.push(event),
        }
    }
    joined
}

#[tokio::test]
async fn a_chat_stream_is_role_reasoning_text_calls_reason_usage_done() {
    let body = json!({"messages": [{"content": "x"}], "tools": [chat_tool()], "stream": true, "model": "m",
        "stream_options": {"include_usage": true}});
    let deltas = [
        "/choices/0/delta/content",
        "/choices/0/delta/reasoning_content",
        "/choices/0/delta/tool_calls/0/function/arguments",
    ];
    let events = joined(stream(CHAT, body).await, &deltas);
    let mut parts: Vec<Value> = Vec::new();
    for event in &events[..events.len() - 2] {
        assert_eq!(event.data["object"], "chat.completion.chunk");
        assert_eq!((&event.data["id"], &event.data["usage"]), (&json!("chatcmpl-#"), &Value::Null));
        assert!(event.data.get("usage").is_some(), "announced");
        parts.push(json!([event.data["choices"][0]["delta"], event.data["choices"][0]["finish_reason"]]));
    }
    let start = |index: u32| {
        json!([{"tool_calls": [{"index": index, "id": "call_#", "type": "function",
        "function": {"name": "bash", "arguments": ""}}]}, null])
    };
    let more =
        |index: u32, json: &str| json!([{"tool_calls": [{"index": index, "function": {"arguments": json}}]}, null]);
    let expected = [
        json!([{"role": "assistant", "content": ""}, null]),
        json!([{"reasoning_content": "hm"}, null]),
        json!([{"content": "Sure."}, null]),
        start(0),
        more(0, "{\"command\":\"ls\",\"limit\":3}"),
        start(1),
        more(1, "{\"command\":\"pwd\"}"),
        json!([{}, "tool_calls"]),
    ];
    assert_eq!(parts, expected);
    let usage = &events[events.len() - 2].data;
    assert_eq!(usage["choices"], json!([]));
    let counts = &usage["usage"];
    let number = |name: &str| counts[name].as_u64().unwrap();
    assert_eq!(number("prompt_tokens") + number("completion_tokens"), number("total_tokens"));
    assert_eq!(counts["completion_tokens_details"]["reasoning_tokens"], 2);
    assert_eq!(events[events.len() - 1].data, "[DONE]");
}

#[tokio::test]
async fn a_messages_stream_opens_and_closes_every_block() {
    let body = json!({"messages": [{"role": "user", "content": "x"}], "tools": [messages_tool()], "stream": true,
        "thinking": {"type": "enabled", "budget_tokens": 1024}, "model": "m", "max_tokens": 500});
    let deltas = ["/delta/thinking", "/delta/text", "/delta/partial_json"];
    let events = joined(stream(MESSAGES, body).await, &deltas);
    for event in &events {
        assert_eq!(event.name, event.data["type"], "the event line says the type");
    }
    let start =
        |index: u32, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = |index: u32, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u32| json!({"type": "content_block_stop", "index": index});
    let tool = json!({"type": "tool_use", "id": "toolu_#", "name": "bash", "input": {}});
    let json_delta = |json: &str| json!({"type": "input_json_delta", "partial_json": json});
    let expected = [
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
        delta(0, json!({"type": "signature_delta", "signature": "msg_#"})),
        stop(0),
        start(1, json!({"type": "text", "text": ""})),
        delta(1, json!({"type": "text_delta", "text": "Sure."})),
        stop(1),
        start(2, tool.clone()),
        delta(2, json_delta("{\"command\":\"ls\",\"limit\":3}")),
        stop(2),
        start(3, tool),
        delta(3, json_delta("{\"command\":\"pwd\"}")),
        stop(3),
    ];
    let (first, rest) = events.split_first().unwrap();
    let message = &first.data["message"];
    assert_eq!((first.name.as_str(), &message["content"]), ("message_start", &json!([])));
    assert_eq!(
        (&message["id"], &message["model"], &message["stop_reason"]),
        (&json!("msg_#"), &json!("m"), &Value::Null)
    );
    let input = message["usage"]["cache_creation_input_tokens"].as_u64().unwrap();
    assert!(
        input > 0 && message["usage"]["input_tokens"] == 0,
        "nothing was cached, and the tool is marked: {message}"
    );
    assert_eq!(rest[0].data, json!({"type": "ping"}));
    let blocks: Vec<&Value> = rest[1..rest.len() - 2].iter().map(|event| &event.data).collect();
    assert_eq!(blocks, expected.iter().collect::<Vec<_>>());
    let end = &rest[rest.len() - 2].data;
    assert_eq!(end["delta"], json!({"stop_reason": "tool_use", "stop_sequence": null}));
    assert_eq!(end["usage"]["cache_creation_input_tokens"], input);
    assert!(end["usage"]["output_tokens"].as_u64().unwrap() > 10);
    assert_eq!(rest[rest.len() - 1].data, json!({"type": "message_stop"}));
}

#[tokio::test]
async fn a_responses_stream_numbers_its_events_and_closes_every_item() {
    let body = json!({"input": "x", "tools": [responses_tool()], "stream": true, "model": "m",
        "reasoning": {"summary": "auto"}});
    let events = joined(stream(RESPONSES, body).await, &["/delta"]);
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    let call = [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ];
    let mut expected = vec![
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ];
    expected.extend(call);
    expected.extend(call);
    expected.push("response.completed");
    assert_eq!(names, expected);
    let mut last = None;
    for event in &events {
        assert_eq!(event.name, event.data["type"]);
        assert_eq!(event.data.as_object().unwrap().keys().nth(1).unwrap(), "sequence_number");
        let number = event.data["sequence_number"].as_u64().unwrap();
        assert!(last.is_none_or(|last| number > last));
        last = Some(number);
    }
    let done: Vec<&Value> = events
        .iter()
        .filter(|event| event.name == "response.output_item.done")
        .map(|event| &event.data["item"])
        .collect();
    let response = &events.last().unwrap().data["response"];
    assert_eq!(response["output"].as_array().unwrap().iter().collect::<Vec<_>>(), done);
    let expected = json!([
        {"type": "reasoning", "id": "rs_#", "status": "completed", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "id": "msg_#", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": "Sure.", "annotations": [], "logprobs": []}]},
        {"type": "function_call", "id": "fc_#", "call_id": "call_#", "name": "bash",
            "arguments": "{\"command\":\"ls\",\"limit\":3}", "status": "completed"},
        {"type": "function_call", "id": "fc_#", "call_id": "call_#", "name": "bash",
            "arguments": "{\"command\":\"pwd\"}", "status": "completed"},
    ]);
    assert_eq!(response["output"], expected);
    assert_eq!((&response["status"], &response["incomplete_details"]), (&json!("completed"), &Value::Null));
}

#[tokio::test]
async fn a_completion_stream_is_the_text_and_its_end() {
    let body = json!({"prompt": "x", "stream": true, "model": "m"});
    let world = World::saying(&["ab"]);
    let events = world.post(COMPLETIONS, &body).await.events();
    let texts: Vec<Value> = events[..events.len() - 1]
        .iter()
        .map(|event| {
            json!([event.data["object"], event.data["choices"][0]["text"], event.data["choices"][0]["finish_reason"]])
        })
        .collect();
    let chunk = |text: &str, reason: Value| json!(["text_completion", text, reason]);
    assert_eq!(texts, [chunk("a", Value::Null), chunk("b", Value::Null), chunk("", json!("stop"))]);
    assert_eq!(events[events.len() - 1].data, "[DONE]");
}

#[tokio::test]
async fn what_is_streamed_adds_up_to_what_is_not() {
    let world = World::saying(&[&answer()]);
    let body = |stream: bool| json!({"messages": [{"content": "x"}], "tools": [chat_tool()], "stream": stream});
    let whole = world.post(CHAT, &body(false)).await.ok();
    let calls = whole["choices"][0]["message"]["tool_calls"].as_array().unwrap();
    let mut streamed = vec![String::new(); calls.len()];
    for event in world.post(CHAT, &body(true)).await.events() {
        for call in event.data["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let more = call["function"]["arguments"].as_str().unwrap();
            streamed[call["index"].as_u64().unwrap() as usize].push_str(more);
        }
    }
    let whole: Vec<&str> = calls.iter().map(|call| call["function"]["arguments"].as_str().unwrap()).collect();
    assert_eq!(streamed, whole);
}
