//! Public problems of other servers, as far as the files beside this one do not hold them. `CASES.md` says which test
//! holds which.

use crate::world::{
    CHAT, COMPLETIONS, MESSAGES, RESPONSES, World, block, chat_tool, messages_tool, responses_tool, tokenizer,
};
use axum::body::Body;
use ds4_api::Settings;
use ds4_units::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::time::Duration;

/// Far more than a test takes: what did not come by then never will.
const PATIENCE: Duration = Duration::from_secs(60);

fn count(text: &str) -> usize {
    tokenizer().encode(&tokenizer().parse_trusted(text)).len()
}

/// A body for each surface that can call tools, without reasoning.
fn with_tools(stream: bool) -> [(&'static str, Value); 3] {
    [
        (CHAT, json!({"messages": [{"content": "x"}], "tools": [chat_tool()], "thinking": false, "stream": stream})),
        (
            RESPONSES,
            json!({"input": "x", "tools": [responses_tool()], "reasoning": {"effort": "none"}, "stream": stream}),
        ),
        (
            MESSAGES,
            json!({"messages": [{"role": "user", "content": "x"}], "tools": [messages_tool()], "stream": stream}),
        ),
    ]
}

/// Reads a stream's frames until `enough` says so of all text that came.
async fn read_until(body: &mut Body, enough: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    while !enough(&text) {
        let frame =
            tokio::time::timeout(PATIENCE, body.frame()).await.unwrap_or_else(|_| panic!("nothing after {text}"));
        let data = frame.expect("the stream goes on").unwrap().into_data().unwrap_or_default();
        text.push_str(std::str::from_utf8(&data).unwrap());
    }
    text
}

/// Case 3: a block that is only talked about stays reasoning, byte for byte, and the call after it works.
#[tokio::test]
async fn quoted_markup_is_reasoning_to_the_byte() {
    let quoted = format!("I could write{} or </｜DSML｜invoke> alone", block(&[("bash", &[("command", true, "rm")])]));
    let answer = format!("{quoted}</think>{}", block(&[("bash", &[("command", true, "ls")])]));
    let world = World::saying(&[&answer]);
    let body = |stream: bool| json!({"messages": [{"content": "x"}], "tools": [chat_tool()], "stream": stream});
    let message = world.post(CHAT, &body(false)).await.ok()["choices"][0]["message"].clone();
    assert_eq!(message["reasoning_content"], quoted);
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], "{\"command\":\"ls\"}");
    let events = world.post(CHAT, &body(true)).await.events();
    let parts = events.iter().filter_map(|event| event.data["choices"][0]["delta"]["reasoning_content"].as_str());
    assert_eq!(parts.collect::<String>(), quoted);
}

