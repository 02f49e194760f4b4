//! Tool calls out of the model, on every surface: what an answer becomes, whatever the model wrote.

use crate::world::{CHAT, MESSAGES, RESPONSES, World, block, chat_tool, messages_tool, responses_tool, tokenizer};
use http::StatusCode;
use serde_json::{Value, json};

const LS: &[(&str, bool, &str)] = &[("command", true, "ls")];

fn chat(extra: Value) -> Value {
    let mut body = json!({"messages": [{"content": "x"}], "tools": [chat_tool()], "thinking": false});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// Text, calls (name and arguments) and finish of a chat reply.
fn parts(reply: &Value) -> (Value, Vec<(String, String)>, String) {
    let choice = &reply["choices"][0];
    let calls = choice["message"]["tool_calls"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let calls = calls.map(|call| (text(&call["function"]["name"]), text(&call["function"]["arguments"])));
    (choice["message"]["content"].clone(), calls.collect(), text(&choice["finish_reason"]))
}

async fn said(answer: &str, extra: Value) -> (Value, Vec<(String, String)>, String) {
    let reply = World::saying(&[answer]).post(CHAT, &chat(extra)).await;
    parts(&reply.ok())
}

fn ls() -> Vec<(String, String)> {
    vec![("bash".into(), "{\"command\":\"ls\"}".into())]
}

#[tokio::test]
async fn a_block_that_lacks_its_closers_is_repaired() {
    let whole = block(&[("bash", LS)]);
    for cut in ["\n</｜DSML｜tool_calls>", "\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"] {
        let answer = whole.strip_suffix(cut).unwrap();
        assert_eq!(said(answer, json!({})).await, (Value::Null, ls(), "tool_calls".into()), "{answer}");
    }
}

#[tokio::test]
async fn a_budget_that_ends_inside_a_block_is_length_on_every_surface() {
    let answer = format!("Sure.{}", block(&[("bash", &[("command", true, "echo a long command")])]));
    let world = World::saying(&[&answer]);
    let spoken = &answer[..answer.find("long").unwrap()];
    let budget = tokenizer().encode(&tokenizer().parse_trusted(spoken)).len();
    let (text, calls, finish) = parts(&world.post(CHAT, &chat(json!({"max_tokens": budget}))).await.ok());
    assert_eq!((calls.len(), finish.as_str()), (0, "length"));
    assert!(text.as_str().unwrap().starts_with("Sure."));
    let streamed = world.post(CHAT, &chat(json!({"max_tokens": budget, "stream": true}))).await.events();
    assert_eq!(streamed[streamed.len() - 2].data["choices"][0]["finish_reason"], "length");
    let body = json!({"input": "x", "tools": [responses_tool()], "max_output_tokens": budget, "reasoning": {"effort": "none"}});
    assert_eq!(world.post(RESPONSES, &body).await.ok()["status"], "incomplete");
    let body =
        json!({"messages": [{"role": "user", "content": "x"}], "tools": [messages_tool()], "max_tokens": budget});
    assert_eq!(world.post(MESSAGES, &body).await.ok()["stop_reason"], "max_tokens");
}

#[tokio::test]
async fn reasoning_that_ends_with_a_block_is_a_call_and_a_quoted_block_is_not() {
    let implied = format!("I will look.{}", block(&[("bash", LS)]));
    let (_, calls, finish) = said(&implied, json!({"thinking": true})).await;
    assert_eq!((calls, finish.as_str()), (ls(), "tool_calls"));
    let quoted = format!("The form is{} and so on.</think>Done.", block(&[("bash", LS)]));
    assert_eq!(said(&quoted, json!({"thinking": true})).await, (json!("Done."), vec![], "stop".into()));
    let both = format!("Like{} so.</think>{}", block(&[("bash", &[("command", true, "rm")])]), block(&[("bash", LS)]));
    assert_eq!(said(&both, json!({"thinking": true})).await, (Value::Null, ls(), "tool_calls".into()));
}

#[tokio::test]
async fn three_calls_have_three_indexes_and_three_ids() {
    let answer = block(&[("bash", LS), ("bash", LS), ("bash", &[])]);
    let world = World::saying(&[&answer]);
    let events = world.post(CHAT, &chat(json!({"stream": true}))).await.events();
    let headers: Vec<(u64, String)> = events
        .iter()
        .filter_map(|event| {
            let call = &event.data["choices"][0]["delta"]["tool_calls"][0];
            Some((call["index"].as_u64()?, call["id"].as_str()?.to_owned()))
        })
        .collect();
    assert_eq!(headers.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 1, 2]);
    let mut ids: Vec<&String> = headers.iter().map(|(_, id)| id).collect();
    assert!(ids.iter().all(|id| id.len() == "call_".len() + 32));
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn a_call_without_arguments_is_an_empty_object_both_ways() {
    let (_, calls, _) = said(&block(&[("bash", &[])]), json!({})).await;
    assert_eq!(calls, [("bash".to_owned(), "{}".to_owned())]);
    let world = World::saying(&["ok"]);
    let mut prompts = Vec::new();
    for arguments in [json!("{}"), json!(""), Value::Null, json!({})] {
        let messages = json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "bash", "arguments": arguments}}]},
            {"role": "tool", "tool_call_id": "c", "content": "done"}]);
        prompts.push(world.prompt(&json!({"messages": messages})).await);
    }
    assert!(prompts.iter().all(|prompt| *prompt == prompts[0]));
}

