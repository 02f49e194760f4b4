//! What holds for every request, whatever it is. The fuzz targets check it, and so do the tests that replay their seeds.
#![allow(dead_code, reason = "each target needs a part")]

use crate::client::{CHAT, Server};
use axum::body::Body;
use http::{Request, StatusCode};
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// Paths that take a body. The first line of a seed is one of them, or there is none and it is the chat's.
const PATHS: [&str; 8] = [
    CHAT,
    "/v1/completions",
    "/v1/responses",
    "/v1/responses/input_tokens",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/tokenize",
    "/detokenize",
];

/// A server and what drives it, for one input after the other.
struct Running {
    runtime: Runtime,
    server: Server,
}

thread_local! {
    static RUNNING: Running = Running {
        runtime: Builder::new_current_thread().enable_all().build().expect("a runtime"),
        server: Server::saying("ok"),
    };
}

/// Posts a seed's body. The reply is an answer or a client's error that says something, and the server goes on.
pub(crate) fn body(seed: &[u8]) {
    let line = seed.iter().position(|&byte| byte == b'\n');
    let named = line.and_then(|end| {
        let path = PATHS.into_iter().find(|path| path.as_bytes() == &seed[..end])?;
        Some((path, &seed[end + 1..]))
    });
    let (path, body) = named.unwrap_or((CHAT, seed));
    let request = Request::post(path).header("content-type", "application/json").body(Body::from(body.to_vec()));
    let reply = RUNNING.with(|running| running.runtime.block_on(running.server.reply(request.expect("a request"))));
    assert!(reply.status == StatusCode::OK || reply.status.is_client_error(), "{path}: {reply:?}");
    if reply.headers["content-type"] == "text/event-stream" {
        assert!(reply.text.contains("data: ") && reply.text.ends_with("\n\n"), "{path}: {reply:?}");
        return;
    }
    let value = reply.json();
    if reply.status != StatusCode::OK {
        assert!(value["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{path}: {value}");
    }
    assert_ne!(value, Value::Null);
}

/// Sends a seed over a connection, in one piece and in two. What comes back is HTTP, and the same both times.
pub(crate) fn wire(seed: &[u8]) {
    let whole = status_line(seed, seed.len());
    let parts = status_line(seed, seed.len() / 2);
    // The HTTP side hangs up on the beginning of HTTP/2 as soon as it has all of it, and answers a part of it.
    if seed.starts_with(b"PRI") {
        return;
    }
    // A head that came in parts is read again only when its end has come: what is bad before that is met with the time
    // limit of heads, and a connection that closes without a word.
    if parts.is_empty() && whole.starts_with("HTTP/1.1 400") {
        return;
    }
    assert_eq!(whole, parts, "{:?}", String::from_utf8_lossy(seed));
    assert!(whole.is_empty() || whole.starts_with("HTTP/1."), "{whole}");
}

/// The first line that comes back. Time passes only where everybody waits.
fn status_line(seed: &[u8], cut: usize) -> String {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    let server = Server::saying("ok");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = tokio::spawn(ds4_api::serve(listener, server.api.router(), std::future::pending()));
        let mut client = TcpStream::connect(address).await.expect("a connection");
        for part in [&seed[..cut], &seed[cut..]] {
            // The server may have heard enough.
            if client.write_all(part).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut reply = Vec::new();
        let _ = client.read_to_end(&mut reply).await;
        serving.abort();
        String::from_utf8_lossy(&reply).lines().next().unwrap_or_default().to_owned()
    })
}