/// Case 8: the arguments of a long call are heard while the model writes them, not at their end.
#[tokio::test]
async fn arguments_are_heard_while_they_are_written() {
    // As many tokens as a reader may be behind: this model writes as fast as it can.
    let text = "0123456789".repeat(70);
    let answer = block(&[("bash", &[("command", true, &text)])]);
    let written = &answer[..answer.find(&text).unwrap() + 200];
    let world = World::saying(&[&answer]);
    world.controls.hold();
    let (path, body) = &with_tools(true)[0];
    let mut stream = world.send(path, body.to_string()).await.into_body();
    // Two steps of the prompt, one for each token of the answer so far.
    world.controls.allow(2 + count(written));
    let heard = |text: &str| -> String {
        let events = text.split("\n\n").filter_map(|frame| frame.strip_prefix("data: "));
        let events = events.filter_map(|data| serde_json::from_str::<Value>(data).ok());
        events
            .filter_map(|event| {
                event["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str().map(str::to_owned)
            })
            .collect()
    };
    let expected = format!("{{\"command\":\"{}", &text[..200]);
    let so_far = read_until(&mut stream, |all| heard(all).len() >= expected.len()).await;
    assert_eq!(heard(&so_far), expected);
    world.controls.release();
    let rest = read_until(&mut stream, |all| all.contains("[DONE]")).await;
    assert_eq!(heard(&(so_far + &rest)), format!("{{\"command\":\"{text}\"}}"));
}

/// Case 8, where it cannot be so: a value that is JSON is shown when it is known to be, whole, and is what was written.
#[tokio::test]
async fn a_long_value_that_is_json_is_shown_at_its_end() {
    let list: Vec<Value> = (0..900).map(|n| json!({"line": n, "text": "]}\"</｜DSML｜parameter>"})).collect();
    let list = Value::from(list).to_string();
    assert!(list.len() > 8 << 10);
    let world = World::saying(&[&block(&[("bash", &[("edits", false, &list)])])]);
    let (path, body) = &with_tools(true)[0];
    let events = world.post(path, body).await.events();
    let fragments = events.iter().filter_map(|event| {
        event.data["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str().map(str::to_owned)
    });
    let fragments: Vec<String> = fragments.collect();
    assert_eq!(fragments.concat(), format!("{{\"edits\":{list}}}"));
    assert!(fragments.iter().any(|fragment| fragment.contains(&list)), "in one piece");
}

/// Case 10: with a call in the answer no markup is seen, on any surface, streamed or not.
#[tokio::test]
async fn an_answer_with_a_call_shows_no_markup_anywhere() {
    let call = block(&[("bash", &[("command", true, "ls")])]);
    let answers = [
        format!("Sure.{call}"),
        format!("Sure.{}", call.replace("<｜DSML｜invoke", "<invoke")),
        format!("Sure.{}", call.replace("</｜DSML｜tool_calls>", "")),
        format!("Sure.{call}{call}"),
    ];
    for answer in &answers {
        for stream in [false, true] {
            for (path, body) in with_tools(stream) {
                let reply = World::saying(&[answer]).post(path, &body).await;
                assert_eq!(reply.status, StatusCode::OK);
                for markup in ["DSML", "invoke", "tool_calls>"] {
                    assert!(!reply.text.contains(markup), "{path} {stream}: {markup} in {}", reply.text);
                }
                let shown = reply.text.contains("Sure.") && reply.text.contains("ls");
                assert!(shown || stream, "{path}: {}", reply.text);
            }
        }
    }
}

/// Case 16: past its gate the reminder is in every result, the same bytes each time the conversation is sent.
#[tokio::test]
async fn the_reminder_is_in_late_results_and_stays_where_it_was() {
    let call = format!("hm</think>{}", block(&[("bash", &[("command", true, "ls")])]));
    let settings = |after: Option<u64>| Settings { reminder_after: after.map(Bytes), ..Settings::default() };
    let reminder = "(If the next step needs a tool, call it in this answer; do not only announce it.)";
    let long = "many words ".repeat(400);
    let world = World::with(&[&call, &call, "ok</think>Done."], settings(Some(4_000)));
    let mut messages = vec![json!({"role": "user", "content": "list"})];
    let mut before = String::new();
    // The first result ends before the gate, the next one behind it.
    for (result, reminded) in [("short", 0), (long.as_str(), 1), ("short", 2)] {
        let body = json!({"messages": messages, "tools": [chat_tool()]});
        let reply = world.post(CHAT, &body).await.ok();
        let prompt = world.last_prompt();
        assert!(prompt.starts_with(&before), "what was said stays as it was");
        before = prompt;
        let message = reply["choices"][0]["message"].clone();
        let id = message["tool_calls"][0]["id"].clone();
        messages.push(message);
        if id.is_string() {
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
        }
        let body = json!({"messages": messages, "tools": [chat_tool()]});
        let (once, again) = (world.prompt(&body).await, world.prompt(&body).await);
        assert_eq!(once, again);
        let expected = if id.is_string() { reminded } else { reminded - 1 };
        assert_eq!(once.matches(reminder).count(), expected, "{once}");
        assert_eq!(once.matches(&format!("{reminder}</tool_result>")).count(), expected, "inside the result");
    }
    let silent = World::with(&["ok"], settings(None));
    assert!(!silent.prompt(&json!({"messages": messages, "tools": [chat_tool()]})).await.contains(reminder));
}

/// Case 16 again: results that come alone are reminded as those that come with everything.
#[tokio::test]
async fn results_alone_are_reminded_too() {
    let call = format!("</think>{}", block(&[("bash", &[("command", true, "ls")])]));
    let settings = Settings { reminder_after: Some(Bytes(100)), ..Settings::default() };
    let world = World::with(&[&call, "</think>Done."], settings);
    let body = json!({"input": "list", "tools": [responses_tool()]});
    let reply = world.post(RESPONSES, &body).await.ok();
    let call = reply["output"].as_array().unwrap().iter().find(|item| item["type"] == "function_call").unwrap().clone();
    let result = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "out"});
    world.post(RESPONSES, &json!({ "input": [result] })).await.ok();
    let alone = world.last_prompt();
    let everything = json!({"input": [{"role": "user", "content": "list"}, call, result], "tools": [responses_tool()]});
    world.post(RESPONSES, &everything).await.ok();
    assert_eq!(alone, world.last_prompt());
    assert!(alone.contains("do not only announce it.)</tool_result>"), "{alone}");
}

