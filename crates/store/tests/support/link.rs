//! A network in front of a database that tests can cut.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::OwnDatabase;

/// State of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Everything passes.
    Open,
    /// Nothing passes, and nobody is told.
    Silent,
    /// Nothing passes by the connections that are there, nobody is told, and new ones pass.
    Lost,
    /// Connections are closed at once.
    Closed,
}

/// A way to a database, by a port of its own; it ends when it is dropped.
pub struct Link {
    /// Address of the database by this way.
    pub address: String,
    state: watch::Sender<LinkState>,
    server: watch::Sender<Server>,
    /// How often all connections were closed.
    ends: watch::Sender<usize>,
    carried: Arc<AtomicUsize>,
    serves: JoinHandle<()>,
}

impl Link {
    /// Makes a way to a database.
    pub async fn to(database: &OwnDatabase) -> Self {
        Self::to_address(&database.address).await
    }

    /// Makes a way to the database at an address.
    pub async fn to_address(address: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (state, seen) = watch::channel(LinkState::Open);
        let (server, leads_to) = watch::channel(Server::of(address));
        let (ends, ended) = watch::channel(0);
        let carried = Arc::new(AtomicUsize::new(0));
        let serves = tokio::spawn(serve(listener, leads_to, (seen, ended), Arc::clone(&carried)));
        let (place, _) = address.split_once('?').unwrap_or((address, ""));
        let name = place.rsplit('/').next().unwrap_or_default();
        let address = format!("postgres://isobar@127.0.0.1:{port}/{name}");
        Self { address, state, server, ends, carried, serves }
    }

    /// Leads new connections to the server of another address.
    pub fn lead_to(&self, address: &str) {
        self.carried.store(0, Ordering::Relaxed);
        self.server.send_replace(Server::of(address));
    }

    /// Closes all connections, and leads new ones to the server of another address.
    pub fn lead_all_to(&self, address: &str) {
        self.lead_to(address);
        self.ends.send_modify(|times| *times += 1);
    }

    /// Returns how many connections were made to the server to which it leads now.
    pub fn carried(&self) -> usize {
        self.carried.load(Ordering::Relaxed)
    }

    /// Changes what passes, for open connections too.
    pub fn set(&self, state: LinkState) {
        self.state.send_replace(state);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.serves.abort();
    }
}

#[derive(Clone)]
enum Server {
    Socket(PathBuf),
    Port(String),
}

impl Server {
    /// Returns the server of an address.
    fn of(address: &str) -> Self {
        let (place, options) = address.split_once('?').unwrap_or((address, ""));
        let authority = place.split('@').nth(1).and_then(|rest| rest.split('/').next()).unwrap_or("localhost");
        let (host, port) = authority.split_once(':').unwrap_or((authority, "5432"));
        let option = |name: &str| options.split('&').find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
        match option("host") {
            Some(folder) => {
                Self::Socket(PathBuf::from(folder).join(format!(".s.PGSQL.{}", option("port").unwrap_or(port))))
            }
            None => Self::Port(format!("{host}:{port}")),
        }
    }
}

async fn serve(
    listener: TcpListener,
    leads_to: watch::Receiver<Server>,
    (state, ended): (watch::Receiver<LinkState>, watch::Receiver<usize>),
    carried: Arc<AtomicUsize>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let (server, state, mut ended) = (leads_to.borrow().clone(), state.clone(), ended.clone());
        ended.mark_unchanged();
        if *state.borrow() == LinkState::Open {
            carried.fetch_add(1, Ordering::Relaxed);
        }
        tokio::spawn(async move {
            let carries = async {
                match server {
                    Server::Socket(path) => carry(client, UnixStream::connect(path), state).await,
                    Server::Port(address) => carry(client, TcpStream::connect(address), state).await,
                }
            };
            tokio::select! {
                () = carries => {}
                _ = ended.changed() => {}
            }
        });
    }
}

async fn carry<S: AsyncRead + AsyncWrite + Unpin>(
    mut client: TcpStream,
    server: impl Future<Output = std::io::Result<S>>,
    mut state: watch::Receiver<LinkState>,
) {
    let seen = *state.borrow_and_update();
    if seen == LinkState::Closed {
        return;
    }
    let Ok(mut server) = server.await else { return };
    let (mut is_open, mut is_lost) = (seen != LinkState::Silent, false);
    loop {
        tokio::select! {
            changed = state.changed() => match (changed.is_ok(), *state.borrow_and_update()) {
                (true, LinkState::Open) => is_open = true,
                (true, LinkState::Silent) => is_open = false,
                (true, LinkState::Lost) => is_lost = true,
                (true, LinkState::Closed) | (false, _) => return,
            },
            _ = copy_bidirectional(&mut client, &mut server), if is_open && !is_lost => return,
        }
    }
}
