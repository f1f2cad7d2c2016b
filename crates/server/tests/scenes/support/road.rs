//! The road between a server and its PostgreSQL, which can be closed: nothing is lost on it, and nothing gets through.

use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

pub struct Road {
    /// The address at its end, for those who do not take it.
    pub address: String,
    closed: watch::Sender<bool>,
}

impl Road {
    /// Opens a road to the PostgreSQL at this address, and returns it with the address of its beginning.
    pub async fn to(address: &str) -> (Self, String) {
        let far: PgConnectOptions = address.parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = listener.local_addr().unwrap();
        let own = format!("postgres://{}@{near}/{}", far.get_username(), far.get_database().unwrap());
        let (closed, watched) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((traveller, _)) = listener.accept().await {
                tokio::spawn(carry_on(traveller, far.clone(), watched.clone()));
            }
        });
        (Self { address: address.to_owned(), closed }, own)
    }

    /// Blocks all traffic from now on.
    pub fn closes(&self) {
        self.closed.send_replace(true);
    }

    /// Lets waiting calls continue.
    pub fn opens(&self) {
        self.closed.send_replace(false);
    }
}

/// Carries one connection to its end.
async fn carry_on(traveller: TcpStream, far: PgConnectOptions, closed: watch::Receiver<bool>) {
    let (there, back) = traveller.into_split();
    if let Some(folder) = far.get_socket() {
        let socket = UnixStream::connect(folder.join(format!(".s.PGSQL.{}", far.get_port()))).await.unwrap();
        let (from, into) = socket.into_split();
        tokio::join!(carry(there, into, closed.clone()), carry(from, back, closed));
    } else {
        let (from, into) = TcpStream::connect((far.get_host(), far.get_port())).await.unwrap().into_split();
        tokio::join!(carry(there, into, closed.clone()), carry(from, back, closed));
    }
}

async fn carry(mut from: impl AsyncRead + Unpin, mut into: impl AsyncWrite + Unpin, mut closed: watch::Receiver<bool>) {
    let mut piece = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut piece).await {
        // The road is gone when the scene is over.
        let open = closed.wait_for(|closed| !closed).await.is_ok();
        if !open || into.write_all(&piece[..read]).await.is_err() {
            return;
        }
    }
    // A connection that one side has ended ends on the other.
    let _ = into.shutdown().await;
}
