//! Going on from a turn: by its calls, by its id, and by sending everything again.

use crate::world::{CHAT, MESSAGES, RESPONSES, Reply, World, block, chat_tool, messages_tool, responses_tool};
use http::StatusCode;
use serde_json::{Value, json};
use std::time::Duration;

fn two_calls() -> String {
    block(&[("bash", &[("command", true, "ls")]), ("bash", &[("command", true, "pwd")])])
}

async fn first_turn(world: &World) -> (Value, Vec<String>) {
    let body = json!({"input": "list", "instructions": "S", "tools": [responses_tool()], "store": false});
    let reply = world.post(RESPONSES, &body).await.ok();
    let calls = reply["output"].as_array().unwrap().iter().filter(|item| item["type"] == "function_call");
    let ids = calls.map(|call| call["call_id"].as_str().unwrap().to_owned()).collect();
    (reply, ids)
}

fn results(ids: &[&str]) -> Value {
    let output = |id: &&str| json!({"type": "function_call_output", "call_id": id, "output": "out"});
    json!({ "input": ids.iter().map(output).collect::<Vec<_>>() })
}

fn assert_lost(reply: &Reply, message: &str) {
    assert_eq!((reply.status, &reply.json()["error"]["message"]), (StatusCode::CONFLICT, &json!(message)));
    assert_eq!(reply.json()["error"]["code"], "continuation_unavailable");
    assert_eq!(reply.headers["x-should-retry"], "false");
}

const LOST: &str = "Responses continuation state is not available; retry by replaying the full input history";

#[tokio::test]
async fn results_alone_go_on_from_their_calls_and_find_their_bank() {
    let hm = format!("hm</think>{}", two_calls());
    let world = World::saying(&[&hm, "ok</think>Done."]);
    let (_, ids) = first_turn(&world).await;
    let before = world.last_prompt();
    let reply = world.post(RESPONSES, &results(&[&ids[0], &ids[1]])).await.ok();
    let said =
        format!("{before}hm</think>{}<｜end▁of▁sentence｜><｜User｜><tool_result>out</tool_result>", two_calls());
    assert!(world.last_prompt().starts_with(&said), "{}", world.last_prompt());
    let usage = &reply["usage"];
    assert!(
        usage["input_tokens_details"]["cached_tokens"].as_u64().unwrap()
            >= before.chars().filter(|c| c.is_ascii()).count() as u64
    );
    assert_eq!(reply["timings"]["reuse_kind"], "exact");
}

