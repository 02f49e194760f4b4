//! Paths, methods, hosts, origins, keys.

use crate::client::{CHAT, Reply, Server, settings};
use axum::body::Body;
use ds4_api::{ApiKey, Hosts, Origins, Settings};
use http::{HeaderValue, Method, Request, StatusCode};
use serde_json::{Value, json};

const HELLO: &str = r#"{"messages": [{"content": "hello"}]}"#;

async fn call(server: &Server, method: Method, path: &str, headers: &[(&str, &str)]) -> Reply {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    server.reply(request.body(Body::from(HELLO)).unwrap()).await
}

fn error(message: &str, kind: &str, param: Option<&str>, code: Option<&str>) -> Value {
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}

#[tokio::test]
async fn unknown_paths_and_wrong_methods_are_told_apart() {
    let server = Server::saying("ok");
    let unknown = error("unknown endpoint", "invalid_request_error", None, None);
    for path in ["/", "/v2/chat", "/v1/chat/completions/", "/v1/embeddings", "/props"] {
        let reply = call(&server, Method::POST, path, &[]).await;
        if path == "/" {
            assert_eq!(reply.status, StatusCode::METHOD_NOT_ALLOWED);
            continue;
        }
        assert_eq!((reply.status, reply.json()), (StatusCode::NOT_FOUND, unknown.clone()), "{path}");
    }
    for (method, path, allow) in [
        (Method::GET, CHAT, "POST"),
        (Method::PUT, CHAT, "POST"),
        (Method::POST, "/health", "GET, HEAD"),
        (Method::DELETE, "/v1/models", "GET, HEAD"),
        (Method::POST, "/v1/models/x", "GET, HEAD"),
    ] {
        let reply = call(&server, method, path, &[]).await;
        let expected = error(&format!("method not allowed; use {allow}"), "invalid_request_error", None, None);
        assert_eq!((reply.status, reply.json()), (StatusCode::METHOD_NOT_ALLOWED, expected), "{path}");
        assert_eq!(reply.headers["allow"], allow);
    }
}

#[tokio::test]
async fn probes_and_preflights_answer_and_every_reply_has_an_id() {
    let server = Server::saying("ok");
    let root = call(&server, Method::HEAD, "/", &[]).await;
    assert_eq!((root.status, root.text.as_str()), (StatusCode::OK, ""));
    for path in [CHAT, "/nowhere", "/"] {
        let preflight = call(&server, Method::OPTIONS, path, &[]).await;
        assert_eq!((preflight.status, preflight.text.as_str()), (StatusCode::NO_CONTENT, ""));
    }
    let ids = [root.headers["x-request-id"].clone(), server.get("/nowhere").await.headers["x-request-id"].clone()];
    assert_ne!(ids[0], ids[1]);
    assert_eq!(server.get("/health?beta=true").await.status, StatusCode::OK);
}

#[tokio::test]
async fn models_are_listed_and_found_by_every_name_of_the_family() {
    let server = Server::saying("ok");
    let model = json!({
        "id": "test-model", "object": "model", "type": "model", "created": 1767225600, "owned_by": "ds4",
        "name": "test-model", "display_name": "test-model", "context_length": 400, "max_model_len": 400,
        "meta": {"n_ctx_train": 4096},
        "top_provider": {"context_length": 400, "max_completion_tokens": 200, "is_moderated": false},
        "supported_parameters": ["tools", "tool_choice", "max_tokens", "temperature", "top_p", "top_k", "min_p", "stop", "seed", "stream",
            "reasoning_effort"],
    });
    let list = json!({"object": "list", "data": [model], "has_more": false, "first_id": "test-model",
        "last_id": "test-model"});
    assert_eq!(server.get("/v1/models").await.json(), list);
    for name in ["test-model", "plain"] {
        assert_eq!(server.get(&format!("/v1/models/{name}")).await.json(), model);
    }
    let reply = server.get("/v1/models/org/other").await;
    let expected = error(
        "model \"org/other\" is not served here; see /v1/models",
        "invalid_request_error",
        Some("model"),
        Some("model_not_found"),
    );
    assert_eq!((reply.status, reply.json()), (StatusCode::NOT_FOUND, expected));
}

