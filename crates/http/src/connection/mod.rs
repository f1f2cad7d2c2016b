//! Connections: accepting them, bounding their number and their time, and letting them end well.
//!
//! Nothing here knows what a request is about. Events that come whole take the fast path ([`fast_path`]); hyper serves all
//! other requests ([`http1`]). Both hand them to [`App`].

mod completed;
mod encode;
mod fast_path;
mod http1;
mod leaving;
mod shutdown;
mod slots;
mod slow_peer;
mod time_limits;
mod unreadable;

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use isobar_hub::{Shift, spawn_guarded};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

#[cfg(any(test, fuzzing))]
pub(crate) use self::fast_path::event as fast_path_event;
use self::fast_path::{FastPath, Handover};
use self::leaving::Leaving;
use self::shutdown::Shutdown;
use self::slots::Slots;
use crate::app::App;

/// Connections that the kernel holds for us until they are accepted.
const BACKLOG: u32 = 4096;
/// Longest time that requests under way get when the server stops.
const STOP_TIME: Duration = Duration::from_secs(10);
/// Connections that are accepted before others have their turn on the thread: some hundred microseconds' work.
const ACCEPTED_AT_ONCE: usize = 16;
/// Pause after the process ran out of files or memory: accepting at once again would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Silence after which the kernel asks whether an idle peer is still there, and between its questions.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_BETWEEN: Duration = Duration::from_secs(15);
/// Longest time that a peer may take none of a response.
const UNREAD_TIME: Duration = Duration::from_secs(60);
/// Bytes that the kernel takes of a response beyond what is on its way: a slow reader's response waits here, where it is
/// counted.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 128 << 10;
/// How often finished durations are folded into the histograms, so that nobody need scrape to keep memory bounded.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Why a connection broke.
type ConnectionError = Box<dyn Error + Send + Sync>;

/// What all connections share.
struct Server {
    http: hyper::server::conn::http1::Builder,
    app: App,
    slots: Arc<Slots>,
    leaving: Leaving,
}

/// Listens on an address, with a backlog of 4,096 connections that are not accepted yet. It does not block; call it within a
/// tokio runtime.
///
/// # Errors
/// The address cannot be bound: it is in use, or not one of this machine's.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves connections until `shutdown` is done; then accepts no more, and finishes the requests that are under way within 10
/// seconds. Streams and long polls end at once. What is not finished by then is cut off, and the log says so.
///
/// # Errors
/// None today: a connection that fails is a line in the log, and accepting is tried again.
pub async fn serve(listener: TcpListener, app: App, shutdown: impl Future<Output = ()>) -> io::Result<()> {
    let slots = Slots::new(app.settings().max_connections, app.clock().clone());
    let stop = Shutdown::new(&slots, app.clock().clone());
    let server = Arc::new(Server { http: http1::builder(), app, slots, leaving: Leaving::new() });
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
    if server.app.clock().timeout(STOP_TIME, stop.end_all()).await.is_err() {
        tracing::warn!("some requests did not end in time and were cut off");
    }
    Ok(())
}

/// Accepts connections, without end. While all slots are taken, one waits here and the others in the kernel.
async fn accept(listener: &TcpListener, server: &Arc<Server>, stop: &Shutdown, shift: Shift) {
    for accepted in 1_usize.. {
        match listener.accept().await {
            Ok((stream, peer)) => {
                server.slots.free(|| server.app.now()).await;
                begin(server, stop, stream, peer);
                if accepted.is_multiple_of(ACCEPTED_AT_ONCE) {
                    others_first().await;
                }
            }
            Err(error) => accept_failed(server, error).await,
        }
        shift.well();
    }
}

/// Others have their turn: the tasks of this thread, and threads that wait for its processor.
async fn others_first() {
    isobar_threads::rest_at_times();
    tokio::task::yield_now().await;
}

/// Folds finished measurements, and closes idle connections when there are many; every now and then.
async fn upkeep(server: &Server, shift: Shift) {
    loop {
        server.app.run_upkeep();
        server.slots.keep_some_free(server.app.now()).await;
        shift.well();
        server.app.clock().sleep(UPKEEP_EVERY).await;
    }
}

/// An accept has failed. A peer that left before it was accepted costs nothing; a lack of files or memory needs time.
async fn accept_failed(server: &Server, error: io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted) {
        server.slots.accept_failed(error, server.app.now()).await;
        server.app.clock().sleep(ACCEPT_PAUSE).await;
    }
}

/// Begins to serve a connection, in a task of its own.
fn begin(server: &Arc<Server>, stop: &Shutdown, stream: TcpStream, peer: SocketAddr) {
    if let Err(error) = set_options(&stream) {
        tracing::debug!(%error, "a connection was gone before it began");
        return;
    }
    let (now, peer, shutdown) = (server.app.now(), peer.ip().to_canonical(), stop.signal());
    server.slots.take(now, |guard| {
        let server = Arc::clone(server);
        spawn_guarded("connection", async move {
            let (app, slot) = (server.app.clone(), Arc::clone(&guard.slot));
            let is_proxy = app.trusts(peer);
            let leaving = server.leaving.clone();
            let connection = FastPath { stream, app, peer, is_proxy, slot, leaving, shutdown };
            if let Err(error) = serve_connection(&server, connection).await {
                tracing::debug!(error, "a connection broke");
            }
            drop(guard);
        })
    });
}

/// Serves a connection: on the fast path as long as it can be, then by hyper.
async fn serve_connection(server: &Server, connection: FastPath) -> Result<(), ConnectionError> {
    let handover = if server.app.has_fast_path() {
        connection.serve().await?
    } else {
        Some(Handover { connection, read: Bytes::new() })
    };
    match handover {
        // Boxed: a connection that stays on the fast path has no memory for hyper.
        Some(handover) => Box::pin(http1::serve(&server.http, handover)).await,
        None => Ok(()),
    }
}

/// No delay for small responses; an end for peers that have vanished or read nothing.
fn set_options(stream: &TcpStream) -> io::Result<()> {
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
