//! A door of HTTPS beside that of a scene's server, and clients that trust its certificate and no other.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use isobar_http::{CertificateFiles, HttpSettings, Listeners, Tls};
use rcgen::{CertifiedKey, KeyPair};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::TestApp;

const NAME: &str = "isobar.test";

/// A door of HTTPS to a scene's platform.
pub struct SecureDoor {
    pub certificates: Certificates,
    pub address: SocketAddr,
    /// The address of health and metrics, by HTTP.
    pub operations: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl SecureDoor {
    pub fn beside(app: &TestApp) -> Self {
        Self::with(app, |_| {})
    }

    /// Opens a door with settings of its own.
    pub fn with(app: &TestApp, change: impl FnOnce(&mut HttpSettings)) -> Self {
        let certificates = Certificates::new();
        let listen = || isobar_http::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let (public, operations) = (listen(), listen());
        let addresses = [&public, &operations].map(|listener| listener.local_addr().unwrap());
        let tls = Some(Tls::read(certificates.files()).unwrap());
        let listeners = Listeners { public, tls, operations: Some(operations) };
        let metrics = isobar_http::prometheus().unwrap().build_recorder().handle();
        let mut settings = HttpSettings { has_operations_listener: true, ..HttpSettings::default() };
        change(&mut settings);
        let door = isobar_http::app(app.hub().clone(), settings, metrics);
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(async move {
            let told = async { stopped.await.unwrap_or_default() };
            isobar_http::serve(listeners, door, told).await.unwrap();
        });
        let [address, operations] = addresses;
        Self { certificates, address, operations, stop, served }
    }

    /// Ends it as the program does.
    pub async fn closes(self) {
        let _ = self.stop.send(());
        self.served.await.unwrap();
    }

    pub async fn http1(&self) -> http1::SendRequest<Full<Bytes>> {
        self.certificates.http1(self.address).await
    }

    pub async fn http2(&self) -> http2::SendRequest<Full<Bytes>> {
        self.certificates.http2(self.address).await
    }
}

/// Certificates that vouch for themselves, in a folder.
pub struct Certificates {
    folder: TempDir,
    trusted: RootCertStore,
}

impl Certificates {
    /// Makes the folder with a first certificate.
    pub fn new() -> Self {
        let mut made = Self { folder: tempfile::tempdir().unwrap(), trusted: RootCertStore::empty() };
        made.renew();
        made
    }

    pub fn files(&self) -> CertificateFiles {
        let [certificate, key] = ["cert.pem", "key.pem"].map(|name| self.folder.path().join(name));
        CertificateFiles { certificate, key }
    }

    /// Writes another one over it. Clients trust this one alone.
    pub fn renew(&mut self) {
        let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
        let files = self.files();
        std::fs::write(files.certificate, cert.pem()).unwrap();
        std::fs::write(files.key, signing_key.serialize_pem()).unwrap();
        self.trusted = RootCertStore::empty();
        self.trusted.add(cert.der().clone()).unwrap();
    }

    /// Writes a key that fits nothing over the right one.
    pub fn spoil_key(&self) {
        std::fs::write(self.files().key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
    }

    /// Shakes hands, offering these protocols.
    pub async fn shake_hands(&self, address: SocketAddr, offered: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.trusted.clone())
            .with_no_client_auth();
        config.alpn_protocols = offered.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let socket = TcpStream::connect(address).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(NAME).unwrap(), socket).await
    }

    /// Connects a client of HTTP/1.1.
    pub async fn http1(&self, address: SocketAddr) -> http1::SendRequest<Full<Bytes>> {
        let stream = self.shake_hands(address, &["http/1.1"]).await.unwrap();
        let (client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Connects a client of HTTP/2.
    pub async fn http2(&self, address: SocketAddr) -> http2::SendRequest<Full<Bytes>> {
        self.http2_with(address, |_| {}).await
    }

    /// Connects a client of HTTP/2 with its own settings.
    pub async fn http2_with(
        &self,
        address: SocketAddr,
        change: impl FnOnce(&mut http2::Builder<TokioExecutor>),
    ) -> http2::SendRequest<Full<Bytes>> {
        let stream = self.shake_hands(address, &["h2", "http/1.1"]).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let mut builder = http2::Builder::new(TokioExecutor::new());
        change(&mut builder);
        let (client, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

/// Returns a request for a path, with a device's token unless it is empty.
pub fn asks(method: &str, path: &str, token: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(format!("https://{NAME}{path}"));
    let request = if token.is_empty() { request } else { request.header("cloud", token) };
    let request = request.header("host", NAME).header("content-type", "application/json");
    request.body(Full::new(body.into())).unwrap()
}

/// Returns a user's GET of a path.
pub fn reads(path: &str, jwt: &str) -> Request<Full<Bytes>> {
    let mut request = asks("GET", path, "", "");
    request.headers_mut().insert("authorization", format!("Bearer {jwt}").parse().unwrap());
    request
}

/// Returns the status and the body of a response.
pub async fn heard(response: Response<Incoming>) -> (u16, String) {
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}