/// Case 21: while a call is written that is shown only when it is whole, the client hears that its turn is alive.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_shown_yet_is_no_silence() {
    let answer = block(&[("bash", &[("command", true, "ls")])]);
    for (path, beat) in [(RESPONSES, "event: response.in_progress\n"), (MESSAGES, "event: ping\n")] {
        let world = World::saying(&[&answer]);
        world.controls.hold();
        let body = with_tools(true).into_iter().find(|(other, _)| *other == path).unwrap().1;
        let mut stream = world.send(path, body.to_string()).await.into_body();
        world.controls.allow(2 + count(&answer) / 2);
        world.controls.wait_for_steps(3 + count(&answer) / 2);
        let mut beats = Vec::new();
        while beats.len() < 12 {
            let frame = stream.frame().await.unwrap().unwrap().into_data().unwrap();
            if frame.starts_with(beat.as_bytes()) {
                beats.push(tokio::time::Instant::now());
            }
        }
        // The first may be the one that every stream begins with.
        let gaps: Vec<Duration> = beats[1..].windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps, vec![Duration::from_secs(5); 10], "{path}");
        world.controls.release();
        let rest = read_until(&mut stream, |all| all.contains("completed") || all.contains("message_stop")).await;
        assert!(rest.contains("ls"), "{rest}");
    }
}

/// Case 25: every number of a stream's usage is there.
#[tokio::test]
async fn the_usage_at_the_end_of_a_stream_is_all_numbers() {
    let world = World::saying(&["Fine."]);
    let body = json!({"input": "x", "stream": true, "reasoning": {"effort": "none"}});
    let usage = world.post(RESPONSES, &body).await.events().pop().unwrap().data["response"]["usage"].clone();
    for number in [
        "/input_tokens",
        "/input_tokens_details/cached_tokens",
        "/input_tokens_details/cache_write_tokens",
        "/output_tokens",
        "/output_tokens_details/reasoning_tokens",
        "/total_tokens",
    ] {
        assert!(usage.pointer(number).is_some_and(Value::is_u64), "{number}: {usage}");
    }
    assert_eq!((&usage["output_tokens"], &usage["total_tokens"]), (&json!(5), &json!(10)));
}

/// Case 28: a budget that ends inside the reasoning leaves no answer, on any surface.
#[tokio::test]
async fn a_budget_that_ends_in_the_reasoning_shows_no_answer() {
    let world = World::saying(&["a long thought</think>Yes."]);
    let body = json!({"messages": [{"content": "x"}], "max_tokens": 6});
    let reply = world.post(CHAT, &body).await.ok();
    let choice = &reply["choices"][0];
    assert_eq!(
        (&choice["message"]["content"], &choice["message"]["reasoning_content"], &choice["finish_reason"]),
        (&json!(""), &json!("a long"), &json!("length"))
    );
    let body = json!({"input": "x", "max_output_tokens": 6, "reasoning": {"summary": "auto"}});
    let reply = world.post(RESPONSES, &body).await.ok();
    assert_eq!((&reply["status"], reply["output"].as_array().unwrap().len()), (&json!("incomplete"), 1));
    assert_eq!(reply["output"][0]["summary"][0]["text"], "a long");
    let body =
        json!({"messages": [{"role": "user", "content": "x"}], "thinking": {"type": "enabled"}, "max_tokens": 6});
    let reply = world.post(MESSAGES, &body).await.ok();
    assert_eq!((&reply["content"][0]["thinking"], &reply["stop_reason"]), (&json!("a long"), &json!("max_tokens")));
    assert_eq!(reply["content"][1], json!({"type": "text", "text": ""}));
}

