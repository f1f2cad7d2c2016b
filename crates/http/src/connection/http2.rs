//! Serves HTTP/2 connections by hyper, with many requests in flight at a time.
//!
//! Each takes one slot, as any connection: busy while a request is in flight or a part of a response is unsent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::http::{Method, Request, Response};
use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::rt::Executor;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use isobar_hub::spawn_guarded;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::completed::completed;
use super::fast_path::FastPath;
use super::slots::Slot;
use super::tls::with_https_alone;
use super::{ConnectionError, HEAD_BYTES_MAX};
use crate::app::App;
use crate::request::{Client, Stream, time_for};
use crate::response::ResponseBody;

/// Most requests in flight on a connection: as many as clients begin before they know the limit (RFC 9113, 6.5.2).
const STREAMS_MAX: u32 = 100;
/// Flow-control windows in bytes of one request body, and of all on a connection.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 128 << 10;
/// Most bytes of a response buffered until the client's window opens.
const UNSENT_BYTES_MAX: usize = 16 << 10;
/// Interval of checks for slow clients.
const SLOW_CHECK_EVERY: Duration = Duration::from_secs(5);

/// Executor that runs each request of a connection in a task of its own.
#[derive(Clone)]
pub(super) struct Guarded;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Guarded {
    fn execute(&self, request: F) {
        spawn_guarded("request", request);
    }
}

/// Returns hyper's settings, the same for all connections.
pub(super) fn builder() -> Builder<Guarded> {
    let mut http = Builder::new(Guarded);
    http.timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(UNSENT_BYTES_MAX);
    http
}

/// Serves a connection until it ends.
pub(super) async fn serve(http: &Builder<Guarded>, connection: FastPath) -> Result<(), ConnectionError> {
    let FastPath { stream, app, peer, is_proxy, slot, leaving: _, shutdown } = connection;
    let requests = Arc::new(Requests { slot, app: app.clone(), state: Mutex::default() });
    let io = TokioIo::new(CountedStream { stream, requests: Arc::clone(&requests) });
    let begun = Arc::clone(&requests);
    let service = service_fn(move |request: Request<Incoming>| -> BoxFuture<'static, io::Result<Response<SentBody>>> {
        let Some(under_way) = UnderWay::begin(&begun) else {
            return Box::pin(async { Err(io::ErrorKind::ConnectionAborted.into()) });
        };
        let address = if is_proxy { app.client_behind(peer, request.headers()) } else { peer };
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let answer = app.answer(request, Client { address, is_behind_proxy: is_proxy, socket: None });
        // A read is cancelled when its client gives it up; a request that may change something runs to completion.
        let answer = if is_read { answer } else { Box::pin(completed(answer)) };
        Box::pin(async move { Ok(with_https_alone(answer.await).map(|body| SentBody::new(body, under_way))) })
    });
    let mut connection = http.serve_connection(io, service);
    let too_slow = requests.too_slow();
    let served = async {
        tokio::select! {
            biased;
            served = &mut connection => served,
            () = shutdown.requested() => {
                Pin::new(&mut connection).graceful_shutdown();
                connection.await
            }
        }
    };
    tokio::select! {
        served = served => Ok(served?),
        () = too_slow => Err(Box::new(io::Error::from(io::ErrorKind::TimedOut))),
    }
}

/// Requests of one connection.
struct Requests {
    slot: Arc<Slot>,
    app: App,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Requests whose responses are not complete.
    under_way: usize,
    /// Responses with data that the client's window has no room for.
    waiting: usize,
    /// True if response data was produced that is not sent yet.
    is_unsent: bool,
    /// Bytes that the client has taken.
    taken: u64,
    /// Wakes the connection to check if everything is sent.
    look: Option<Waker>,
}

impl Requests {
    /// Notes that all data is sent, as far as the client's window allows.
    fn all_sent(&self, cx: &Context<'_>) {
        let mut state = self.state.lock();
        if state.under_way == 0 && std::mem::take(&mut state.is_unsent) {
            self.slot.becomes_idle(self.app.now());
        }
        if state.look.as_ref().is_none_or(|look| !look.will_wake(cx.waker())) {
            state.look = Some(cx.waker().clone());
        }
    }

    /// Completes when the client takes the available data too slowly.
    async fn too_slow(&self) {
        let (clock, time) = (self.app.clock(), self.app.settings().transfer_time);
        let (mut since, mut taken_before) = (clock.instant(), 0);
        loop {
            clock.sleep(SLOW_CHECK_EVERY).await;
            let (waits, taken) = {
                let state = self.state.lock();
                (state.waiting > 0 || state.under_way == 0 && state.is_unsent, state.taken)
            };
            if !waits {
                (since, taken_before) = (clock.instant(), taken);
            } else if clock.elapsed(since) > time_for((taken - taken_before) as usize, time) {
                return;
            }
        }
    }
}

/// A request from its head until its response is complete.
struct UnderWay(Arc<Requests>);

impl UnderWay {
    /// Begins a request; `None` if the connection was closed and must not serve it.
    fn begin(requests: &Arc<Requests>) -> Option<Self> {
        let mut state = requests.state.lock();
        if state.under_way == 0 && !requests.slot.begin() {
            return None;
        }
        state.under_way += 1;
        Some(Self(Arc::clone(requests)))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.under_way -= 1;
        state.is_unsent = true;
        if let Some(look) = state.look.take() {
            look.wake();
        }
    }
}

/// Body of a response. It is polled when the client's window has room.
struct SentBody {
    body: ResponseBody,
    under_way: UnderWay,
    /// True if data is, or may be, available that was not polled yet.
    is_waiting: bool,
}

impl SentBody {
    fn new(body: ResponseBody, under_way: UnderWay) -> Self {
        let mut made = Self { body, under_way, is_waiting: false };
        made.waits(true);
        made
    }

    fn waits(&mut self, is_waiting: bool) {
        if std::mem::replace(&mut self.is_waiting, is_waiting) != is_waiting {
            let mut state = self.under_way.0.state.lock();
            state.waiting = if is_waiting { state.waiting + 1 } else { state.waiting - 1 };
        }
    }
}

impl Drop for SentBody {
    fn drop(&mut self) {
        self.waits(false);
    }
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.waits(matches!(frame, Poll::Ready(Some(_))));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Stream of a connection, which counts the bytes that the client takes.
struct CountedStream {
    stream: Stream,
    requests: Arc<Requests>,
}

impl AsyncRead for CountedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.requests.state.lock().taken += count as u64;
        }
        written
    }

    /// Flushes the response; hyper calls this when it has nothing left to write.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.requests.all_sent(cx);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
