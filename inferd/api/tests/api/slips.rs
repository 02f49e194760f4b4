//! Answers that announce a tool call and make none.

use crate::client::{CHAT, Server, settings};
use crate::support::Bench;
use crate::support::model::Rule;
use crate::support::vocabulary::{ASSISTANT, EOS, SIZE, tokens};
use axum::body::Body;
use ds4_api::{Api, Settings, Trace, Traces};
use ds4_engine::EngineOptions;
use http::Request;
use serde_json::{Value, json};
use std::sync::Mutex;

/// Says the answers in turn, one each time that an answer begins.
fn in_turn(answers: [&'static str; 2]) -> Rule {
    let said_before = Mutex::new(0);
    Box::new(move |history| {
        let opening = history.iter().rposition(|&token| token == ASSISTANT).map_or(history.len(), |at| at + 2);
        let said = history.len().saturating_sub(opening);
        let mut nth = said_before.lock().unwrap();
        let answer = tokens(answers[usize::min(*nth, 1)]);
        let next = answer.get(said).copied().unwrap_or(EOS);
        if said >= answer.len() {
            *nth += 1;
        }
        (0..SIZE).map(|id| if id == next.index() { 10.0 } else { 0.0 }).collect()
    })
}

fn server(settings: Settings, traces: Traces) -> Server {
    let bench = Bench::new(in_turn(["I see. Let me run it:", "It is done."]), 400, EngineOptions::default());
    let server = Server { api: Api::new(settings, traces), bench };
    server.api.ready(server.serving());
    server
}

fn body(stream: bool, last_role: &str) -> Request<Body> {
    let call = json!({"id": "c", "function": {"name": "f", "arguments": "{}"}});
    let body = json!({
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": last_role, "tool_call_id": "c", "content": "r"},
        ],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "stream": stream,
    });
    Request::post(CHAT).header("content-type", "application/json").body(body.to_string().into()).unwrap()
}

fn content(reply: &Value) -> &str {
    reply["choices"][0]["message"]["content"].as_str().unwrap_or_else(|| panic!("{reply}"))
}

#[tokio::test]
async fn a_slip_is_asked_for_once_more_when_that_is_wanted() {
    let wanted = Settings { resample_slips: true, ..settings() };
    let reply = server(wanted.clone(), Traces::default()).reply(body(false, "tool")).await.json();
    assert_eq!(content(&reply), "It is done.");
    let reply = server(settings(), Traces::default()).reply(body(false, "tool")).await.json();
    assert_eq!(content(&reply), "I see. Let me run it:");
    // Nobody waits for a tool's consequence after a question.
    let reply = server(wanted.clone(), Traces::default()).reply(body(false, "user")).await.json();
    assert_eq!(content(&reply), "I see. Let me run it:");
    // What was streamed cannot be taken back.
    let streamed = server(wanted, Traces::default()).reply(body(true, "tool")).await.text;
    assert!(!streamed.contains("done"), "{streamed}");
}

#[tokio::test]
async fn slips_are_written_down_and_other_answers_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slips");
    let traces = || {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(&path).unwrap();
        Traces { all: None, slips: Some(Trace::new(file).unwrap()) }
    };
    let server = server(settings(), traces());
    server.reply(body(false, "tool")).await;
    server.reply(body(false, "tool")).await;
    // The writing thread ends with the server; what it has is on the disk then.
    drop(server);
    let mut text = String::new();
    for _ in 0..600 {
        text = std::fs::read_to_string(&path).unwrap();
        if text.ends_with('\n') {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["content"], "I see. Let me run it:");
    assert_eq!(lines[0]["request"]["tools"][0]["function"]["name"], "f");
}
