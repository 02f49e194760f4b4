//! What real clients sent, replayed: every body is answered, and a conversation's prompt only ever grows.

use crate::world::World;
use axum::body::Body;
use ds4_api::Settings;
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use std::collections::BTreeMap;
use tower::ServiceExt;

struct Capture {
    name: String,
    scenario: String,
    method: String,
    target: String,
    body: Value,
}

fn captures() -> Vec<Capture> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/clients/captures.json.zst");
    let text = zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap();
    let list: Vec<Value> = serde_json::from_slice(&text).unwrap();
    let text = |value: &Value, name: &str| value[name].as_str().unwrap().to_owned();
    list.into_iter()
        .map(|capture| {
            let scenario = format!("{}/{}", text(&capture, "client"), text(&capture, "scenario"));
            Capture {
                name: format!("{scenario}-{:02}", capture["step"].as_u64().unwrap()),
                scenario,
                method: text(&capture, "method"),
                target: text(&capture, "target"),
                body: capture["body"].clone(),
            }
        })
        .collect()
}

/// Captures that are refused, and by which words.
const REFUSED: [(&str, u16, &str); 7] = [
    ("codex/image-01", 400, "input[3].content[1].type: unsupported \\\"input_image\\\""),
    ("openai-python/sdk-06", 400, "is not supported; leave it out"),
    ("openai-python/sdk-14", 400, "previous_response_not_found"),
    ("openai-python/sdk-15", 404, "response_not_found"),
    ("openai-python/sdk-16", 404, "unknown endpoint"),
    ("openai-python/sdk-18", 404, "unknown endpoint"),
    ("anthropic-python/sdk-08", 404, "unknown endpoint"),
];

#[tokio::test]
async fn every_captured_request_is_answered_or_refused_by_name() {
    let world = World::saying(&["ok</think>ok"]);
    // What is held to a schema can only be said by a model that follows it.
    let obedient = World::saying(&["ok</think>{\"x\": 7}"]);
    let mut surprises = Vec::new();
    for capture in captures() {
        let held = ["/response_format/json_schema", "/text/format/schema"];
        let held = held.iter().any(|place| capture.body.pointer(place).is_some());
        let world = if held { &obedient } else { &world };
        let body = if capture.body.is_null() { Body::empty() } else { Body::from(capture.body.to_string()) };
        let request = Request::builder().method(capture.method.as_str()).uri(&capture.target);
        let response = world.api.router().oneshot(request.body(body).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let text = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&text);
        let expected = REFUSED.iter().find(|(name, ..)| *name == capture.name);
        let (code, words) = expected.map_or((200, ""), |(_, code, words)| (*code, *words));
        if status != code || !text.contains(words) {
            surprises.push(format!("{}: {status} {text:.200}", capture.name));
        }
        if held && code == 200 && !text.contains("{\\\"x\\\": 7}") {
            surprises.push(format!("{}: does not hold what the schema asks for: {text:.300}", capture.name));
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

/// Scenarios whose steps are no growing conversation, and why.
const NOT_GROWING: [(&str, &str); 4] = [
    ("claude-code/count-tokens", "each counts another part of a prompt"),
    ("codex/compact", "a compaction replaces what was said"),
    ("openai-python/sdk", "a call of the package each"),
    ("anthropic-python/sdk", "a call of the package each"),
];

/// A request sent again with other wishes for its reply: the same prompt.
const REPEATED: [&str; 1] = ["claude-code/nonstream-fallback"];

/// Conversations whose steps follow each other.
const GROWING: [&str; 13] = [
    "claude-code/multi",
    "claude-code/tool",
    "claude-code/max-tokens-resume",
    "codex/multi",
    "codex/tool",
    "opencode/multi",
    "opencode/multi-anthropic",
    "opencode/multi-responses",
    "opencode/thinking-replay-anthropic",
    "pi/empty-signature",
    "pi/multi",
    "pi/multi-anthropic",
    "pi/multi-responses",
];

#[tokio::test]
async fn the_prompt_of_each_step_is_the_beginning_of_the_next() {
    let mut conversations: BTreeMap<String, Vec<Capture>> = BTreeMap::new();
    // Requests without tools ask for a title, beside the conversation.
    let main = |capture: &Capture| capture.body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    for capture in captures().into_iter().filter(main) {
        conversations.entry(capture.scenario.clone()).or_default().push(capture);
    }
    let steps_of = conversations.iter().filter(|(_, steps)| steps.len() > 1);
    for (scenario, steps) in steps_of {
        let known = GROWING.contains(&scenario.as_str()) || REPEATED.contains(&scenario.as_str());
        let excused = NOT_GROWING.iter().any(|(name, _)| name == scenario);
        assert!(known || excused, "{scenario} has {} steps and nobody says how they follow each other", steps.len());
    }
    for scenario in GROWING.into_iter().chain(REPEATED) {
        let world = World::with(&["ok</think>ok"], Settings::default());
        let steps = &conversations[scenario];
        assert!(steps.len() > 1, "{scenario}");
        let mut before = String::new();
        for step in steps {
            world.post(&step.target, &step.body).await;
            let prompt = world.last_prompt();
            let same = before.bytes().zip(prompt.bytes()).take_while(|(a, b)| a == b).count();
            let parts = |text: &str| {
                String::from_utf8_lossy(&text.as_bytes()[same.saturating_sub(40)..])
                    .chars()
                    .take(200)
                    .collect::<String>()
            };
            assert_eq!(same, before.len(), "{}:\n  {:?}\n  {:?}", step.name, parts(&before), parts(&prompt));
            let repeats = REPEATED.contains(&scenario) && !before.is_empty();
            assert_eq!(prompt.len() == before.len(), repeats, "{}", step.name);
            before = prompt;
        }
    }
}

#[tokio::test]
async fn hosted_tools_and_billing_lines_never_reach_a_prompt() {
    let world = World::saying(&["ok"]);
    let find = |name: &str| captures().into_iter().find(|capture| capture.name == name).unwrap();
    let codex = find("codex/multi-01");
    assert!(codex.body.to_string().contains("web_search"));
    world.post(&codex.target, &codex.body).await.events();
    assert!(!world.last_prompt().contains("web_search"));
    assert!(world.last_prompt().contains("multi_agent_v1__close_agent"));
    let claude = find("claude-code/multi-02");
    assert!(claude.body.to_string().contains("x-anthropic-billing-header"));
    world.post(&claude.target, &claude.body).await.events();
    let prompt = world.last_prompt();
    assert!(!prompt.contains("x-anthropic-") && !prompt.contains("cache_control"));
    assert!(prompt.ends_with("<｜Assistant｜><think>"), "an answer follows the instructions in the middle");
}