#[tokio::test]
async fn results_of_other_calls_are_told_apart() {
    let calls = format!("</think>{}", two_calls());
    let world = World::saying(&[&calls, "</think>Done."]);
    let unknown = world.post(RESPONSES, &results(&["call_x"])).await;
    let message =
        "Responses continuation state is not available for call_id call_x; retry by replaying the full input history";
    assert_eq!((unknown.status, &unknown.json()["error"]["message"]), (StatusCode::BAD_REQUEST, &json!(message)));
    let (_, ids) = first_turn(&world).await;
    let (_, others) = first_turn(&world).await;
    assert_lost(&world.post(RESPONSES, &results(&[&ids[0]])).await, LOST);
    assert_lost(&world.post(RESPONSES, &results(&[&ids[0], &others[1]])).await, LOST);
    world.post(RESPONSES, &results(&[&ids[1], &ids[0]])).await.ok();
    // The conversation went on: there is nothing more to say to those calls.
    let calls_then_more = format!("</think>{}", two_calls());
    let world = World::saying(&[&calls, &calls_then_more]);
    let (_, ids) = first_turn(&world).await;
    world.post(RESPONSES, &results(&[&ids[0], &ids[1]])).await.ok();
    assert_lost(&world.post(RESPONSES, &results(&[&ids[0], &ids[1]])).await, LOST);
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_kept_for_its_time() {
    let calls = format!("</think>{}", two_calls());
    let world = World::saying(&[&calls, "</think>Done."]);
    let (_, ids) = first_turn(&world).await;
    tokio::time::advance(Duration::from_secs(301)).await;
    assert_lost(&world.post(RESPONSES, &results(&[&ids[0], &ids[1]])).await, LOST);
}

#[tokio::test]
async fn everything_sent_again_is_never_refused_for_its_ids() {
    let world = World::saying(&["</think>Done."]);
    let input = json!([{"role": "user", "content": "x"},
        {"type": "function_call", "call_id": "never", "name": "bash", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "other", "output": "out"}]);
    world.post(RESPONSES, &json!({ "input": input })).await.ok();
}

#[tokio::test]
async fn a_response_can_be_gone_on_from_by_its_id() {
    let world = World::saying(&["</think>one", "</think>two"]);
    let first = world.post(RESPONSES, &json!({"input": "a"})).await.ok();
    let body = json!({"input": "b", "previous_response_id": first["id"]});
    let second = world.post(RESPONSES, &body).await.ok();
    assert_eq!(second["previous_response_id"], first["id"]);
    assert!(
        world.last_prompt().contains("<｜User｜>a<｜Assistant｜>")
            && world.last_prompt().contains("one<｜end▁of▁sentence｜><｜User｜>b")
    );
    let unstored = world.post(RESPONSES, &json!({"input": "a", "store": false})).await.ok();
    for id in [unstored["id"].as_str().unwrap(), "resp_none"] {
        let reply = world.post(RESPONSES, &json!({"input": "b", "previous_response_id": id})).await;
        assert_eq!(
            (reply.status, &reply.json()["error"]["code"]),
            (StatusCode::BAD_REQUEST, &json!("previous_response_not_found"))
        );
    }
}

#[tokio::test]
async fn a_kept_response_can_be_forgotten_and_none_be_read_back() {
    let world = World::saying(&["</think>one", "</think>two"]);
    let first = world.post(RESPONSES, &json!({"input": "a"})).await.ok();
    let path = format!("{RESPONSES}/{}", first["id"].as_str().unwrap());
    let gone_on = json!({"input": "b", "previous_response_id": first["id"]});
    world.post(RESPONSES, &gone_on).await.ok();
    let read = world.call("GET", &path).await;
    assert_eq!((read.status, &read.json()["error"]["code"]), (StatusCode::NOT_FOUND, &json!("response_not_found")));
    assert!(read.text.contains("previous_response_id"), "{}", read.text);
    let deleted = world.call("DELETE", &path).await.ok();
    assert_eq!(deleted, json!({"id": first["id"], "object": "response", "deleted": true}));
    let lost = world.post(RESPONSES, &gone_on).await;
    assert_eq!(lost.json()["error"]["code"], "previous_response_not_found");
    for method in ["GET", "DELETE"] {
        let reply = world.call(method, &path).await;
        let error = &reply.json()["error"];
        assert_eq!((reply.status, &error["param"]), (StatusCode::NOT_FOUND, &json!("response_id")), "{error}");
    }
}

#[tokio::test]
async fn messages_go_on_from_results_too() {
    let world = World::saying(&[&two_calls(), "Done."]);
    let body = json!({"system": "S", "tools": [messages_tool()], "messages": [{"role": "user", "content": "list"}]});
    let reply = world.post(MESSAGES, &body).await.ok();
    let before = world.last_prompt();
    let results: Vec<Value> = reply["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "out"}))
        .collect();
    let follow_up = json!({"messages": [{"role": "user", "content": results}]});
    world.post(MESSAGES, &follow_up).await.ok();
    assert!(world.last_prompt().starts_with(&before));
    let part = json!({"messages": [{"role": "user", "content": [results[0]]}]});
    let lost = world.post(MESSAGES, &part).await;
    let message = "Anthropic continuation state is not available; retry by replaying the full messages history";
    assert_eq!((lost.status, &lost.json()["error"]["message"]), (StatusCode::CONFLICT, &json!(message)));
    let unknown =
        json!({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_x"}]}]});
    let unknown = world.post(MESSAGES, &unknown).await;
    let message = "Anthropic continuation state is not available for tool_use_id toolu_x; retry by replaying the full messages history";
    assert_eq!((unknown.status, &unknown.json()["error"]["message"]), (StatusCode::BAD_REQUEST, &json!(message)));
}

/// A second turn that sends the first one back as `edit` makes it; gives the share of the first prompt that was cached.
async fn replayed(edit: impl Fn(&mut Value)) -> (World, f64) {
    let answer = format!("hm</think>Sure.{}", two_calls());
    let world = World::saying(&[&answer, "</think>Done."]);
    let mut messages = vec![json!({"role": "user", "content": "list the files of this folder, all of them, please"})];
    let body = |messages: &[Value]| json!({"messages": messages, "tools": [chat_tool()]});
    let first = world.post(CHAT, &body(&messages)).await.ok();
    let mut message = first["choices"][0]["message"].clone();
    edit(&mut message);
    let calls: Vec<Value> = message["tool_calls"].as_array().unwrap().clone();
    messages.push(message);
    messages.extend(calls.iter().map(|call| json!({"role": "tool", "tool_call_id": call["id"], "content": "out"})));
    let second = world.post(CHAT, &body(&messages)).await.ok();
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() as f64;
    let spoken = first["usage"]["total_tokens"].as_u64().unwrap() as f64;
    (world, cached / spoken)
}

#[tokio::test]
async fn reasoning_that_a_client_leaves_out_is_remembered() {
    let (world, share) = replayed(|message| {
        message.as_object_mut().unwrap().remove("reasoning_content").unwrap();
    })
    .await;
    assert!(world.last_prompt().contains("hm</think>Sure."));
    assert!(share >= 0.9, "{share}");
}

#[tokio::test]
async fn arguments_in_other_spacing_are_the_sampled_ones_and_edited_ones_are_not() {
    let (_, share) = replayed(|message| {
        message["tool_calls"][0]["function"]["arguments"] = "{ \"command\" : \"ls\" }".into();
    })
    .await;
    assert!(share >= 0.9, "{share}");
    let (world, _) = replayed(|message| {
        message["tool_calls"][0]["function"]["arguments"] = "{\"command\":\"rm\"}".into();
    })
    .await;
    assert!(world.last_prompt().contains(">rm</"), "an edited call is what the client says");
}
