//! Bodies before anybody reads their JSON: kinds, sizes, who pays.

use crate::client::{CHAT, Server, post};
use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{Request, StatusCode, header};
use serde_json::json;
use std::convert::Infallible;

const MIB: usize = 1 << 20;
const HELLO: &str = r#"{"messages": [{"content": "hello"}]}"#;

/// A body of endless silence after `given` bytes.
fn stalled(given: usize) -> Body {
    let chunk = stream::once(async move { Ok::<_, Infallible>(Bytes::from(vec![b' '; given])) });
    Body::from_stream(futures_util::StreamExt::chain(chunk, stream::pending()))
}

fn declaring(length: usize, body: Body) -> Request<Body> {
    Request::post(CHAT).header(header::CONTENT_LENGTH, length).body(body).unwrap()
}

#[tokio::test]
async fn kinds_that_cannot_be_json_are_refused() {
    let server = Server::saying("ok");
    for (name, value, message) in [
        ("content-encoding", "zstd", "Content-Encoding is not supported; send the body as it is"),
        ("content-encoding", "gzip", "Content-Encoding is not supported; send the body as it is"),
        ("content-type", "multipart/form-data; boundary=x", "multipart bodies are not supported; send JSON"),
    ] {
        let request = Request::post(CHAT).header(name, value).body(Body::from(HELLO)).unwrap();
        let reply = server.reply(request).await;
        let expected = json!({"error": {"message": message, "type": "invalid_request_error", "param": null,
            "code": null}});
        assert_eq!((reply.status, reply.json()), (StatusCode::UNSUPPORTED_MEDIA_TYPE, expected));
    }
}

#[tokio::test]
async fn json_is_accepted_under_the_names_that_clients_give_it() {
    let server = Server::saying("ok");
    for kind in [
        "application/json",
        "application/vnd.api+json; charset=utf-8",
        "application/x-www-form-urlencoded",
        "text/plain",
    ] {
        let request = Request::post(CHAT).header("content-type", kind).body(Body::from(HELLO)).unwrap();
        assert_eq!(server.reply(request).await.status, StatusCode::OK, "{kind}");
    }
    let bare = Request::post(CHAT).header("content-encoding", "identity").body(Body::from(HELLO)).unwrap();
    assert_eq!(server.reply(bare).await.status, StatusCode::OK);
    let form = Request::post(CHAT).header("content-type", "application/x-www-form-urlencoded");
    let reply = server.reply(form.body(Body::from("a=b")).unwrap()).await;
    assert_eq!(reply.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_whether_it_says_so_or_not() {
    let server = Server::saying("ok");
    let expected = json!({"error": {"message": "request body is larger than 67108864 bytes",
        "type": "invalid_request_error", "param": null, "code": "request_too_large"}});
    // Declared: refused without reading.
    let reply = server.reply(declaring(64 * MIB + 1, stalled(0))).await;
    assert_eq!((reply.status, reply.json()), (StatusCode::PAYLOAD_TOO_LARGE, expected.clone()));
    // Not declared: refused when it is reached.
    let chunks = stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from(vec![b' '; MIB])));
    let reply = server.reply(post(Body::from_stream(chunks))).await;
    assert_eq!((reply.status, reply.json()), (StatusCode::PAYLOAD_TOO_LARGE, expected));
}

#[tokio::test]
async fn bodies_are_paid_for_before_they_are_read() {
    let server = Server::saying("ok");
    let router = server.api.router();
    let held: Vec<_> = (0..4)
        .map(|_| {
            let request = declaring(64 * MIB, stalled(10));
            tokio::spawn(tower::ServiceExt::oneshot(router.clone(), request))
        })
        .collect();
    // Four bodies of 64 MiB are the whole budget, though none has sent more than ten bytes. One turn of the executor
    // lets them begin.
    tokio::task::yield_now().await;
    let reply = server.post(HELLO).await;
    let expected = json!({"error": {"message": "server request-body budget exhausted; retry later",
        "type": "rate_limit_error", "param": null, "code": null}});
    assert_eq!((reply.status, reply.json()), (StatusCode::TOO_MANY_REQUESTS, expected));
    assert_eq!(reply.headers["retry-after"], "5");
    for task in held {
        task.abort();
        assert!(task.await.is_err());
    }
    assert_eq!(server.post(HELLO).await.status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stalls_is_given_up() {
    let server = Server::saying("ok");
    let reply = server.reply(declaring(100, stalled(10))).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert_eq!(reply.json()["error"]["message"], "bad HTTP request: the body stalled");
}
