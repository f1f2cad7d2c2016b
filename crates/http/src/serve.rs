//! Connections: accepting them, bounding them, and letting them end well.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::http1::{self, Connection};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use isobar_hub::{Shift, spawn_guarded};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::app::{Answering, App, Client};
use crate::ending::{Ending, Stop};
use crate::lane::{Lane, Left};
use crate::line::Line;
use crate::meters::OpenConnection;
use crate::patience::{Patient, Phase};
use crate::reply::Response;

/// Connections that the kernel holds for us until they are accepted.
const BACKLOG: u32 = 4096;
/// Most bytes of a request's head; also the size of a connection's read buffer when it is full.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Longest time that requests under way get when the server stops.
const STOP_TIME: Duration = Duration::from_secs(10);
/// Pause after the process ran out of files or memory: accepting at once again would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Silence after which the kernel asks whether an idle peer is still there, and between its questions.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_BETWEEN: Duration = Duration::from_secs(15);
/// Longest time that a peer may take none of an answer.
const UNREAD_TIME: Duration = Duration::from_secs(60);
/// How often finished durations are folded into the histograms, so that nobody need scrape to keep memory bounded.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// What all connections share.
struct Server {
    http: http1::Builder,
    app: App,
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
    let (server, stop) = (Arc::new(Server { http, app }), Stop::new());
    {
        let hub = server.app.hub();
        let accepting = hub.keep("accept", |shift| accept(&listener, &server, &stop, shift));
        let upkeep = hub.keep("meters", |shift| upkeep(&server.app, shift));
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

/// Accepts connections, without end.
async fn accept(listener: &TcpListener, server: &Arc<Server>, stop: &Stop, shift: Shift) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => connection(server, stop, stream, peer),
            Err(error) => refused(&error).await,
        }
        shift.well();
    }
}

/// Folds what was measured, every now and then.
async fn upkeep(app: &App, shift: Shift) {
    let mut upkeep = tokio::time::interval(UPKEEP_EVERY);
    loop {
        upkeep.tick().await;
        app.upkeep();
        shift.well();
    }
}

/// An accept that failed. A peer that left before it was accepted costs nothing; a lack of files or memory needs time.
async fn refused(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted) {
        tracing::error!(%error, "cannot accept connections");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

fn connection(server: &Arc<Server>, stop: &Stop, stream: TcpStream, peer: SocketAddr) {
    if let Err(error) = bounded(&stream) {
        tracing::debug!(%error, "a connection was gone before it began");
        return;
    }
    let (server, open) = (Arc::clone(server), OpenConnection::new(&server.app.meters().connections));
    let lane = Lane { stream, app: server.app.clone(), peer: peer.ip().to_canonical(), stake: stop.stake() };
    spawn_guarded("connection", async move {
        let _open = open;
        if let Err(error) = served(&server, lane).await {
            tracing::debug!(error, "a connection broke");
        }
    });
}

async fn served(server: &Server, lane: Lane) -> Result<(), Box<dyn Error + Send + Sync>> {
    let left = match server.app.has_lane() {
        true => lane.drive().await?,
        false => Some(Left { lane, read: Bytes::new() }),
    };
    let Some(Left { lane: Lane { stream, app, peer, stake }, read }) = left else { return Ok(()) };
    let (line, phase) = (Line::new(stream), Phase::default());
    let socket = TokioIo::new(Patient::new(line.clone(), read, phase.clone()));
    let service = service_fn(move |request| {
        let (line, phase) = (line.clone(), phase.clone());
        phase.answering();
        let client = Client { address: peer, line: Some(line.clone()) };
        Answered { answering: app.answer(request, client), line, phase }
    });
    let connection = server.http.serve_connection(socket, service);
    // Boxed: a connection that stays in the lane has no room for it.
    Ok(Box::pin(Ending { connection, stake, tell: Connection::graceful_shutdown }).await?)
}

/// An answer as a connection waits for it.
struct Answered {
    answering: Answering,
    line: Line,
    phase: Phase,
}

impl Future for Answered {
    /// An error when the client is gone: then nobody waits any more.
    type Output = io::Result<Response>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(response) = Pin::new(&mut self.answering).poll(cx) else {
            return match self.line.poll_end(cx) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
            };
        };
        self.phase.answered();
        Poll::Ready(Ok(response))
    }
}

/// No delay for small answers; an end for peers that have vanished or read nothing.
fn bounded(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_BETWEEN))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNREAD_TIME))?;
    Ok(())
}
