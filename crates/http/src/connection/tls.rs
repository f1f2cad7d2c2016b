//! HTTPS: the handshake, and a certificate that is replaced at run time (contract: Behind a proxy, and without one).

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::STRICT_TRANSPORT_SECURITY;
use axum::http::{HeaderValue, Response};
use isobar_hub::Shift;
use isobar_model::time::{Clock, Timestamp};
use parking_lot::RwLock;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use x509_parser::parse_x509_certificate;

use crate::meters::CERTIFICATE_EXPIRES;
use crate::request::Stream;

/// ALPN protocols, the preferred one first.
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";
/// ALPN protocol of an ACME server's challenge (RFC 8737).
const ACME: &[u8] = b"acme-tls/1";
/// Longest time of a handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Interval of checks for changed files.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Most bytes of a file: a certificate chain has a few thousand.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// PEM files of the HTTPS certificate chain and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// Certificate chain, the server's own first.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// Reason why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadCertificate {
    /// A file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Cause of the failure.
        cause: io::Error,
    },
    /// A file does not contain what it should.
    #[error("{} holds no {wanted} in PEM form", path.display())]
    Without {
        /// The file.
        path: PathBuf,
        /// Missing content.
        wanted: &'static str,
    },
    /// An issued certificate cannot be used.
    #[error("cannot use the certificate that was issued: {0}")]
    Issued(String),
    /// Certificate and key do not match, or TLS does not support their kind.
    #[error("cannot use the certificate {} with the key {}: {cause}", files.certificate.display(), files.key.display())]
    Unusable {
        /// Certificate and key.
        files: CertificateFiles,
        /// Cause of the failure.
        cause: tokio_rustls::rustls::Error,
    },
}

/// Validity period of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First moment.
    pub from: Timestamp,
    /// Last moment.
    pub until: Timestamp,
}

/// Accepts HTTPS connections with the newest usable certificate, from two files or from [`Tls::take_up`].
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    newest: Arc<Newest>,
    files: Option<CertificateFiles>,
}

impl Tls {
    /// Reads the certificate and its key.
    ///
    /// # Errors
    /// Fails if the files cannot be read, contain something else, or do not match.
    pub fn read(files: CertificateFiles) -> Result<Self, BadCertificate> {
        let content = Content::read(&files)?;
        let key = content.certified_key(&files)?;
        let unusable = |cause| BadCertificate::Unusable { files: files.clone(), cause };
        let newest = Newest::new(Some(Taken { content, key: Arc::new(key) }));
        let acceptor = acceptor(&newest, &[HTTP2, HTTP1]).map_err(unusable)?;
        Ok(Self { acceptor, newest, files: Some(files) })
    }

    /// Starts without a certificate. Handshakes fail until [`Tls::take_up`] is called; challenges of an ACME server are
    /// answered.
    ///
    /// # Errors
    /// Fails if the system provides no randomness.
    pub fn handed_over() -> Result<Self, BadCertificate> {
        let newest = Newest::new(None);
        let acceptor =
            acceptor(&newest, &[HTTP2, HTTP1, ACME]).map_err(|cause| BadCertificate::Issued(cause.to_string()))?;
        Ok(Self { acceptor, newest, files: None })
    }

    /// Uses a PEM certificate chain for new connections. Returns its validity.
    ///
    /// # Errors
    /// Fails if it is not a certificate or does not match the key; the previous one stays in use.
    pub fn take_up(&self, certificate: &str, key: &str) -> Result<Validity, BadCertificate> {
        let content = Content { certificate: certificate.as_bytes().to_vec(), key: key.as_bytes().to_vec() };
        let issued = |what: String| BadCertificate::Issued(what);
        let chain = content.chain().ok_or_else(|| issued("it is no certificate in PEM form".to_owned()))?;
        let private = PrivateKeyDer::from_pem_slice(&content.key).map_err(|error| issued(error.to_string()))?;
        let key = CertifiedKey::from_der(chain, private, &provider()).map_err(|error| issued(error.to_string()))?;
        let validity = validity(&key).ok_or_else(|| issued("it does not say when it ends".to_owned()))?;
        *self.newest.taken.write() = Some(Taken { content, key: Arc::new(key) });
        self.tell_end();
        Ok(validity)
    }

    /// Sets the ACME challenges that are answered, by name, and replaces the previous ones.
    pub fn answer_challenges(&self, answers: Vec<(String, CertifiedKey)>) {
        *self.newest.challenges.write() = answers.into_iter().map(|(name, key)| (name, Arc::new(key))).collect();
    }

