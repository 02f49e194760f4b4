//! Requests that are turned away before they have a bank: each gets a status that clients repeat on, a time to come back
//! at, and is counted.

use crate::client::{Reply, Server, post, settings};
use axum::body::Body;
use ds4_api::Settings;
use ds4_engine::EngineOptions;
use ds4_units::Bytes;
use http::{Response, StatusCode};
use std::time::Duration;
use tokio::task::JoinHandle;

const HELLO: &str = r#"{"messages": [{"content": "hello"}], "max_tokens": 1}"#;

type Asked = JoinHandle<Result<Response<Body>, std::convert::Infallible>>;

/// A server with one bank that is in use, until its steps are let go.
async fn busy(settings: Settings, options: EngineOptions) -> (Server, Asked) {
    let server = Server::with_options("ok", settings, EngineOptions { banks: 1, ..options });
    server.controls().hold();
    let running = ask(&server, HELLO);
    let controls = server.controls().clone();
    tokio::task::spawn_blocking(move || controls.wait_for_steps(1)).await.unwrap();
    (server, running)
}

fn ask(server: &Server, body: &str) -> Asked {
    tokio::spawn(tower::ServiceExt::oneshot(server.api.router(), post(body.to_owned())))
}

async fn until_queued(server: &Server, count: usize) {
    let engine = server.bench.engine.handle();
    while engine.queued() < count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A reply that says when to come back, and was counted once for `reason`, by name as by what it was.
async fn assert_shed(server: &Server, reply: &Reply, status: StatusCode, reason: &str) {
    assert_eq!(reply.status, status, "{reason}: {reply:?}");
    let seconds: u32 = reply.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=120).contains(&seconds), "{seconds}");
    let page = server.get("/metrics").await.text;
    for known in ["clients", "queue_depth", "queue_bytes", "queue_age", "slow_reader"] {
        let line = format!("ds4_requests_shed_total{{reason=\"{known}\"}} {}", u8::from(known == reason));
        assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
    }
    let code = status.as_u16();
    assert!(
        page.contains(&format!("ds4_http_responses_total{{code=\"{code}\",surface=\"openai_chat\"}} 1\n")),
        "{page}"
    );
}

async fn answered(asked: impl IntoIterator<Item = Asked>) {
    for one in asked {
        assert_eq!(one.await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn one_more_than_there_are_places_for_clients() {
    let settings = Settings { clients_max: 2, ..settings() };
    let (server, running) = busy(settings, EngineOptions::default()).await;
    let waits = ask(&server, HELLO);
    until_queued(&server, 1).await;
    assert_shed(&server, &server.post(HELLO).await, StatusCode::SERVICE_UNAVAILABLE, "clients").await;
    server.controls().release();
    answered([running, waits]).await;
}

#[tokio::test]
async fn one_more_than_may_wait() {
    let options = EngineOptions { queued_max: 2, ..EngineOptions::default() };
    let (server, running) = busy(settings(), options).await;
    let waiting = [ask(&server, HELLO), ask(&server, HELLO)];
    until_queued(&server, 2).await;
    assert_shed(&server, &server.post(HELLO).await, StatusCode::TOO_MANY_REQUESTS, "queue_depth").await;
    server.controls().release();
    answered(waiting.into_iter().chain([running])).await;
}

#[tokio::test]
async fn a_prompt_for_which_there_is_no_room_among_those_that_wait() {
    let options = EngineOptions { queued_bytes_max: Bytes(1), ..EngineOptions::default() };
    let (server, running) = busy(settings(), options).await;
    let waits = ask(&server, HELLO);
    until_queued(&server, 1).await;
    assert_shed(&server, &server.post(HELLO).await, StatusCode::TOO_MANY_REQUESTS, "queue_bytes").await;
    server.controls().release();
    answered([running, waits]).await;
}

#[tokio::test]
async fn a_body_for_which_there_is_no_room_among_those_that_are_read() {
    let server = Server::with("ok", Settings { bodies_max: Bytes(1000), ..settings() });
    let silent = Body::from_stream(futures_util::stream::pending::<Result<bytes::Bytes, std::convert::Infallible>>());
    let mut request = post(silent);
    request.headers_mut().insert("content-length", "990".parse().unwrap());
    let held = tokio::spawn(tower::ServiceExt::oneshot(server.api.router(), request));
    tokio::task::yield_now().await;
    assert_shed(&server, &server.post(HELLO).await, StatusCode::TOO_MANY_REQUESTS, "queue_bytes").await;
    held.abort();
    assert!(held.await.is_err());
    assert_eq!(server.post(HELLO).await.status, StatusCode::OK);
    // What could never be paid for is no matter of coming back.
    let reply = server.post(" ".repeat(1001)).await;
    assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(reply.text.contains("larger than 1000 bytes"), "{reply:?}");
}

#[tokio::test]
async fn who_has_waited_for_longer_than_anybody_should() {
    let options = EngineOptions { queue_age_max: Duration::from_millis(200), ..EngineOptions::default() };
    let (server, running) = busy(settings(), options).await;
    let waits = ask(&server, HELLO);
    until_queued(&server, 1).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.controls().release();
    let response = waits.await.unwrap().unwrap();
    let (head, body) = response.into_parts();
    let bytes = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let reply = Reply { status: head.status, headers: head.headers, text };
    assert_shed(&server, &reply, StatusCode::TOO_MANY_REQUESTS, "queue_age").await;
    answered([running]).await;
}

#[tokio::test]
async fn without_limits_more_come_than_any_default_allows() {
    let settings = Settings { clients_max: 0, bodies_max: Bytes(0), ..settings() };
    let (server, running) = busy(settings, EngineOptions { queued_max: 0, ..EngineOptions::default() }).await;
    let waiting: Vec<_> = (0..300).map(|_| ask(&server, HELLO)).collect();
    until_queued(&server, 300).await;
    server.controls().release();
    answered(waiting.into_iter().chain([running])).await;
}