/// Case 29: null is absent, in every optional field of every surface.
#[tokio::test]
async fn null_is_absent_on_every_surface() {
    let world = World::saying(&["ok"]);
    let shared = ["model", "temperature", "top_p", "stream", "metadata", "user", "service_tier", "reasoning_effort"];
    let own: [(&str, Value, &[&str]); 3] = [
        (
            RESPONSES,
            json!({"input": [{"role": "user", "content": "x", "id": null, "status": null},
                {"type": "reasoning", "summary": null, "content": null, "encrypted_content": null},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": null, "namespace": null},
                {"type": "function_call_output", "call_id": "c", "output": null}]}),
            &[
                "instructions",
                "tools",
                "tool_choice",
                "parallel_tool_calls",
                "max_output_tokens",
                "reasoning",
                "text",
                "previous_response_id",
                "conversation",
                "background",
                "prompt",
                "truncation",
                "store",
                "include",
                "prompt_cache_key",
                "client_metadata",
                "stream_options",
                "top_logprobs",
            ],
        ),
        (
            MESSAGES,
            json!({"messages": [{"role": "user", "content": "x"},
                {"role": "assistant", "content": [{"type": "thinking", "thinking": null, "signature": null},
                    {"type": "tool_use", "id": "t", "name": "f", "input": null}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": null, "is_error": null}]}]}),
            &[
                "system",
                "max_tokens",
                "top_k",
                "stop_sequences",
                "tools",
                "tool_choice",
                "thinking",
                "output_config",
                "output_format",
                "context_management",
                "container",
                "mcp_servers",
            ],
        ),
        (
            COMPLETIONS,
            json!({"prompt": "x", "max_tokens": 5}),
            &["suffix", "best_of", "echo", "logprobs", "n", "stop", "seed", "logit_bias", "stream_options"],
        ),
    ];
    for (path, body, names) in own {
        let mut body = body;
        shared.iter().chain(names).for_each(|name| body[*name] = Value::Null);
        let reply = world.post(path, &body).await;
        assert_eq!(reply.status, StatusCode::OK, "{path}: {}", reply.text);
    }
}

/// Case 35: roles in any order are a conversation, and nothing is not.
#[tokio::test]
async fn roles_may_come_in_any_order() {
    let world = World::saying(&["ok"]);
    let prompt = async |messages: Value| world.prompt(&json!({"messages": messages, "thinking": false})).await;
    let twice = prompt(json!([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])).await;
    assert!(twice.ends_with("<｜User｜>a\n\nb<｜Assistant｜></think>"), "{twice}");
    let leading = prompt(json!([{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}])).await;
    assert!(leading.ends_with("a<｜end▁of▁sentence｜><｜User｜>b<｜Assistant｜></think>"), "{leading}");
    let system = prompt(json!([{"role": "system", "content": "s"}])).await;
    assert!(system.contains("s"), "{system}");
    for (path, body) in [
        (CHAT, json!({"messages": []})),
        (MESSAGES, json!({"messages": []})),
        (RESPONSES, json!({"input": []})),
        (COMPLETIONS, json!({"prompt": []})),
    ] {
        assert_eq!(world.post(path, &body).await.status, StatusCode::BAD_REQUEST, "{path}");
    }
}

/// An agent's turn that waits for its tool, and the request with everything and the result.
async fn waiting_for_a_tool(world: &World) -> Value {
    let mut messages = vec![json!({"role": "user", "content": "list the files of this folder, please"})];
    let first = world.post(CHAT, &json!({"messages": messages, "tools": [chat_tool()]})).await.ok();
    assert_eq!(first["choices"][0]["finish_reason"], "tool_calls");
    let message = first["choices"][0]["message"].clone();
    let id = message["tool_calls"][0]["id"].clone();
    messages.extend([message, json!({"role": "tool", "tool_call_id": id, "content": "out"})]);
    json!({"messages": messages, "tools": [chat_tool()]})
}

/// The conversation goes on, and its bank was still there.
async fn assert_still_warm(world: &World, follow_up: &Value) {
    let reply = world.post(CHAT, follow_up).await.ok();
    assert_eq!(reply["timings"]["reuse_kind"], "exact", "{reply}");
}

/// Case 49: with one bank, a title and a sub-agent's question do not cost an agent its prompt while its tool runs.
#[tokio::test]
async fn side_requests_leave_the_only_bank_to_the_agent() {
    let call = format!("hm</think>{}", block(&[("bash", &[("command", true, "ls")])]));
    let world = World::of(&[&call, "ok</think>Done."], Settings::default(), 20_000, 1);
    let follow_up = waiting_for_a_tool(&world).await;
    for side in ["Name this conversation.", "A sub-agent's question."] {
        let body = json!({"messages": [{"role": "user", "content": side}, {"role": "user", "content": "x"}]});
        world.post(CHAT, &body).await.ok();
    }
    assert_still_warm(&world, &follow_up).await;
}

/// Case 50's other half: who counts tokens by asking for answers of one takes nobody's bank, now or later.
#[tokio::test]
async fn probes_for_one_token_leave_the_only_bank_to_its_conversation() {
    let world = World::of(&["Done.", "Again."], Settings::default(), 20_000, 1);
    let mut messages = vec![json!({"role": "user", "content": "a question of some length"})];
    let first = world.post(CHAT, &json!({"messages": messages, "thinking": false})).await.ok();
    for n in 0..15 {
        let probe = json!({"max_tokens": 1, "messages": [{"role": "user", "content": format!("count {n}")}]});
        let reply = world.post(MESSAGES, &probe).await.ok();
        assert_eq!((&reply["stop_reason"], &reply["usage"]["output_tokens"]), (&json!("max_tokens"), &json!(1)));
    }
    messages.push(first["choices"][0]["message"].clone());
    messages.push(json!({"role": "user", "content": "and more"}));
    assert_still_warm(&world, &json!({"messages": messages, "thinking": false})).await;
}

/// Case 51: a stream that died and the same request without `stream`. The first one's work is stopped and used.
#[tokio::test]
async fn a_second_try_without_a_stream_finds_the_prompt_computed() {
    let world = World::saying(&["Fine, thank you very much indeed."]);
    let body = |stream: bool| json!({"messages": [{"role": "user", "content": "How are you? ".repeat(300)}], "max_tokens": 500, "stream": stream});
    world.controls.hold();
    let mut stream = world.send(MESSAGES, body(true).to_string()).await.into_body();
    world.controls.allow(2 + 4);
    read_until(&mut stream, |all| all.contains("text_delta")).await;
    drop(stream);
    let steps = world.controls.steps().len();
    world.controls.release();
    let reply = world.post(MESSAGES, &body(false)).await.ok();
    let usage = &reply["usage"];
    let (new, cached) = (usage["input_tokens"].as_u64().unwrap(), usage["cache_read_input_tokens"].as_u64().unwrap());
    assert!(cached >= 3_000 && new <= 10, "{usage}");
    assert_eq!(reply["content"][0]["text"], "Fine, thank you very much indeed.");
    assert_eq!(world.serving().engine.observatory().stats().canceled, 1);
    let beside = world.controls.steps().split_off(steps + 1);
    assert!(beside.iter().all(|step| step.len() == 1), "the first goes on beside the second: {beside:?}");
}

/// Arguments that come back as an object are said as the client spelled them: an edited call is the client's, to the
/// byte.
#[tokio::test]
async fn argument_objects_keep_their_spelling() {
    let world = World::saying(&["ok"]);
    let spelled = [
        "string=\"false\">1.50</",
        "string=\"false\">9007199254740993000000000</",
        "name=\"x\" string=\"true\">twice</",
        "name=\"x\" string=\"true\">again</",
    ];
    let arguments = r#"{"n": 1.50, "big": 9007199254740993000000000, "x": "twice", "x": "again"}"#;
    let messages = format!(
        r#"{{"messages": [{{"role": "user", "content": "q"}}, {{"role": "assistant", "content": [
            {{"type": "tool_use", "id": "t", "name": "f", "input": {arguments}}}]}},
            {{"role": "user", "content": [{{"type": "tool_result", "tool_use_id": "t", "content": "r"}}]}}]}}"#
    );
    let chat = format!(
        r#"{{"messages": [{{"content": "q"}}, {{"role": "assistant", "tool_calls": [
            {{"id": "t", "function": {{"name": "f", "arguments": {arguments}}}}}]}},
            {{"role": "tool", "tool_call_id": "t", "content": "r"}}], "thinking": false}}"#
    );
    let mut prompts = Vec::new();
    for (path, body) in [(MESSAGES, messages), (CHAT, chat)] {
        assert_eq!(world.send(path, body).await.status(), StatusCode::OK);
        let prompt = world.last_prompt();
        for part in spelled {
            assert!(prompt.contains(part), "{path}: no {part} in {prompt}");
        }
        prompts.push(prompt);
    }
    assert_eq!(prompts[0], prompts[1]);
}

/// A call that is owed comes, also where the model would end its answer while it still reasons.
#[tokio::test]
async fn a_required_call_follows_reasoning_that_just_ends() {
    let rest = "<｜DSML｜invoke name=\"bash\">\n<｜DSML｜parameter name=\"command\" string=\"true\">ls</｜DSML｜parameter>\n\
                </｜DSML｜invoke>\n</｜DSML｜tool_calls>";
    let opening = "\n\n<｜DSML｜tool_calls>\n";
    // What the model would say where tokens are given makes no difference.
    let answer = format!("hm<｜end▁of▁sentence｜>{}{rest}", "x".repeat(count(opening)));
    let world = World::saying(&[&answer]);
    let body = json!({"messages": [{"content": "x"}], "tools": [chat_tool()], "tool_choice": "required"});
    let reply = world.post(CHAT, &body).await.ok();
    let choice = &reply["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{reply}");
    assert_eq!(choice["message"]["reasoning_content"], "hm");
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"command\":\"ls\"}");
    let free = json!({"messages": [{"content": "x"}], "tools": [chat_tool()]});
    assert_eq!(world.post(CHAT, &free).await.ok()["choices"][0]["finish_reason"], "length", "nothing is owed");
}
