//! HTTPS: the certificate, which may change while it is used, and the handshake (contract: Behind a proxy, and without one).

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use isobar_hub::Shift;
use isobar_model::time::Clock;
use parking_lot::RwLock;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

use crate::request::Stream;

/// The protocols above TLS, the preferred one first.
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";
/// Longest time that a handshake may take.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Most bytes of such a file: a chain of certificates has some thousand.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where the certificate of HTTPS and its key are: PEM files, the certificate with those that vouch for it behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain of certificates, the server's own first.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadCertificate {
    /// A file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} holds no {wanted} in PEM form", path.display())]
    Without {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        wanted: &'static str,
    },
    /// The two do not fit each other, or are of a kind that TLS does not use.
    #[error("cannot use the certificate {} with the key {}: {cause}", files.certificate.display(), files.key.display())]
    Unusable {
        /// The two.
        files: CertificateFiles,
        /// Why not.
        cause: tokio_rustls::rustls::Error,
    },
}

/// Makes connections HTTPS, by the newest usable certificate of two files.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    newest: Arc<Newest>,
    files: CertificateFiles,
}

impl Tls {
    /// Reads the certificate and its key.
    ///
    /// # Errors
    /// The files cannot be read, hold something else, or do not fit each other.
    pub fn read(files: CertificateFiles) -> Result<Self, BadCertificate> {
        let content = Content::read(&files)?;
        let key = content.certified_key(&files)?;
        let unusable = |cause| BadCertificate::Unusable { files: files.clone(), cause };
        let newest = Arc::new(Newest(RwLock::new(Taken { content, key: Arc::new(key) })));
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_cert_resolver(newest.clone());
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        // A device that comes again need not prove and be proved everything anew.
        config.ticketer = ring::Ticketer::new().map_err(unusable)?;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), newest, files })
    }

    /// Shakes hands with a client.
    pub(super) async fn accept(&self, socket: TcpStream, clock: &Clock) -> io::Result<Stream> {
        let handshake = clock.timeout(HANDSHAKE_TIME, self.acceptor.accept(socket)).await;
        let stream = handshake.map_err(|late| io::Error::new(io::ErrorKind::TimedOut, late))??;
        Ok(Stream::Tls(Box::new(stream)))
    }

    /// Takes up files that change, without end. Those that cannot be used are told of, and the old ones stay.
    pub(super) async fn keep_newest(&self, clock: &Clock, shift: Shift) {
        let mut refused: Option<String> = None;
        loop {
            shift.well();
            clock.sleep(LOOK_EVERY).await;
            let tls = self.clone();
            let Ok(looked) = tokio::task::spawn_blocking(move || tls.look()).await else { continue };
            match looked {
                Ok(true) => tracing::info!("a new certificate is used from now on"),
                Ok(false) => {}
                Err(error) => {
                    let cause = error.to_string();
                    // Told at the second look that finds it: between two files that are written one does not fit the other.
                    if refused.as_ref() == Some(&cause) {
                        tracing::warn!(cause, "cannot take up the new certificate: the one before is still used");
                    }
                    refused = Some(cause);
                    continue;
                }
            }
            refused = None;
        }
    }

    /// Takes up the files if they have changed. Returns whether they have.
    fn look(&self) -> Result<bool, BadCertificate> {
        let content = Content::read(&self.files)?;
        if self.newest.0.read().content == content {
            return Ok(false);
        }
        let key = Arc::new(content.certified_key(&self.files)?);
        *self.newest.0.write() = Taken { content, key };
        Ok(true)
    }
}

/// Whether the client has chosen HTTP/2.
pub(super) fn is_http2(stream: &Stream) -> bool {
    match stream {
        Stream::Plain(_) => false,
        Stream::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(HTTP2),
    }
}

fn provider() -> CryptoProvider {
    ring::default_provider()
}

/// What the two files hold.
#[derive(PartialEq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Content {
    fn read(files: &CertificateFiles) -> Result<Self, BadCertificate> {
        Ok(Self { certificate: read(&files.certificate)?, key: read(&files.key)? })
    }

    fn certified_key(&self, files: &CertificateFiles) -> Result<CertifiedKey, BadCertificate> {
        let without = |path: &Path, wanted| BadCertificate::Without { path: path.to_owned(), wanted };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .ok()
            .filter(|chain: &Vec<_>| !chain.is_empty())
            .ok_or_else(|| without(&files.certificate, "certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| without(&files.key, "private key"))?;
        CertifiedKey::from_der(chain, key, &provider())
            .map_err(|cause| BadCertificate::Unusable { files: files.clone(), cause })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, BadCertificate> {
    let unreadable = |cause| BadCertificate::Unreadable { path: path.to_owned(), cause };
    let mut content = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content).map_err(unreadable)?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(unreadable(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 1 MiB")));
    }
    Ok(content)
}

/// The certificate that clients are shown.
struct Newest(RwLock<Taken>);

struct Taken {
    content: Content,
    key: Arc<CertifiedKey>,
}

impl std::fmt::Debug for Newest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Newest").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Newest {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().key))
    }
}
