//! What only the Responses surface does.

use crate::world::{RESPONSES, World, block, responses_tool};
use http::StatusCode;
use serde_json::{Value, json};

#[tokio::test]
async fn a_reply_has_every_field_that_strict_clients_want() {
    let world = World::saying(&["hm</think>Yes."]);
    let mut reply = world.post(RESPONSES, &json!({"input": "x", "model": "m", "max_output_tokens": 50})).await.ok();
    assert!(reply["id"].as_str().unwrap().starts_with("resp_"));
    assert!(reply["created_at"].as_u64().unwrap() > 1_700_000_000);
    let object = reply.as_object_mut().unwrap();
    for name in ["id", "created_at", "timings"] {
        object.remove(name).unwrap();
    }
    let item = object["output"][0]["id"].clone();
    let expected = json!({"object": "response", "status": "completed", "error": null, "incomplete_details": null,
        "model": "m", "output": [{"type": "message", "id": item, "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": "Yes.", "annotations": [], "logprobs": []}]}],
        "instructions": null, "max_output_tokens": 50, "metadata": {}, "parallel_tool_calls": true,
        "previous_response_id": null, "reasoning": {"effort": null, "summary": null}, "store": false,
        "temperature": 1.0, "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "truncation": "disabled",
        "usage": {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 5},
            "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 12}});
    assert_eq!(reply, expected);
}

