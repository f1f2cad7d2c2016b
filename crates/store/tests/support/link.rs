//! A network in front of a database that tests can cut.

use std::path::PathBuf;

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
    serves: JoinHandle<()>,
}

impl Link {
    /// Makes a way to a database.
    pub async fn to(database: &OwnDatabase) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (state, seen) = watch::channel(LinkState::Open);
        let (place, options) = database.address.split_once('?').unwrap_or((&database.address, ""));
        let authority = place.split('@').nth(1).and_then(|rest| rest.split('/').next()).unwrap_or("localhost");
        let (host, server_port) = authority.split_once(':').unwrap_or((authority, "5432"));
        let folder = options.split('&').find_map(|option| option.strip_prefix("host="));
        let server = match folder {
            Some(folder) => Server::Socket(PathBuf::from(folder).join(format!(".s.PGSQL.{server_port}"))),
            None => Server::Port(format!("{host}:{server_port}")),
        };
        let serves = tokio::spawn(serve(listener, server, seen));
        let address = format!("postgres://isobar@127.0.0.1:{port}/{}", database.name);
        Self { address, state, serves }
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

async fn serve(listener: TcpListener, server: Server, state: watch::Receiver<LinkState>) {
    while let Ok((client, _)) = listener.accept().await {
        let (server, state) = (server.clone(), state.clone());
        tokio::spawn(async move {
            match server {
                Server::Socket(path) => carry(client, UnixStream::connect(path), state).await,
                Server::Port(address) => carry(client, TcpStream::connect(address), state).await,
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
