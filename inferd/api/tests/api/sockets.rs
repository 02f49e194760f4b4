//! Connections that stall, on real sockets and a clock that runs only while everybody waits.

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use futures_util::stream;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

/// Longer than any limit of the server; passes in no time where nothing happens.
const LONG: Duration = Duration::from_secs(3_600);

struct Served {
    client: TcpStream,
    /// A reply's body was dropped.
    dropped: Arc<Notify>,
    stop: oneshot::Sender<()>,
    server: tokio::task::JoinHandle<()>,
}

/// A server whose one page never ends, and a connected client.
async fn served() -> Served {
    let dropped = Arc::new(Notify::new());
    let noticed = dropped.clone();
    let endless = move || async move {
        let guard = Guard(noticed);
        Body::from_stream(stream::repeat_with(move || {
            let _held = &guard;
            Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 1 << 16]))
        }))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let router = Router::new().route("/", get(endless));
    let server = tokio::spawn(ds4_api::serve(listener, router, async move {
        let _ = stopped.await;
    }));
    Served { client: TcpStream::connect(address).await.unwrap(), dropped, stop, server }
}

struct Guard(Arc<Notify>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_no_bytes_is_dropped() {
    let mut served = served().await;
    served.client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    timeout(LONG, served.dropped.notified()).await.expect("the reply was given up");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_finishes_its_head_is_dropped() {
    let mut served = served().await;
    let begun = Instant::now();
    served.client.write_all(b"GET / HTTP/1.1\r\nhost: loc").await.unwrap();
    let mut rest = Vec::new();
    timeout(LONG, served.client.read_to_end(&mut rest)).await.expect("the connection was closed").unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(10), "a slow one has ten seconds");
}

#[tokio::test(start_paused = true)]
async fn stopping_does_not_wait_for_ever_for_a_connection_that_stalls() {
    let mut served = served().await;
    served.client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    served.client.readable().await.unwrap();
    served.stop.send(()).unwrap();
    timeout(LONG, served.server).await.expect("the server stopped").unwrap();
}
