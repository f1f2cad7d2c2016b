//! Serves HTTP/1.1 connections by hyper: all requests that the fast path does not take.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{Method, Request, Response};
use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1::{Builder, Parts};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};

use super::completed::completed;
use super::fast_path::{FastPath, Handover};
use super::slots::Slot;
use super::time_limits::LimitedSocket;
use super::tls::with_https_alone;
use super::{ConnectionError, HEAD_BYTES_MAX};
use crate::request::{Client, ClientSocket, Stream};
use crate::response::{self, ResponseBody};

/// Returns hyper's settings, the same for all connections.
pub(super) fn builder() -> Builder {
    let mut http = Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(None::<Duration>) // see `time_limits`
        .keep_alive(true)
        // A client that has closed its sending side after a request still reads: see `request::client`.
        .half_close(true)
        // A response must not wait in a buffer because a further request has arrived.
        .pipeline_flush(false)
        .writev(false)
        .max_buf_size(HEAD_BYTES_MAX);
    http
}

/// Serves a connection until it ends.
pub(super) async fn serve(http: &Builder, Handover { connection, read }: Handover) -> Result<(), ConnectionError> {
    let FastPath { stream, app, peer, is_proxy, slot, leaving, shutdown } = connection;
    let is_tls = matches!(stream, Stream::Tls(_));
    let socket = ClientSocket::new(stream);
    let limited = LimitedSocket::new(socket.clone(), read, Arc::clone(&slot), leaving, app.clone());
    let service =
        service_fn(move |request: Request<Incoming>| -> BoxFuture<'static, io::Result<Response<TrackedBody>>> {
            let (slot, socket) = (Arc::clone(&slot), socket.clone());
            if !slot.head_complete() {
                return Box::pin(async { Err(io::ErrorKind::ConnectionAborted.into()) });
            }
            let address = if is_proxy { app.client_behind(peer, request.headers()) } else { peer };
            let (is_read, version) = (matches!(*request.method(), Method::GET | Method::HEAD), request.version());
            let client = Client { address, is_behind_proxy: is_proxy, socket: Some(socket.clone()) };
            let answer = app.answer(request, client);
            // A read is cancelled when its client is gone; a request that may change something runs to completion.
            if is_read {
                let clock = app.clock().clone();
                Box::pin(respond(answer, async move { socket.gone(version, &clock).await }, slot, is_tls))
            } else {
                Box::pin(respond(completed(answer), async move { socket.broken().await }, slot, is_tls))
            }
        });
    let mut connection = http.serve_connection(TokioIo::new(limited), service);
    let served = tokio::select! {
        biased;
        served = &mut connection => served,
        () = shutdown.clone().requested() => {
            Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
    };
    let Err(error) = served else { return Ok(()) };
    let Parts { io, .. } = connection.into_parts();
    if io.into_inner().refuse(&error).await? { Ok(()) } else { Err(error.into()) }
}

/// Waits for the response to a request, until its client is gone.
async fn respond(
    answer: impl Future<Output = response::Response> + Send,
    gone: impl Future<Output = io::Error> + Send,
    slot: Arc<Slot>,
    is_tls: bool,
) -> io::Result<Response<TrackedBody>> {
    tokio::select! {
        biased;
        response = answer => {
            let response = if is_tls { with_https_alone(response) } else { response };
            Ok(response.map(|body| TrackedBody { body, slot }))
        }
        error = gone => Err(error),
    }
}

/// Body of a response. Its connection is busy until it is written or dropped.
struct TrackedBody {
    body: ResponseBody,
    slot: Arc<Slot>,
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.slot.response_made();
    }
}