#[tokio::test]
async fn markup_never_leaks_on_any_surface() {
    let orphan = "Fine.\n</｜DSML｜tool_calls>";
    let broken = "Fine.\n\n<｜DSML｜tool_calls>\n<｜DSML｜nonsense>";
    let world = |answer: &str| World::saying(&[answer]);
    assert_eq!(said(orphan, json!({})).await.0, "Fine.\n");
    for answer in [orphan, broken, "Fine.\n\n<｜DSML｜tool_calls>\n</｜DSML｜tool_calls>"] {
        let responses = json!({"input": "x", "tools": [responses_tool()], "reasoning": {"effort": "none"}});
        let messages = json!({"messages": [{"role": "user", "content": "x"}], "tools": [messages_tool()]});
        for (path, body) in [(CHAT, chat(json!({}))), (RESPONSES, responses), (MESSAGES, messages)] {
            for stream in [false, true] {
                let mut body = body.clone();
                body["stream"] = stream.into();
                let reply = world(answer).post(path, &body).await;
                assert_eq!(reply.status, StatusCode::OK, "no output of the model is a server error: {}", reply.text);
                assert!(!reply.text.contains("\"finish_reason\":\"error\""));
            }
        }
    }
    // Without tools a block is left out.
    let body = json!({"messages": [{"content": "x"}], "thinking": false});
    let reply = world(&format!("Fine.{}", block(&[("bash", LS)]))).post(CHAT, &body).await.ok();
    assert_eq!(parts(&reply), (json!("Fine."), vec![], "stop".into()));
}

#[tokio::test]
async fn a_choice_to_call_forces_the_block_and_a_name_its_call() {
    let rest = "<｜DSML｜invoke name=\"bash\">\n<｜DSML｜parameter name=\"command\" string=\"true\">ls</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
    let forced = format!("\n\n<｜DSML｜tool_calls>\n{rest}");
    for choice in [json!("required"), json!({"type": "function", "function": {"name": "bash"}})] {
        let (_, calls, finish) = said(&forced, json!({"tool_choice": choice})).await;
        assert_eq!((calls, finish.as_str()), (ls(), "tool_calls"));
    }
    let world = World::saying(&["ok"]);
    for (extra, message) in [
        (
            json!({"tool_choice": {"type": "function", "function": {"name": "other"}}}),
            "tool_choice: no tool of the request is called \"other\"",
        ),
        (json!({"tool_choice": "required", "tools": []}), "tool_choice: needs tools, and there are none"),
        (json!({"tool_choice": "sometimes"}), "tool_choice=sometimes not supported"),
        (
            json!({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "other"}}]}}}),
            "tool_choice: no tool of the request is called \"other\"",
        ),
    ] {
        let reply = world.post(CHAT, &chat(extra)).await;
        assert_eq!((reply.status, &reply.json()["error"]["message"]), (StatusCode::BAD_REQUEST, &json!(message)));
    }
}

#[tokio::test]
async fn without_parallel_calls_an_answer_ends_after_the_first() {
    let answer = block(&[("bash", LS), ("bash", &[("command", true, "pwd")])]);
    let (_, calls, finish) = said(&answer, json!({"parallel_tool_calls": false})).await;
    assert_eq!((calls, finish.as_str()), (ls(), "tool_calls"));
}

#[tokio::test]
async fn an_emoji_of_four_tokens_is_one_delta_and_cut_short_one_mark() {
    let world = World::saying(&["a😀"]);
    let body = |tokens: u32| chat(json!({"stream": true, "max_tokens": tokens, "return_token_ids": true}));
    let texts = |events: Vec<crate::world::Sent>| -> Vec<String> {
        events
            .iter()
            .filter_map(|event| event.data["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
            .collect()
    };
    assert_eq!(texts(world.post(CHAT, &body(5)).await.events()), ["", "a", "😀"]);
    assert_eq!(texts(world.post(CHAT, &body(3)).await.events()), ["", "a", "\u{FFFD}"]);
}

#[tokio::test]
async fn a_stop_string_neither_fires_in_reasoning_nor_in_arguments() {
    let answer = format!("stop here</think>Go.{}", block(&[("bash", &[("command", true, "stop")])]));
    let (text, calls, finish) = said(&answer, json!({"thinking": true, "stop": ["stop"]})).await;
    assert_eq!((text, calls.len(), finish.as_str()), (json!("Go."), 1, "tool_calls"));
}
