//! Before the model is there, when all places are taken, and after the end was asked for.

use crate::client::{Reply, Server, post, settings};
use ds4_api::Api;
use ds4_engine::QUEUED_MAX;
use http::StatusCode;
use serde_json::{Value, json};
use std::time::Duration;

const HELLO: &str = r#"{"messages": [{"content": "hello"}], "max_tokens": 1}"#;

fn assert_unavailable(reply: &Reply, message: &str, retry_after: &str) {
    let expected = json!({"error": {"message": message, "type": "server_error", "param": null, "code": null}});
    assert_eq!((reply.status, reply.json()), (StatusCode::SERVICE_UNAVAILABLE, expected));
    assert_eq!(reply.headers["retry-after"], retry_after);
}

async fn health(server: &Server) -> (StatusCode, Value) {
    let reply = server.get("/health").await;
    assert_eq!(server.get("/v1/health").await.json(), reply.json());
    (reply.status, reply.json())
}

#[tokio::test]
async fn a_server_answers_while_it_loads_and_serves_as_soon_as_it_is_told() {
    let mut server = Server::saying("ok");
    server.api = Api::new(settings(), None);
    assert_eq!(health(&server).await, (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "loading"})));
    assert_unavailable(&server.post(HELLO).await, "the model is loading; retry shortly", "1");
    assert_unavailable(&server.get("/v1/models").await, "the model is loading; retry shortly", "1");
    server.api.ready(server.serving());
    assert_eq!(health(&server).await, (StatusCode::OK, json!({"status": "ok"})));
    assert_eq!(server.post(HELLO).await.status, StatusCode::OK);
}

#[tokio::test]
async fn draining_refuses_newcomers_and_waits_for_those_who_are_served() {
    let server = Server::saying("ok");
    server.controls().hold();
    let running = tokio::spawn(tower::ServiceExt::oneshot(server.api.router(), post(HELLO)));
    let controls = server.controls().clone();
    tokio::task::spawn_blocking(move || controls.wait_for_steps(1)).await.unwrap();
    assert!(!server.api.drain(Duration::ZERO).await, "one is still served");
    assert_eq!(health(&server).await, (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "draining"})));
    assert_unavailable(&server.post(HELLO).await, "server shutting down", "5");
    let page = async || server.get("/metrics").await.text;
    let watched = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let seen = page().await;
        server.controls().release();
        seen
    };
    let (left, seen) = tokio::join!(server.api.drain(Duration::from_secs(60)), watched);
    assert!(left && seen.contains("\nds4_clients_connected 1\n"), "{seen}");
    assert_eq!(running.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_client_beyond_the_places_is_refused_and_probes_are_not() {
    let server = Server::with_banks("ok", settings(), 1);
    server.controls().hold();
    let router = server.api.router();
    let held: Vec<_> =
        (0..256).map(|_| tokio::spawn(tower::ServiceExt::oneshot(router.clone(), post(HELLO)))).collect();
    // One computes, the others wait.
    let engine = server.bench.engine.handle();
    while engine.queued() < 255 {
        tokio::task::yield_now().await;
    }
    let reply = server.post(HELLO).await;
    assert_unavailable(&reply, "server connection capacity reached; retry later", "10");
    assert_eq!(server.get("/health").await.status, StatusCode::OK);
    assert_eq!(server.get("/v1/models").await.status, StatusCode::OK);
    server.controls().release();
    for task in held {
        assert_eq!(task.await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_full_queue_says_when_to_come_back() {
    let server = Server::saying("ok");
    server.controls().hold();
    let running: Vec<_> = (0..2).map(|_| server.bench.submit(server.bench.request("run", 1))).collect();
    server.controls().wait_for_steps(1);
    // The second may be still in the inbox: fill up until the engine says that it is full.
    let mut waiting = Vec::new();
    while let Ok(stream) = server.bench.engine.handle().submit(server.bench.request("wait", 1)) {
        waiting.push(stream);
        assert!(waiting.len() <= QUEUED_MAX + 2);
    }
    let reply = server.post(HELLO).await;
    let expected = json!({"error": {"message": "request queue is full; retry later", "type": "rate_limit_error",
        "param": null, "code": null}});
    assert_eq!((reply.status, reply.json()), (StatusCode::TOO_MANY_REQUESTS, expected));
    assert_eq!(reply.headers["retry-after"], "5");
    server.controls().release();
    drop((running, waiting));
}

#[tokio::test]
async fn a_full_queue_says_how_long_it_takes_as_soon_as_that_was_seen() {
    let server = Server::with_banks("ok", settings(), 1);
    let engine = server.bench.engine.handle();
    server.controls().hold();
    let mut waiting: Vec<_> = (0..4).map(|_| server.bench.submit(server.bench.request("run", 1))).collect();
    server.controls().wait_for_steps(1);
    server.controls().allow(1);
    server.controls().wait_for_steps(2);
    tokio::time::sleep(Duration::from_millis(100)).await;
    // The second ends, and the third gets its bank after it has waited for a tenth of a second.
    server.controls().allow(1);
    server.controls().wait_for_steps(3);
    while let Ok(stream) = engine.submit(server.bench.request("wait", 1)) {
        waiting.push(stream);
    }
    let wait = engine.expected_wait().expect("it was seen");
    assert!(wait > 25 * Duration::from_secs(1), "257 requests that take a tenth of a second at least: {wait:?}");
    let reply = server.post(HELLO).await;
    assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
    let seconds: u64 = reply.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert_eq!(seconds, (wait.as_secs_f64().ceil() as u64).min(120));
    server.controls().release();
    drop(waiting);
}