#[tokio::test]
async fn a_page_of_another_origin_cannot_call_unless_it_is_allowed() {
    let refused = error(
        "requests from web pages are refused; start the server with --cors or --cors-origin ORIGIN to allow them",
        "permission_error",
        None,
        None,
    );
    let origin = [("origin", "https://a.example")];
    let server = Server::saying("ok");
    for method in [Method::POST, Method::OPTIONS] {
        let reply = call(&server, method, CHAT, &origin).await;
        assert_eq!((reply.status, reply.json()), (StatusCode::FORBIDDEN, refused.clone()));
        assert!(reply.headers.get("access-control-allow-origin").is_none());
    }
    let any = Server::with("ok", Settings { origins: Origins::Any, ..settings() });
    for (method, path, status) in [
        (Method::POST, CHAT, StatusCode::OK),
        (Method::OPTIONS, CHAT, StatusCode::NO_CONTENT),
        (Method::GET, "/nowhere", StatusCode::NOT_FOUND),
    ] {
        let reply = call(&any, method, path, &origin).await;
        assert_eq!(reply.status, status);
        assert_eq!(reply.headers["access-control-allow-origin"], "*");
        assert_eq!(reply.headers["access-control-allow-methods"], "GET, POST, OPTIONS");
        assert_eq!(reply.headers["access-control-expose-headers"], "x-request-id, retry-after");
    }
    let listed = Origins::Listed(vec![HeaderValue::from_static("https://a.example")]);
    let listed = Server::with("ok", Settings { origins: listed, ..settings() });
    let reply = call(&listed, Method::POST, CHAT, &origin).await;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.headers["access-control-allow-origin"], "https://a.example");
    let reply = call(&listed, Method::POST, CHAT, &[("origin", "https://b.example")]).await;
    assert_eq!(reply.status, StatusCode::FORBIDDEN);
    assert!(reply.headers.get("access-control-allow-origin").is_none());
}

#[tokio::test]
async fn on_loopback_only_loopback_hosts_are_served() {
    let hosts = Hosts::LoopbackAnd(vec!["box.lan".into()]);
    let server = Server::with("ok", Settings { hosts, ..settings() });
    for host in ["localhost", "LOCALHOST:8000", "127.0.0.1:8000", "127.9.9.9", "[::1]:8000", "box.lan", "Box.LAN:8000"]
    {
        assert_eq!(call(&server, Method::GET, "/health", &[("host", host)]).await.status, StatusCode::OK, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example", "10.0.0.1", "", "a b", "127.0.0.1.evil.example:80"] {
        let reply = call(&server, Method::GET, "/health", &[("host", host)]).await;
        assert_eq!(reply.status, StatusCode::FORBIDDEN, "{host}");
        assert_eq!(reply.json()["error"]["type"], "permission_error");
    }
    let target = call(&server, Method::GET, "http://evil.example/health", &[("host", "localhost")]).await;
    assert_eq!(target.status, StatusCode::FORBIDDEN);
    let open = Server::with("ok", Settings { hosts: Hosts::Any, ..settings() });
    assert_eq!(call(&open, Method::GET, "/health", &[("host", "evil.example")]).await.status, StatusCode::OK);
}

#[tokio::test]
async fn with_keys_set_everything_but_probes_needs_one() {
    let api_keys = vec![ApiKey::new("one").unwrap(), ApiKey::new("two").unwrap()];
    let server = Server::with("ok", Settings { api_keys, ..settings() });
    let refused = error(
        "missing or wrong API key: send it as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"",
        "authentication_error",
        None,
        Some("invalid_api_key"),
    );
    for (method, path) in [(Method::POST, CHAT), (Method::GET, "/v1/models"), (Method::GET, "/nowhere")] {
        for headers in [&[][..], &[("authorization", "Bearer three")], &[("x-api-key", "on")]] {
            let reply = call(&server, method.clone(), path, headers).await;
            assert_eq!((reply.status, reply.json()), (StatusCode::UNAUTHORIZED, refused.clone()), "{path}");
        }
    }
    for headers in [("authorization", "Bearer one"), ("x-api-key", "two")] {
        assert_eq!(call(&server, Method::POST, CHAT, &[headers]).await.status, StatusCode::OK);
    }
    for (method, path) in [(Method::GET, "/health"), (Method::GET, "/v1/health"), (Method::HEAD, "/")] {
        assert_eq!(call(&server, method, path, &[]).await.status, StatusCode::OK);
    }
    assert_eq!(call(&server, Method::OPTIONS, CHAT, &[]).await.status, StatusCode::NO_CONTENT);
}