    /// Performs the TLS handshake, with a time limit.
    pub(super) async fn accept(&self, socket: TcpStream, clock: &Clock) -> io::Result<Stream> {
        let late = |late| io::Error::new(io::ErrorKind::TimedOut, late);
        let mut stream = clock.timeout(HANDSHAKE_TIME, self.acceptor.accept(socket)).await.map_err(late)??;
        if stream.get_ref().1.alpn_protocol() == Some(ACME) {
            clock.timeout(HANDSHAKE_TIME, stream.shutdown()).await.map_err(late)??;
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "an ACME server's question was answered"));
        }
        Ok(Stream::Tls(Box::new(stream)))
    }

    /// Sets the gauge of the certificate's expiry.
    fn tell_end(&self) {
        let end = self.newest.taken.read().as_ref().and_then(|taken| validity(&taken.key));
        if let Some(Validity { until, .. }) = end {
            metrics::gauge!(CERTIFICATE_EXPIRES).set(until.seconds() as f64);
        }
    }

    /// Reloads files that change, without end. Logs those that cannot be used, and keeps the previous ones.
    pub(super) async fn keep_newest(&self, clock: &Clock, shift: Shift) {
        let mut refused: Option<String> = None;
        loop {
            self.tell_end();
            shift.well();
            clock.sleep(LOOK_EVERY).await;
            let tls = self.clone();
            let Ok(looked) = tokio::task::spawn_blocking(move || tls.reread()).await else { continue };
            match looked {
                Ok(true) => tracing::info!("new certificate in use"),
                Ok(false) => {}
                Err(error) => {
                    let cause = error.to_string();
                    // Logged at the second check that finds it: while two files are being written they do not match.
                    if refused.as_ref() == Some(&cause) {
                        tracing::warn!(cause, "cannot use the new certificate: the previous one stays in use");
                    }
                    refused = Some(cause);
                    continue;
                }
            }
            refused = None;
        }
    }

    /// Loads the files if they have changed. Returns true if they have.
    ///
    /// # Errors
    /// Fails if they cannot be used; the previous certificate stays in use.
    pub fn reread(&self) -> Result<bool, BadCertificate> {
        let Some(files) = &self.files else { return Ok(false) };
        let content = Content::read(files)?;
        if self.newest.taken.read().as_ref().is_some_and(|taken| taken.content == content) {
            return Ok(false);
        }
        let key = Arc::new(content.certified_key(files)?);
        *self.newest.taken.write() = Some(Taken { content, key });
        Ok(true)
    }
}

fn acceptor(newest: &Arc<Newest>, protocols: &[&[u8]]) -> Result<TlsAcceptor, tokio_rustls::rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(newest.clone());
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    // A returning device resumes its session without a full handshake.
    config.ticketer = ring::Ticketer::new()?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn validity(key: &CertifiedKey) -> Option<Validity> {
    let (_, certificate) = parse_x509_certificate(key.end_entity_cert().ok()?).ok()?;
    let validity = certificate.validity();
    let [from, until] =
        [validity.not_before, validity.not_after].map(|time| Timestamp::default().plus_seconds(time.timestamp()));
    Some(Validity { from, until })
}

/// How long a browser uses HTTPS alone for this host: a year.
const HTTPS_ALONE: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// Adds the header by which browsers use HTTPS alone for this host (RFC 6797).
pub(super) fn with_https_alone<B>(mut response: Response<B>) -> Response<B> {
    response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, HTTPS_ALONE);
    response
}

/// Returns true if the client has chosen HTTP/2.
pub(super) fn is_http2(stream: &Stream) -> bool {
    match stream {
        Stream::Plain(_) => false,
        Stream::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(HTTP2),
    }
}

fn provider() -> CryptoProvider {
    ring::default_provider()
}

/// Contents of the two files.
#[derive(PartialEq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Content {
    fn read(files: &CertificateFiles) -> Result<Self, BadCertificate> {
        Ok(Self { certificate: read(&files.certificate)?, key: read(&files.key)? })
    }

    fn chain(&self) -> Option<Vec<CertificateDer<'static>>> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.certificate).collect::<Result<_, _>>().ok()?;
        (!chain.is_empty()).then_some(chain)
    }

    fn certified_key(&self, files: &CertificateFiles) -> Result<CertifiedKey, BadCertificate> {
        let without = |path: &Path, wanted| BadCertificate::Without { path: path.to_owned(), wanted };
        let chain = self.chain().ok_or_else(|| without(&files.certificate, "certificate"))?;
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

/// Certificate and ACME challenges in use.
struct Newest {
    taken: RwLock<Option<Taken>>,
    challenges: RwLock<Vec<(String, Arc<CertifiedKey>)>>,
}

struct Taken {
    content: Content,
    key: Arc<CertifiedKey>,
}

impl Newest {
    fn new(taken: Option<Taken>) -> Arc<Self> {
        Arc::new(Self { taken: RwLock::new(taken), challenges: RwLock::default() })
    }
}

impl std::fmt::Debug for Newest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Newest").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Newest {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let asks_challenge =
            hello.alpn().is_some_and(|mut offered| offered.next() == Some(ACME) && offered.next().is_none());
        if asks_challenge {
            let (challenges, asked) = (self.challenges.read(), hello.server_name()?);
            let answer = challenges.iter().find(|(name, _)| name.eq_ignore_ascii_case(asked));
            return answer.map(|(_, key)| Arc::clone(key));
        }
        self.taken.read().as_ref().map(|taken| Arc::clone(&taken.key))
    }
}
