//! Connections: accepts them, limits their number and duration, and closes them in order.
//!
//! This module does not know the operations. The fast path ([`fast_path`]) serves events that arrive whole; hyper
//! serves all other requests ([`http1`], [`http2`]). All pass them to [`App`]. With a certificate, connections use TLS
//! ([`tls`]).

mod completed;
mod encode;
mod fast_path;
mod head_lines;
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

/// Connections that the kernel queues until they are accepted.
const BACKLOG: u32 = 4096;
/// Most bytes of a request's head; also the largest read buffer of a connection.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Most connections to the listener for operations: probes, scrapers and an operator.
const OPERATIONS_CONNECTIONS_MAX: usize = 64;
/// Time that requests in flight get when the server stops.
const STOP_TIME: Duration = Duration::from_secs(10);
/// Connections accepted before the thread serves other tasks: some hundred microseconds of work.
const ACCEPTED_AT_ONCE: usize = 16;
/// Pause after the process ran out of files or memory: accepting again at once would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// TCP keep-alive: silence before the first probe, and the interval of probes.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_BETWEEN: Duration = Duration::from_secs(15);
/// Longest time that a peer may read nothing of a response.
const UNREAD_TIME: Duration = Duration::from_secs(60);
/// Limit of unsent bytes in the kernel's send buffer: the rest of a slow reader's response stays in the process, where
/// it is counted.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 128 << 10;
/// Interval at which finished durations are folded into histograms, which bounds their memory without a scraper.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Cause of a broken connection.
type ConnectionError = Box<dyn Error + Send + Sync>;

/// Listening sockets.
pub struct Listeners {
    /// Serves clients.
    pub public: TcpListener,
    /// Makes connections to `public` HTTPS; `None`: plain HTTP.
    pub tls: Option<Tls>,
    /// Serves `/health` and `/metrics`, over HTTP and with connections of its own; `None`: `public` serves them.
    pub operations: Option<TcpListener>,
}

/// State shared by all connections to a listener.
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

/// Listens on an address, with a backlog of 4,096 connections. It does not block; call it within a tokio runtime.
///
/// # Errors
/// Fails if the address cannot be bound: it is in use, or not of this machine.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves connections until `shutdown` completes; then stops accepting and gives requests in flight 10 seconds to
/// finish. Streams and long polls end at once. Cuts off the rest, and logs that.
///
/// # Errors
/// None today: a connection that fails is logged, and accepting continues.
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
        tracing::warn!("some requests were cut off: they did not finish within the stop time");
    }
    Ok(())
}

/// Runs `work` on the value if there is one; else waits for ever.
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
                    tokio::task::yield_now().await;
                }
            }
            Err(error) => accept_failed(server, error).await,
        }
        shift.well();
    }
}

/// Folds finished measurements and closes idle connections if there are many, at intervals.
async fn upkeep(server: &Server, shift: Shift) {
    loop {
        server.app.run_upkeep();
        server.slots.keep_some_free(server.app.now()).await;
        shift.well();
        server.app.clock().sleep(UPKEEP_EVERY).await;
    }
}

/// Handles a failed accept. A peer that left before it was accepted costs nothing; a lack of files or memory needs a
/// pause.
async fn accept_failed(server: &Server, error: io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted) {
        server.slots.accept_failed(error, server.app.now()).await;
        server.app.clock().sleep(ACCEPT_PAUSE).await;
    }
}

/// Begins to serve a connection in a task of its own.
fn begin(server: &Arc<Server>, stop: &Shutdown, socket: TcpStream, peer: SocketAddr) {
    if let Err(error) = set_options(&socket) {
        tracing::debug!(%error, "cannot begin a connection");
        return;
    }
    let (now, peer, shutdown) = (server.app.now(), peer.ip().to_canonical(), stop.signal());
    server.slots.take(now, |guard| {
        let server = Arc::clone(server);
        spawn_guarded("connection", async move {
            if let Err(error) = serve_connection(&server, socket, peer, &guard, shutdown).await {
                tracing::debug!(error, "connection failed");
            }
            drop(guard);
        })
    });
}

/// Serves a connection: on the fast path as long as possible, then by hyper.
async fn serve_connection(
    server: &Server,
    socket: TcpStream,
    peer: IpAddr,
    guard: &SlotGuard,
    shutdown: ShutdownSignal,
) -> Result<(), ConnectionError> {
    let (app, slot) = (server.app.clone(), Arc::clone(&guard.slot));
    let stream = match &server.tls {
        // Boxed: a handshake needs memory that its connection does not.
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
        // Boxed: a connection on the fast path takes no memory for hyper.
        Some(handover) => Box::pin(http1::serve(&server.http1, handover)).await,
        None => Ok(()),
    }
}

/// Sets socket options: no delay of small responses, and timeouts for peers that vanish or do not read.
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
