//! When the engine fails, and when clients wait.

use crate::world::{CHAT, COMPLETIONS, MESSAGES, RESPONSES, World};
use ds4_units::TokenId;
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::time::Duration;

fn bodies(stream: bool) -> [(&'static str, Value); 4] {
    [
        (CHAT, json!({"messages": [{"content": "x"}], "stream": stream, "thinking": false})),
        (COMPLETIONS, json!({"prompt": "x", "stream": stream})),
        (RESPONSES, json!({"input": "x", "stream": stream, "reasoning": {"effort": "none"}})),
        (MESSAGES, json!({"messages": [{"role": "user", "content": "x"}], "stream": stream})),
    ]
}

fn failing() -> World {
    let world = World::saying(&["ab!cd"]);
    world.controls.poison(TokenId(b'!'.into()));
    world
}

#[tokio::test]
async fn a_failure_in_mid_stream_is_an_event_and_never_a_quiet_end() {
    let message = "the engine could not compute this request";
    for (path, body) in bodies(true) {
        let events = failing().post(path, &body).await.events();
        let last = events.last().unwrap();
        assert!(events.iter().all(|event| event.data != "[DONE]"), "{path}");
        let (name, said) = match path {
            RESPONSES => ("response.failed", &last.data["response"]["error"]["message"]),
            _ => ("error", &last.data["error"]["message"]),
        };
        assert_eq!((last.name.as_str(), said), (name, &json!(message)), "{path}");
        if path == MESSAGES {
            assert_eq!(last.data["error"]["type"], "api_error");
        }
        if path == RESPONSES {
            assert_eq!(last.data["response"]["error"]["code"], "server_error");
            assert_eq!(last.data["response"]["status"], "failed");
        }
    }
}

#[tokio::test]
async fn a_request_that_always_fails_is_refused_after_its_second_failure() {
    let blown = "the engine failed on this request more than once; it is not computed again";
    for (path, body) in bodies(false) {
        let world = failing();
        assert_eq!(world.post(path, &body).await.status, StatusCode::INTERNAL_SERVER_ERROR, "{path}");
        for _ in 0..2 {
            let reply = world.post(path, &body).await;
            assert_eq!((reply.status, &reply.json()["error"]["message"]), (StatusCode::BAD_REQUEST, &json!(blown)));
        }
    }
    let world = failing();
    let body = json!({"input": "x", "stream": true});
    world.post(RESPONSES, &body).await.events();
    let last = world.post(RESPONSES, &body).await.events().pop().unwrap();
    assert_eq!(last.data["response"]["error"]["code"], "invalid_prompt");
}

#[tokio::test(start_paused = true)]
async fn typed_events_break_silence_where_clients_do_not_count_comments() {
    for (path, beat) in [(RESPONSES, "event: response.in_progress\n"), (MESSAGES, "event: ping\n")] {
        let world = World::saying(&["ok"]);
        world.controls.hold();
        let (_, body) = bodies(true).into_iter().find(|(other, _)| *other == path).unwrap();
        let mut stream = world.send(path, body.to_string()).await.into_body();
        let begun = tokio::time::Instant::now();
        world.controls.wait_for_steps(1);
        let mut beats = Vec::new();
        while beats.len() < 3 {
            let frame = stream.frame().await.unwrap().unwrap().into_data().unwrap();
            if frame.starts_with(beat.as_bytes()) {
                beats.push(begun.elapsed());
            }
        }
        assert_eq!(beats, [5, 10, 15].map(Duration::from_secs), "{path}");
        world.controls.release();
        let rest = String::from_utf8(stream.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        assert!(rest.contains("response.completed") || rest.contains("message_stop"), "{rest}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_bank_hears_that_it_is_alive() {
    let world = World::of(&["ok"], ds4_api::Settings::default(), 1_000, 1);
    world.controls.hold();
    let first = world.send(CHAT, bodies(true)[0].1.to_string()).await;
    world.controls.wait_for_steps(1);
    for (path, body) in bodies(true) {
        let mut waiting = world.send(path, body.to_string()).await.into_body();
        let frame = waiting.frame().await.unwrap().unwrap().into_data().unwrap();
        let expected: &[u8] = match path {
            RESPONSES => b"event: response.created\n",
            MESSAGES => b"event: ping\n",
            _ => b": prefill\n",
        };
        assert!(frame.starts_with(expected), "{path}: {frame:?}");
    }
    drop(first);
    world.controls.release();
}

#[tokio::test]
async fn a_trace_holds_prompt_and_answer_and_no_key() {
    use axum::body::Body;
    use ds4_api::{Api, ApiKey, Settings, Trace};
    use tower::ServiceExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let settings = Settings { api_keys: vec![ApiKey::new("secret-key").unwrap()], ..Settings::default() };
    let mut world = World::with(&["hm</think>Yes."], settings.clone());
    let api = Api::new(settings, Some(Trace::new(std::fs::File::create(&path).unwrap()).unwrap()));
    api.ready(world.serving());
    world.api = api;
    for (path, body) in bodies(true).into_iter().chain(bodies(false)) {
        let request = http::Request::post(path).header("authorization", "Bearer secret-key");
        let response = world.api.router().oneshot(request.body(Body::from(body.to_string())).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body().collect().await.unwrap();
    }
    let text = loop {
        let text = std::fs::read_to_string(&path).unwrap();
        if text.lines().count() == 8 && text.ends_with('\n') {
            break text;
        }
        tokio::task::yield_now().await;
    };
    assert!(!text.contains("secret-key"));
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["outcome"], "completed");
        assert!(line["prompt"].as_str().unwrap().starts_with("<｜begin▁of▁sentence｜>"), "{line}");
        assert!(line["content"].as_str().unwrap().contains("Yes."), "{line}");
        assert!(line["request_id"].as_str().unwrap().starts_with("req_"));
    }
}
