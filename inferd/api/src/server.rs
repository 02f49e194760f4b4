//! The listening side: connections, their limits, an orderly end.

use crate::limits;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;

/// How long open connections get to write what they have after the end was asked for.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// How long accepting pauses when the process has no file descriptor to spare.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` is done, then lets open connections finish what they are writing.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(limits::CONNECTIONS_MAX as usize));
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((stream, place)) => spawn_connection(stream, place, router.clone(), &graceful),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(CLOSE_MAX, graceful.shutdown()).await.is_err() {
        tracing::warn!("connections were still open after {} s and are cut", CLOSE_MAX.as_secs());
    }
}

/// Takes a place first: connections beyond the limit wait in the listen queue.
async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    // Tokens are small and each is worth its packet.
    stream.set_nodelay(true)?;
    Ok((stream, place))
}

fn spawn_connection(stream: TcpStream, place: OwnedSemaphorePermit, router: Router, graceful: &GracefulShutdown) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits::WRITE_STALL_MAX));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::READ_STALL_MAX)
        .max_buf_size(limits::HEAD_MAX)
        .serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router));
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection ended");
        }
        drop(place);
    });
}
