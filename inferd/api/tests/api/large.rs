//! Requests of a size that no context holds: refused for what they are, at the cost of one, and at nobody else's.

use crate::client::{CHAT, Server, post};
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

const MIB: usize = 1 << 20;

/// One message of 20 MB, and a hundred thousand small ones.
fn large() -> [String; 2] {
    let one = format!(r#"{{"messages": [{{"content": "{}"}}]}}"#, "word ".repeat(4 * MIB));
    let many = format!(r#"{{"messages": [{}]}}"#, vec![r#"{"role": "user", "content": "x"}"#; 100_000].join(","));
    [one, many]
}

#[tokio::test]
async fn what_no_context_holds_is_refused_and_rendered_once() {
    for body in large() {
        let server = Server::saying("ok");
        let reply = server.post(body).await;
        let error = &reply.json()["error"];
        assert_eq!((reply.status, &error["code"]), (StatusCode::BAD_REQUEST, &json!("context_length_exceeded")));
        assert_eq!((&error["param"], &error["n_ctx"]), (&json!("messages"), &json!(400)));
        assert!(server.bench.codec.rendered.lock().unwrap().len() <= 1, "rendered once at most");
        assert!(server.controls().steps().is_empty(), "nothing was computed");
    }
}

/// The runtime has one thread: were anything of a large request done on it, a stream that has tokens to give would
/// have to wait for all of it.
#[tokio::test(flavor = "current_thread")]
async fn a_stream_does_not_wait_while_a_large_request_is_prepared() {
    let server = Server::saying(&"x".repeat(300));
    let stream = json!({"messages": [{"content": "Why?"}], "stream": true, "temperature": 0}).to_string();
    server.controls().hold();
    let mut stream = server.send(post(stream)).await.into_body();
    server.controls().allow(30);
    server.controls().wait_for_steps(31);
    let log: Arc<Mutex<Vec<&str>>> = Arc::default();
    let [one, _] = large();
    let request = Request::post(CHAT).header("content-type", "application/json").body(Body::from(one)).unwrap();
    let router = server.api.router();
    let at_its_end = log.clone();
    let large = tokio::spawn(async move {
        let reply = tower::ServiceExt::oneshot(router, request).await.unwrap();
        at_its_end.lock().unwrap().push("large");
        reply.status()
    });
    // The large one begins.
    tokio::task::yield_now().await;
    let mut heard = 0;
    while heard < 20 {
        let frame = stream.frame().await.unwrap().unwrap().into_data().unwrap();
        let events = frame.split(|&byte| byte == b'\n').filter_map(|line| line.strip_prefix(b"data: "));
        let events = events.filter_map(|data| serde_json::from_slice::<Value>(data).ok());
        heard += events.filter(|event| event["choices"][0]["delta"]["content"] == "x").count();
    }
    log.lock().unwrap().push("tokens");
    assert_eq!(large.await.unwrap(), StatusCode::BAD_REQUEST);
    assert_eq!(*log.lock().unwrap(), ["tokens", "large"]);
    server.controls().release();
}

#[tokio::test]
async fn text_without_a_break_and_more_tokens_than_fit_are_refused_before_they_are_taken_apart() {
    let server = Server::saying("ok");
    let ask = async |path: &str, body: Value| {
        let request = Request::post(path).header("content-type", "application/json");
        let reply = server.reply(request.body(Body::from(body.to_string())).unwrap()).await;
        (reply.status, reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned())
    };
    let unbroken = "the text goes on for 1572864 bytes without a break; the limit is 1048576";
    for field in ["prompt", "content"] {
        let (status, message) = ask("/tokenize", json!({field: "x".repeat(3 * MIB / 2)})).await;
        assert_eq!((status, message), (StatusCode::BAD_REQUEST, format!("{field}: {unbroken}")));
    }
    let (status, _) = ask("/tokenize", json!({"prompt": "word ".repeat(1_000)})).await;
    assert_eq!(status, StatusCode::OK, "longer than the context, and told");
    let (status, message) = ask("/v1/completions", json!({"prompt": vec![1; 400]})).await;
    let expected = "Prompt has 400 tokens, but the configured context size is 400 tokens".to_owned();
    assert_eq!((status, message), (StatusCode::BAD_REQUEST, expected));
}
