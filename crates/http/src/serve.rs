//! Connections: accepting them, bounding them, and letting them end well.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::server::conn::http1::{self, Connection};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use isobar_hub::{Shift, spawn_guarded};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::app::{Answering, App, Client};
use crate::doors::{Doors, Seat, Seated};
use crate::ending::{Ending, Stop};
use crate::frames::Outbound;
use crate::lane::{Lane, Left};
use crate::line::Line;
use crate::patience::Patient;

/// Connections that the kernel holds for us until they are accepted.
const BACKLOG: u32 = 4096;
/// Most bytes of a request's head; also the size of a connection's read buffer when it is full.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Longest time that requests under way get when the server stops.
const STOP_TIME: Duration = Duration::from_secs(10);
/// Pause after the process ran out of files or memory: accepting at once again would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Silence after which the kernel asks whether an idle peer is still there, and between its questions.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_BETWEEN: Duration = Duration::from_secs(15);
/// Longest time that a peer may take none of an answer.
const UNREAD_TIME: Duration = Duration::from_secs(60);
/// Bytes that the kernel takes of an answer beyond what is on its way: a slow reader's answer waits here, where it is counted.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 128 << 10;
/// How often finished durations are folded into the histograms, so that nobody need scrape to keep memory bounded.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// What all connections share.
struct Server {
    http: http1::Builder,
    app: App,
    doors: Arc<Doors>,
}

/// Listens on an address.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves connections until `shutdown` is done; then accepts no more and finishes what is under way, within 10 s.
pub async fn serve(listener: TcpListener, app: App, shutdown: impl Future<Output = ()>) -> io::Result<()> {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(None::<Duration>) // see `patience`
        .keep_alive(true)
        // Who ends its own side after a request still reads: see `line`.
        .half_close(true)
        // Answers must not wait in a buffer because more than their request has come.
        .pipeline_flush(false)
        .writev(false)
        .max_buf_size(HEAD_BYTES_MAX);
    let doors = Doors::new(app.settings().max_connections);
    let (server, stop) = (Arc::new(Server { http, app, doors }), Stop::new());
    {
        let hub = server.app.hub();
        let accepting = hub.keep("accept", |shift| accept(&listener, &server, &stop, shift));
        let upkeep = hub.keep("meters", |shift| upkeep(&server, shift));
        tokio::select! {
            () = shutdown => {}
            () = accepting => {}
            () = upkeep => {}
        }
    }
    drop(listener);
    server.app.end_streams();
    if tokio::time::timeout(STOP_TIME, stop.end_all()).await.is_err() {
        tracing::warn!("some requests did not end in time and were cut off");
    }
    Ok(())
}

/// Accepts connections, without end. While there are as many as there may be, one waits here and the others in the kernel.
async fn accept(listener: &TcpListener, server: &Arc<Server>, stop: &Stop, shift: Shift) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                server.doors.room(|| server.app.now()).await;
                connection(server, stop, stream, peer);
            }
            Err(error) => refused(server, error).await,
        }
        shift.well();
    }
}

/// Folds what was measured, and ends long rests when there are many connections; every now and then.
async fn upkeep(server: &Server, shift: Shift) {
    let mut upkeep = tokio::time::interval(UPKEEP_EVERY);
    loop {
        upkeep.tick().await;
        server.app.upkeep();
        server.doors.tidy(server.app.now());
        shift.well();
    }
}

/// An accept that failed. A peer that left before it was accepted costs nothing; a lack of files or memory needs time.
async fn refused(server: &Server, error: io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted) {
        server.doors.accept_failed(error, server.app.now());
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

fn connection(server: &Arc<Server>, stop: &Stop, stream: TcpStream, peer: SocketAddr) {
    if let Err(error) = bounded(&stream) {
        tracing::debug!(%error, "a connection was gone before it began");
        return;
    }
    let (now, peer) = (server.app.now(), peer.ip().to_canonical());
    let stake = stop.stake();
    server.doors.seat(now, |seated| {
        let server = Arc::clone(server);
        spawn_guarded("connection", async move {
            let Seated { seat, .. } = &seated;
            let is_proxy = server.app.trusts(peer);
            let lane = Lane { stream, app: server.app.clone(), peer, is_proxy, seat: Arc::clone(seat), stake };
            if let Err(error) = served(&server, lane).await {
                tracing::debug!(error, "a connection broke");
            }
        })
    });
}

async fn served(server: &Server, lane: Lane) -> Result<(), Box<dyn Error + Send + Sync>> {
    let left = match server.app.has_lane() {
        true => lane.drive().await?,
        false => Some(Left { lane, read: Bytes::new() }),
    };
    let Some(Left { lane, read }) = left else { return Ok(()) };
    let Lane { stream, app, peer, is_proxy, seat, stake } = lane;
    let line = Line::new(stream);
    let socket = TokioIo::new(Patient::new(line.clone(), read, Arc::clone(&seat), app.clone()));
    let service = service_fn(move |request| {
        let (line, seat) = (line.clone(), Arc::clone(&seat));
        let address = if is_proxy { app.client_behind(peer, request.headers()) } else { peer };
        let client = Client { address, line: Some(line.clone()) };
        let answering = seat.answering().then(|| app.answer(request, client));
        Answered { answering, line, seat }
    });
    let connection = server.http.serve_connection(socket, service);
    // Boxed: a connection that stays in the lane has no room for it.
    Ok(Box::pin(Ending { connection, stake, tell: Connection::graceful_shutdown }).await?)
}

/// An answer as a connection waits for it.
struct Answered {
    /// None: the connection was told to go.
    answering: Option<Answering>,
    line: Line,
    seat: Arc<Seat>,
}

impl Future for Answered {
    /// An error when the client is gone: then nobody waits any more.
    type Output = io::Result<axum::http::Response<UnderWay>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(answering) = &mut self.answering else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        };
        let Poll::Ready(response) = Pin::new(answering).poll(cx) else {
            return match self.line.poll_end(cx) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
            };
        };
        let seat = Arc::clone(&self.seat);
        Poll::Ready(Ok(response.map(|body| UnderWay { body, seat })))
    }
}

/// The body of an answer, until it is written to its end or given up: as long its connection does not rest.
struct UnderWay {
    body: Outbound,
    seat: Arc<Seat>,
}

impl Body for UnderWay {
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

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.seat.answered();
    }
}

/// No delay for small answers; an end for peers that have vanished or read nothing.
fn bounded(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_BETWEEN))?;
    #[cfg(target_os = "linux")]
    {
        socket.set_tcp_user_timeout(Some(UNREAD_TIME))?;
        socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
    }
    Ok(())
}
