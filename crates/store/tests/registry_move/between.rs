//! Stands between a move and its database, and disturbs what passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinHandle;

/// Place of the commit of a move among the commits that it makes.
const LAST_COMMIT: usize = 2;

/// Disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// The connection ends before the last commit reaches the database.
    CutBeforeCommit,
    /// The connection ends after the last commit, before its answer.
    CutAfterCommit,
    /// A text arrives as another one.
    Replace([&'static [u8]; 2]),
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Proxy before a database; it ends when it is dropped.
pub struct Between {
    /// Address of the database through it.
    pub address: String,
    accepts: JoinHandle<()>,
}

impl Between {
    pub async fn start(address: &str, disturbance: Disturbance) -> Self {
        let (listener, commits) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Arc::new(AtomicUsize::new(0)));
        let (place, options) = address.split_once('?').unwrap_or((address, ""));
        let (front, database) = place.rsplit_once('/').unwrap();
        let (scheme, authority) = front.split_once("://").unwrap();
        let (user, host) = authority.rsplit_once('@').unwrap();
        let through = format!("{scheme}://{user}@{}/{database}", listener.local_addr().unwrap());
        let behind = match options.strip_prefix("host=") {
            Some(folder) => format!("{folder}/.s.PGSQL.5432"),
            None if host.contains(':') => host.to_owned(),
            None => format!("{host}:5432"),
        };
        let accepts = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server: Box<dyn Duplex> = match behind.starts_with('/') {
                    true => Box::new(UnixStream::connect(&behind).await.unwrap()),
                    false => Box::new(TcpStream::connect(&behind).await.unwrap()),
                };
                tokio::spawn(pass(client, server, disturbance, Arc::clone(&commits)));
            }
        });
        Self { address: through, accepts }
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

/// Passes bytes in both directions until one side ends, or the disturbance ends both.
async fn pass(mut client: TcpStream, mut server: Box<dyn Duplex>, disturbance: Disturbance, commits: Arc<AtomicUsize>) {
    let (mut sent, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut sent) => {
                let Some(length) = read.ok().filter(|length| *length > 0) else { return };
                let bytes = &mut sent[..length];
                let is_last = find(bytes, b"COMMIT\0").is_some()
                    && commits.fetch_add(1, Ordering::Relaxed) + 1 == LAST_COMMIT;
                match disturbance {
                    Disturbance::CutBeforeCommit if is_last => return,
                    Disturbance::Replace([text, other]) => {
                        if let Some(at) = find(bytes, text) {
                            bytes[at..at + other.len()].copy_from_slice(other);
                        }
                    }
                    _ => {}
                }
                if server.write_all(bytes).await.is_err() {
                    return;
                }
                if is_last && disturbance == Disturbance::CutAfterCommit {
                    assert!(server.read(&mut answered).await.unwrap() > 0, "an answer");
                    return;
                }
            }
            read = server.read(&mut answered) => {
                let Some(length) = read.ok().filter(|length| *length > 0) else { return };
                if client.write_all(&answered[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text)
}