#[tokio::test]
async fn a_spent_budget_is_incomplete_and_its_last_item_says_so() {
    let world = World::saying(&["hm</think>Yes."]);
    let body = |tokens: u32| json!({"input": "x", "max_output_tokens": tokens, "reasoning": {"summary": "auto"}});
    let reply = world.post(RESPONSES, &body(5)).await.ok();
    assert_eq!(
        (&reply["status"], &reply["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
    let statuses: Vec<&Value> = reply["output"].as_array().unwrap().iter().map(|item| &item["status"]).collect();
    assert_eq!(statuses, ["completed", "incomplete"]);
    let mut streamed = body(1);
    streamed["stream"] = true.into();
    let events = world.post(RESPONSES, &streamed).await.events();
    let last = events.last().unwrap();
    assert_eq!(
        (last.name.as_str(), &last.data["response"]["output"][0]["status"]),
        ("response.incomplete", &json!("incomplete"))
    );
}

#[tokio::test]
async fn tools_keep_their_namespaces_and_free_text_tools_their_text() {
    let answer = block(&[
        ("agents__spawn", &[("task", true, "x")]),
        ("apply_patch", &[("input", true, "*** Begin\n\"quoted\"")]),
        ("tool_search", &[("query", true, "files")]),
    ]);
    let world = World::saying(&[&answer]);
    let tools = json!([
        {"type": "namespace", "name": "agents", "description": "Agents", "tools": [
            {"type": "function", "name": "spawn", "parameters": {"type": "object", "properties": {"task": {"type": "string"}}}}]},
        {"type": "custom", "name": "apply_patch", "description": "Free text", "format": {"type": "text"}},
        {"type": "tool_search", "description": "Finds tools", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}},
        {"type": "web_search"}]);
    let body = json!({"input": "x", "tools": tools});
    let reply = world.post(RESPONSES, &body).await.ok();
    let output = reply["output"].as_array().unwrap();
    let parts: Vec<Value> = output
        .iter()
        .map(|item| {
            json!([item["type"], item["name"], item["namespace"], item["arguments"], item["input"], item["execution"]])
        })
        .collect();
    let expected = [
        json!(["function_call", "spawn", "agents", "{\"task\":\"x\"}", null, null]),
        json!(["custom_tool_call", "apply_patch", null, null, "*** Begin\n\"quoted\"", null]),
        json!(["tool_search_call", null, null, {"query": "files"}, null, "client"]),
    ];
    assert_eq!(parts, expected);
    let prompt = world.last_prompt();
    assert!(prompt.contains(r#"{"name": "apply_patch", "description": "Free text", "parameters": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}}"#));
    // What was sent comes back, and is the same prompt.
    let mut input = vec![json!({"role": "user", "content": "x"})];
    input.extend(output.iter().cloned());
    for item in output {
        let kind = item["type"]
            .as_str()
            .unwrap()
            .replace("_call", "_call_output")
            .replace("search_call_output", "search_output");
        input.push(json!({"type": kind, "call_id": item["call_id"], "output": "done"}));
    }
    world.post(RESPONSES, &json!({"input": input, "tools": tools})).await.ok();
    assert!(
        world.last_prompt().starts_with(&format!("{prompt}</think>{answer}")) || world.last_prompt().contains(&answer),
        "{}",
        world.last_prompt()
    );
}

#[tokio::test]
async fn free_text_is_streamed_as_the_input_of_a_custom_call() {
    let world = World::saying(&[&block(&[("apply_patch", &[("input", true, "patch")])])]);
    let body = json!({"input": "x", "stream": true, "tools": [{"type": "custom", "name": "apply_patch"}]});
    let events = world.post(RESPONSES, &body).await.events();
    let find = |name: &str| events.iter().find(|event| event.name == name).unwrap_or_else(|| panic!("{name}"));
    assert_eq!(find("response.custom_tool_call_input.delta").data["delta"], "patch");
    assert_eq!(find("response.custom_tool_call_input.done").data["input"], "patch");
    assert_eq!(find("response.output_item.done").data["item"]["input"], "patch");
}

#[tokio::test]
async fn results_alone_go_on_with_tools_that_are_what_they_were_to_the_client() {
    let call = block(&[("apply_patch", &[("input", true, "patch")])]);
    let world = World::saying(&[&call, &call]);
    let tools = json!([{"type": "custom", "name": "apply_patch"}]);
    let first = world.post(RESPONSES, &json!({"input": "x", "tools": tools})).await.ok();
    let id = &first["output"][0]["call_id"];
    let results = json!([{"type": "custom_tool_call_output", "call_id": id, "output": "done"}]);
    let second = world.post(RESPONSES, &json!({"input": results})).await.ok();
    let call = &second["output"][0];
    assert_eq!((&call["type"], &call["input"]), (&json!("custom_tool_call"), &json!("patch")), "{second}");
}

#[tokio::test]
async fn items_of_every_kind_are_read_and_others_are_named() {
    let world = World::saying(&["ok"]);
    let input = json!([
        {"role": "developer", "content": [{"type": "input_text", "text": "D"}]},
        {"role": "user", "content": "U"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "content": null, "encrypted_content": null},
        {"type": "message", "role": "assistant", "status": "incomplete", "content": [{"type": "output_text", "text": "A"},
            {"type": "refusal", "refusal": "!"}]},
        {"type": "local_shell_call", "call_id": "c1", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "text"},
        {"type": "local_shell_call_output", "call_id": "c1", "output": {"exit_code": 0}},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "p"},
            {"type": "input_image", "image_url": "data:"}]},
        {"type": "compaction", "encrypted_content": "x"}]);
    world.post(RESPONSES, &json!({"input": input, "reasoning": {"effort": "none"}})).await.ok();
    let prompt = world.last_prompt();
    for part in [
        "D<｜User｜>U<｜Assistant｜></think>A!\n\n",
        "invoke name=\"local_shell\"",
        "string=\"false\">[\"ls\"]<",
        "invoke name=\"patch\"",
        "string=\"true\">text<",
        "<tool_result>{\"exit_code\":0}</tool_result>\n\n<tool_result>p[image omitted]</tool_result>",
    ] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    for (item, message) in [
        (json!({"type": "item_reference", "id": "x"}), "input[0].type: unsupported \"item_reference\""),
        (json!({"type": "computer_call", "id": "x"}), "input[0].type: unsupported \"computer_call\""),
        (json!({"text": "x"}), "input[0].type: is missing"),
        (
            json!({"role": "user", "content": [{"type": "input_image"}]}),
            "input[0].content[0].type: unsupported \"input_image\": unsupported content part; this model reads text",
        ),
        (
            json!({"role": "wizard", "content": "x"}),
            "input[0].role: unsupported \"wizard\"; use user, assistant, system or developer",
        ),
    ] {
        let reply = world.post(RESPONSES, &json!({"input": [item]})).await;
        assert_eq!((reply.status, &reply.json()["error"]["message"]), (StatusCode::BAD_REQUEST, &json!(message)));
    }
}

#[tokio::test]
async fn fields_that_change_the_meaning_are_refused_by_name() {
    let world = World::saying(&["ok"]);
    for (name, value, message) in [
        ("conversation", json!("c"), "conversation is not supported; replay full input instead"),
        ("background", json!(true), "background: is not supported; leave it out"),
        ("prompt", json!({"id": "x"}), "prompt: is not supported; send input"),
        ("truncation", json!("auto"), "truncation: only \"disabled\" is supported"),
    ] {
        let reply = world.post(RESPONSES, &json!({"input": "x", name: value})).await;
        let error = &reply.json()["error"];
        assert_eq!(
            (reply.status, &error["message"], &error["param"]),
            (StatusCode::BAD_REQUEST, &json!(message), &json!(name))
        );
    }
    let missing = world.post(RESPONSES, &json!({"tools": [responses_tool()]})).await;
    assert_eq!(missing.json()["error"]["message"], "missing input");
    let long = world.post(RESPONSES, &json!({"input": "x".repeat(200_000)})).await.json();
    assert_eq!((&long["error"]["code"], &long["error"]["param"]), (&json!("context_length_exceeded"), &json!("input")));
    let nothing = json!({"input": "x", "background": false, "truncation": "disabled", "prompt": null, "conversation": null,
        "store": true, "include": ["reasoning.encrypted_content"], "service_tier": "auto", "user": "u",
        "text": {"verbosity": "low", "format": {"type": "text"}}, "prompt_cache_key": "k", "client_metadata": {}});
    world.post(RESPONSES, &nothing).await.ok();
}
