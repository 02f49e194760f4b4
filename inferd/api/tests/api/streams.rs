//! Streamed chat replies, chunk by chunk.

use crate::chat::settled;
use crate::client::{Server, post, settings};
use axum::response::Response;
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinHandle;
use tower::ServiceExt;

fn body(extra: Value) -> String {
    let mut body = json!({"messages": [{"content": "Why?"}], "temperature": 0, "stream": true, "model": "m"});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body.to_string()
}

/// The events of a stream: JSON with what differs taken out, other lines as they are.
async fn events(server: &Server, extra: Value) -> Vec<Value> {
    let reply = server.post(body(extra)).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text);
    assert_eq!(reply.headers["content-type"], "text/event-stream");
    assert_eq!(reply.headers["cache-control"], "no-cache");
    assert_eq!(reply.headers["x-accel-buffering"], "no");
    let events = reply.text.strip_suffix("\n\n").unwrap().split("\n\n");
    events
        .map(|event| match event.strip_prefix("data: ").and_then(|data| serde_json::from_str(data).ok()) {
            Some(chunk) => settled(chunk),
            None => event.into(),
        })
        .collect()
}

fn chunk(delta: Value, finish: Value) -> Value {
    json!({"id": "ID", "object": "chat.completion.chunk", "created": 0, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

#[tokio::test]
async fn chunks_come_in_the_published_order() {
    let server = Server::saying("h</think>é!");
    let expected = vec![
        chunk(json!({"role": "assistant", "content": ""}), json!(null)),
        chunk(json!({"reasoning_content": "h"}), json!(null)),
        chunk(json!({"content": "é"}), json!(null)),
        chunk(json!({"content": "!"}), json!(null)),
        chunk(json!({}), json!("stop")),
        "data: [DONE]".into(),
    ];
    assert_eq!(events(&server, json!({"thinking": true})).await, expected);
}

#[tokio::test]
async fn usage_comes_last_when_asked_for_and_is_announced_as_null() {
    let server = Server::saying("ok");
    let events = events(&server, json!({"stream_options": {"include_usage": true}})).await;
    let (done, chunks) = events.split_last().unwrap();
    assert_eq!(*done, "data: [DONE]");
    let (usage, before) = chunks.split_last().unwrap();
    assert!(before.iter().all(|chunk| chunk["usage"] == Value::Null && chunk.get("usage").is_some()));
    let expected = json!({"id": "ID", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [],
        "usage": {
            "prompt_tokens": 8, "completion_tokens": 2, "total_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 8},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
        "timings": {"prefill_tokens": 8, "prefill_cached_tokens": 0, "reuse_kind": "cold"}});
    assert_eq!(*usage, expected);
}

#[tokio::test]
async fn token_ids_travel_with_the_text_they_decode_to() {
    let server = Server::saying("a😀");
    let events = events(&server, json!({"return_token_ids": true})).await;
    let pieces: Vec<_> = events
        .iter()
        .filter(|event| event["choices"][0].get("token_ids").is_some())
        .map(|event| (event["choices"][0]["delta"]["content"].clone(), event["choices"][0]["token_ids"].clone()))
        .collect();
    assert_eq!(pieces, [(json!("a"), json!([97])), (json!("😀"), json!([240, 159, 152, 128]))]);
}

#[tokio::test]
async fn a_budget_spent_while_streaming_says_length() {
    let server = Server::saying("Because.");
    let events = events(&server, json!({"max_tokens": 2})).await;
    assert_eq!(events[events.len() - 2], chunk(json!({}), json!("length")));
}

#[tokio::test]
async fn a_failure_after_the_first_byte_is_an_event_and_no_done_follows() {
    let server = Server::saying("ab!cd");
    server.controls().poison(ds4_units::TokenId(b'!'.into()));
    let events = events(&server, json!({})).await;
    let expected = "event: error\ndata: {\"error\":{\"message\":\"the engine could not compute this request\",\
                    \"type\":\"server_error\",\"param\":null,\"code\":null}}";
    assert_eq!(*events.last().unwrap(), expected);
    assert_eq!(events[events.len() - 2]["choices"][0]["delta"]["content"], "!");
}

#[tokio::test(start_paused = true)]
async fn silence_is_broken_every_five_seconds() {
    let server = Server::saying("ok");
    server.controls().hold();
    let mut body = server.send(post(body(json!({})))).await.into_body();
    let begun = tokio::time::Instant::now();
    // It is admitted now; its first step is held.
    server.controls().wait_for_steps(1);
    let mut beats = Vec::new();
    let mut frames = Vec::new();
    while beats.len() < 3 {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        match frame.starts_with(b": ") {
            true => beats.push((frame, begun.elapsed().as_secs())),
            false => frames.push(frame),
        }
    }
    let at = |second: u64| (bytes::Bytes::from_static(b": prefill\n\n"), second);
    assert_eq!(beats, [at(5), at(10), at(15)]);
    assert_eq!(frames.len(), 1, "the role was sent at admission");
    server.controls().release();
    let rest = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
}

#[tokio::test]
async fn a_client_that_leaves_stops_its_row_and_keeps_its_prefix_warm() {
    let server = Server::saying(&"x".repeat(300));
    server.controls().hold();
    let response = server.send(post(body(json!({})))).await;
    server.controls().allow(6);
    server.controls().wait_for_steps(7);
    drop(response);
    server.controls().release();
    let next = server.post(json!({"messages": [{"content": "Why?"}], "max_tokens": 1}).to_string()).await.json();
    assert_eq!(next["usage"]["prompt_tokens_details"]["cached_tokens"], 6);
    // Two steps of the first prompt and five of its answer, one of what the second prompt lacks.
    assert_eq!(server.controls().steps().len(), 8);
}

#[tokio::test]
async fn a_client_that_leaves_before_a_whole_reply_stops_its_row_too() {
    let server = Server::saying(&"x".repeat(300));
    server.controls().hold();
    let request = post(json!({"messages": [{"content": "Why?"}]}).to_string());
    let waiting = tokio::spawn(tower::ServiceExt::oneshot(server.api.router(), request));
    let controls = server.controls().clone();
    tokio::task::spawn_blocking(move || controls.wait_for_steps(1)).await.unwrap();
    waiting.abort();
    assert!(waiting.await.is_err());
    server.controls().release();
    server.post(json!({"messages": [{"content": "Other"}], "max_tokens": 1}).to_string()).await;
    assert_eq!(server.controls().steps().len(), 3);
}

#[tokio::test]
async fn a_stream_that_is_refused_for_memory_has_the_status_and_names_what_fits() {
    let server = Server::with_room("ok", 100);
    let refused = server.post(body(json!({"max_tokens": 93}))).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.text);
    assert_eq!(
        (refused.headers.get("retry-after"), &refused.headers["x-should-retry"]),
        (None, &"false".parse().unwrap())
    );
    let error = serde_json::from_str::<Value>(&refused.text).unwrap();
    assert_eq!((&error["error"]["code"], &error["error"]["retryable"]), (&json!("class_budget"), &json!(false)));
    assert_eq!(error["error"]["max_admissible_tokens"], 100);
    // What was planned, and somebody else has now.
    server.controls().others_take(1);
    std::thread::sleep(Duration::from_millis(60));
    let refused = server.post(body(json!({"max_tokens": 92}))).await;
    assert_eq!(
        (refused.status, &refused.headers["retry-after"]),
        (StatusCode::SERVICE_UNAVAILABLE, &"30".parse().unwrap())
    );
    let error = serde_json::from_str::<Value>(&refused.text).unwrap();
    assert_eq!((&error["error"]["code"], &error["error"]["retryable"]), (&json!("live_headroom"), &json!(true)));
    assert_eq!(error["error"]["max_admissible_tokens"], 99);
    server.controls().others_take(0);
    std::thread::sleep(Duration::from_millis(60));
    // Of those the prompt has 8.
    let fits = server.post(body(json!({"max_tokens": 92}))).await;
    assert_eq!(fits.status, StatusCode::OK, "{}", fits.text);
}

/// A streamed request that waits for the only bank, which another has, and time that passes only as the test says.
async fn waiting(server: &Server) -> JoinHandle<Response> {
    // As long as something is to be done, a clock that stands still does not jump.
    tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    server.controls().hold();
    let first = server.send(post(body(json!({})))).await;
    tokio::spawn(first.into_body().collect());
    let router = server.api.router();
    let second = tokio::spawn(async move { router.oneshot(post(body(json!({})))).await.unwrap() });
    while server.bench.engine.handle().queued() == 0 {
        tokio::task::yield_now().await;
    }
    second
}

/// Lets so much time pass, and everybody see it.
async fn pass(time: Duration) {
    tokio::time::advance(time).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_turned_away_half_a_second_later_still_has_a_status_that_says_so() {
    let server = Server::with_banks("ok", settings(), 1);
    let waiting = waiting(&server).await;
    pass(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished(), "nobody knows yet what becomes of it");
    server.controls().lose_device();
    server.controls().release();
    let refused = waiting.await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["content-type"], "application/json");
}

#[tokio::test(start_paused = true)]
async fn who_waits_longer_has_a_stream_that_has_begun() {
    let server = Server::with_banks("ok", settings(), 1);
    let waiting = waiting(&server).await;
    pass(Duration::from_secs(2)).await;
    assert!(waiting.is_finished(), "two seconds are too long for a head");
    let begun = waiting.await.unwrap();
    assert_eq!(
        (begun.status(), &begun.headers()["content-type"]),
        (StatusCode::OK, &"text/event-stream".parse().unwrap())
    );
    server.controls().release();
    let rest = String::from_utf8(begun.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
}
