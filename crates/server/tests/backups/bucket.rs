//! A server of S3 over a folder, behind a proxy that can fail.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub const KEY: &str = "the-key-of-backups";
pub const SECRET: &str = "the-secret-of-backups";
pub const NAME: &str = "vault";
/// More bytes than are ever sent.
const WITHOUT_END: i64 = i64::MAX / 2;

/// The state of the proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    /// Connections are closed.
    Cut,
    /// Bytes are neither passed on nor refused.
    Held,
}

/// The proxy in front of the bucket.
struct Road {
    way: watch::Sender<Way>,
    /// Bytes until the state changes, and the next state.
    left: AtomicI64,
    next: watch::Sender<Way>,
}

impl Road {
    /// Returns true if `count` bytes may pass, now or after the proxy is open again.
    async fn lets_through(&self, count: usize) -> bool {
        let count = i64::try_from(count).unwrap();
        if self.left.fetch_sub(count, Ordering::Relaxed) <= count {
            let next = *self.next.borrow();
            self.way.send_replace(next);
        }
        let mut way = self.way.subscribe();
        *way.wait_for(|way| *way != Way::Held).await.unwrap() == Way::Open
    }
}

/// A server of S3 with one bucket.
pub struct Bucket {
    folder: TempDir,
    address: SocketAddr,
    road: Arc<Road>,
}

impl Bucket {
    pub async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(NAME)).unwrap();
        let mut service = S3ServiceBuilder::new(FileSystem::new(folder.path()).unwrap());
        service.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let service = service.build();
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let behind = server.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = server.accept().await {
                let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service.clone());
                tokio::spawn(connection);
            }
        });
        let (way, next) = (watch::Sender::new(Way::Open), watch::Sender::new(Way::Open));
        let road = Arc::new(Road { way, left: AtomicI64::new(WITHOUT_END), next });
        let before = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = before.local_addr().unwrap();
        let along = Arc::clone(&road);
        tokio::spawn(async move {
            while let Ok((stream, _)) = before.accept().await {
                tokio::spawn(pass(stream, behind, Arc::clone(&along)));
            }
        });
        Self { folder, address, road }
    }

    /// Closes connections after `bytes` more to the server.
    pub fn is_cut_after(&self, bytes: i64) {
        self.road.next.send_replace(Way::Cut);
        self.road.left.store(bytes, Ordering::Relaxed);
    }

    /// Holds all bytes after `bytes` more to the server.
    pub fn is_held_after(&self, bytes: i64) {
        self.road.next.send_replace(Way::Held);
        self.road.left.store(bytes, Ordering::Relaxed);
    }

    pub fn is_held(&self) -> bool {
        *self.road.way.borrow() == Way::Held
    }

    /// Opens the proxy again.
    pub fn is_mended(&self) {
        self.road.left.store(WITHOUT_END, Ordering::Relaxed);
        self.road.way.send_replace(Way::Open);
    }

    /// Returns the settings with which a platform sends its backups here.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("ISOBAR_BACKUP__TARGET", self.address_of("isobar")),
            ("ISOBAR_BACKUP__S3_ENDPOINT", format!("http://{}", self.address)),
            ("ISOBAR_BACKUP__S3_ACCESS_KEY_ID", KEY.to_owned()),
            ("ISOBAR_BACKUP__S3_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ]
    }

    pub fn address_of(&self, name: &str) -> String {
        format!("s3://{NAME}/{name}")
    }

    /// Returns the folder of the objects.
    pub fn objects(&self) -> PathBuf {
        self.folder.path().join(NAME).join("isobar")
    }

    /// Counts parts of uploads that were neither finished nor aborted.
    pub fn unfinished(&self) -> usize {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("part")).count()
    }
}

/// Passes bytes on as the proxy allows.
async fn pass(client: TcpStream, to: SocketAddr, road: Arc<Road>) {
    let Ok(server) = TcpStream::connect(to).await else { return };
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let back = tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let mut piece = vec![0; 1 << 14];
    while let Ok(count @ 1..) = from_client.read(&mut piece).await {
        if !road.lets_through(count).await {
            back.abort();
            return;
        }
        if to_server.write_all(&piece[..count]).await.is_err() {
            return;
        }
    }
}
