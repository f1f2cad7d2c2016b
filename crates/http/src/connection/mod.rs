//! Connections: accepting them, bounding their number and their time, and letting them end well.
//!
//! Nothing here knows what a request is about. Events that come whole take the fast path ([`fast_path`]); hyper serves all
//! other requests ([`http1`], [`http2`]). All hand them to [`App`]. Where there is a certificate, bytes come under TLS ([`tls`]).

mod completed;
mod encode;
mod fast_path;
mod http1;
mod http2;
mod leaving;
mod shutdown;
mod slots;
mod slow_peer;
mod time_limits;
mod tls;
mod unreadable;

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
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
use self::shutdown::{Shutdown, ShutdownSignal};
use self::slots::{SlotGuard, Slots};
pub use self::tls::{BadCertificate, CertificateFiles, Tls, Validity};
use crate::app::App;
use crate::request::Stream;

/// Connections that the kernel holds for us until they are accepted.
const BACKLOG: u32 = 4096;
/// Most bytes of a request's head; also the size of a connection's read buffer when it is full.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Connections to the listener for operations: probes, scrapers, and an operator who looks.
const OPERATIONS_CONNECTIONS_MAX: usize = 64;
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

/// Where connections come in.
pub struct Listeners {
    /// For everybody.
    pub public: TcpListener,
    /// Makes those to the public one HTTPS; none: they are HTTP.
    pub tls: Option<Tls>,
    /// For `/health` and `/metrics`, over HTTP and with connections of its own; none: the public one answers them.
    pub operations: Option<TcpListener>,
}

/// What all connections to a listener share.
struct Server {
    http1: hyper::server::conn::http1::Builder,
    http2: hyper::server::conn::http2::Builder<http2::Guarded>,
    app: App,
    tls: Option<Tls>,
    slots: Arc<Slots>,
    leaving: Leaving,
}

impl Server {
    fn new(app: App, tls: Option<Tls>, slots: Arc<Slots>) -> Arc<Self> {
        let (http1, http2, leaving) = (http1::builder(), http2::builder(), Leaving::new());
        Arc::new(Self { http1, http2, app, tls, slots, leaving })
    }
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
pub async fn serve(listeners: Listeners, app: App, shutdown: impl Future<Output = ()>) -> io::Result<()> {
    let Listeners { public, tls, operations } = listeners;
    let (clock, hub) = (app.clock().clone(), app.hub().clone());
    let slots = Slots::new(app.settings().max_connections, clock.clone());
    let own_slots = Slots::unmeasured(OPERATIONS_CONNECTIONS_MAX, clock.clone());
    let (stop, own_stop) = (Shutdown::new(&slots, clock.clone()), Shutdown::new(&own_slots, clock.clone()));
    let own_server = Server::new(app.operations(), None, own_slots);
    let server = Server::new(app, tls.clone(), slots);
    {
        let accepting = hub.keep("accept", |shift| accept(&public, &server, &stop, shift));
        let upkeep = hub.keep("meters", |shift| upkeep(&server, shift));
        let own_accepting = optional(operations.as_ref(), |operations| {
            hub.keep("accept_operations", |shift| accept(operations, &own_server, &own_stop, shift))
        });
        let renewal =
            optional(tls.as_ref(), |tls| hub.keep("certificate", |shift| tls.keep_newest(server.app.clock(), shift)));
        tokio::select! {
            () = shutdown => {}
            () = accepting => {}
            () = own_accepting => {}
            () = renewal => {}
            () = upkeep => {}
        }
    }
    drop((public, operations));
    server.app.end_streams();
    if clock.timeout(STOP_TIME, futures::future::join(stop.end_all(), own_stop.end_all())).await.is_err() {
        tracing::warn!("some requests did not end in time and were cut off");
    }
    Ok(())
}

/// Does the work if there is something that it is for; else it waits for ever.
async fn optional<T, F: Future<Output = ()>>(of: Option<T>, work: impl FnOnce(T) -> F) {
    match of {
        Some(of) => work(of).await,
        None => std::future::pending().await,
    }
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
fn begin(server: &Arc<Server>, stop: &Shutdown, socket: TcpStream, peer: SocketAddr) {
    if let Err(error) = set_options(&socket) {
        tracing::debug!(%error, "a connection was gone before it began");
        return;
    }
    let (now, peer, shutdown) = (server.app.now(), peer.ip().to_canonical(), stop.signal());
    server.slots.take(now, |guard| {
        let server = Arc::clone(server);
        spawn_guarded("connection", async move {
            if let Err(error) = serve_connection(&server, socket, peer, &guard, shutdown).await {
                tracing::debug!(error, "a connection broke");
            }
            drop(guard);
        })
    });
}

/// Serves a connection: on the fast path as long as it can be, then by hyper.
async fn serve_connection(
    server: &Server,
    socket: TcpStream,
    peer: IpAddr,
    guard: &SlotGuard,
    shutdown: ShutdownSignal,
) -> Result<(), ConnectionError> {
    let (app, slot) = (server.app.clone(), Arc::clone(&guard.slot));
    let stream = match &server.tls {
        // Boxed: a handshake needs much that its connection does not.
        Some(tls) => Box::pin(tls.accept(socket, app.clock())).await?,
        None => Stream::Plain(socket),
    };
    let (is_proxy, leaving) = (app.trusts(peer), server.leaving.clone());
    let connection = FastPath { stream, app, peer, is_proxy, slot, leaving, shutdown };
    if tls::is_http2(&connection.stream) {
        return Box::pin(http2::serve(&server.http2, connection)).await;
    }
    let handover = if server.app.has_fast_path() {
        connection.serve().await?
    } else {
        Some(Handover { connection, read: Bytes::new() })
    };
    match handover {
        // Boxed: a connection that stays on the fast path has no memory for hyper.
        Some(handover) => Box::pin(http1::serve(&server.http1, handover)).await,
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
