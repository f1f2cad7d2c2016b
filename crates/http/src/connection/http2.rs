//! A connection of HTTP/2, which has many requests under way at a time. hyper serves it.
//!
//! It takes one slot, as any other: busy as long as a request is under way or something of a response has not gone out.

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
use super::{ConnectionError, HEAD_BYTES_MAX};
use crate::app::App;
use crate::request::{Client, Stream, time_for};
use crate::response::ResponseBody;

/// Most requests under way on a connection: as many as clients begin before they are told (RFC 9113, 6.5.2).
const STREAMS_MAX: u32 = 100;
/// What a client may send ahead of what is read, of one body and of all on a connection.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 128 << 10;
/// Bytes of a response that wait here for the client's window.
const UNSENT_BYTES_MAX: usize = 16 << 10;
/// Between two looks whether the client takes its responses.
const SLOW_CHECK_EVERY: Duration = Duration::from_secs(5);

/// Runs the requests of a connection, each in a task of its own.
#[derive(Clone)]
pub(super) struct Guarded;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Guarded {
    fn execute(&self, request: F) {
        spawn_guarded("request", request);
    }
}

/// hyper's settings for all connections.
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
        let answer = app.answer(request, Client { address, socket: None });
        // A read ends when its client gives it up; what may change something goes on to its end.
        let answer = if is_read { answer } else { Box::pin(completed(answer)) };
        Box::pin(async move { Ok(answer.await.map(|body| SentBody::new(body, under_way))) })
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

/// The requests of a connection.
struct Requests {
    slot: Arc<Slot>,
    app: App,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Requests that have begun and whose responses are not made to their ends.
    under_way: usize,
    /// Responses of which a part is there that the client's window has no room for.
    waiting: usize,
    /// Whether something was made that has not gone out.
    is_unsent: bool,
    /// Bytes that the client has taken.
    taken: u64,
    /// Has the connection look whether everything has gone out.
    look: Option<Waker>,
}

impl Requests {
    /// Everything that was made has gone out, as far as the client lets it.
    fn all_sent(&self, cx: &Context<'_>) {
        let mut state = self.state.lock();
        if state.under_way == 0 && std::mem::take(&mut state.is_unsent) {
            self.slot.becomes_idle(self.app.now());
        }
        if state.look.as_ref().is_none_or(|look| !look.will_wake(cx.waker())) {
            state.look = Some(cx.waker().clone());
        }
    }

    /// Is done when the client has taken what is there for it too slowly.
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

/// A request from its beginning until its response is made to its end.
struct UnderWay(Arc<Requests>);

impl UnderWay {
    /// None: the connection was closed, and must not begin it.
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

/// The body of a response. It is asked for more when the client has room for it.
struct SentBody {
    body: ResponseBody,
    under_way: UnderWay,
    /// Whether a part of it is there, or may be, that was not asked for yet.
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

/// The bytes of a connection, which notes what the client takes.
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

    /// hyper calls this when it has nothing left to write.
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
