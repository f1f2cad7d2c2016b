//! HTTPS: the certificate, which may change while it is used, and the handshake (contract: Behind a proxy, and without one).

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

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

/// The protocols above TLS, the preferred one first.
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";
/// The protocol by which an ACME server asks whether a name leads here (RFC 8737).
const ACME: &[u8] = b"acme-tls/1";
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
    /// A certificate that was handed over cannot be used.
    #[error("cannot use the certificate that was issued: {0}")]
    Issued(String),
    /// The two do not fit each other, or are of a kind that TLS does not use.
    #[error("cannot use the certificate {} with the key {}: {cause}", files.certificate.display(), files.key.display())]
    Unusable {
        /// The two.
        files: CertificateFiles,
        /// Why not.
        cause: tokio_rustls::rustls::Error,
    },
}

/// When a certificate begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Its first moment.
    pub from: Timestamp,
    /// Its last.
    pub until: Timestamp,
}

/// Makes connections HTTPS, by the newest usable certificate of two files or of those that are handed over.
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
    /// The files cannot be read, hold something else, or do not fit each other.
    pub fn read(files: CertificateFiles) -> Result<Self, BadCertificate> {
        let content = Content::read(&files)?;
        let key = content.certified_key(&files)?;
        let unusable = |cause| BadCertificate::Unusable { files: files.clone(), cause };
        let newest = Newest::new(Some(Taken { content, key: Arc::new(key) }));
        let acceptor = acceptor(&newest, &[HTTP2, HTTP1]).map_err(unusable)?;
        Ok(Self { acceptor, newest, files: Some(files) })
    }

    /// Waits for certificates to be handed over. Until the first one, handshakes fail; challenges of an ACME server are answered.
    ///
    /// # Errors
    /// The system has no chance to give.
    pub fn handed_over() -> Result<Self, BadCertificate> {
        let newest = Newest::new(None);
        let acceptor =
            acceptor(&newest, &[HTTP2, HTTP1, ACME]).map_err(|cause| BadCertificate::Issued(cause.to_string()))?;
        Ok(Self { acceptor, newest, files: None })
    }

    /// Shows a certificate to whoever connects from now on: PEM, those that vouch for it behind it. Returns when it is valid.
    ///
    /// # Errors
    /// It is no certificate, or does not fit the key; the one before is still shown.
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

    /// Answers an ACME server that asks for one of these names, and for no other, from now on.
    pub fn answer_challenges(&self, answers: Vec<(String, CertifiedKey)>) {
        *self.newest.challenges.write() = answers.into_iter().map(|(name, key)| (name, Arc::new(key))).collect();
    }

    /// Shakes hands with a client.
    pub(super) async fn accept(&self, socket: TcpStream, clock: &Clock) -> io::Result<Stream> {
        let late = |late| io::Error::new(io::ErrorKind::TimedOut, late);
        let mut stream = clock.timeout(HANDSHAKE_TIME, self.acceptor.accept(socket)).await.map_err(late)??;
        if stream.get_ref().1.alpn_protocol() == Some(ACME) {
            clock.timeout(HANDSHAKE_TIME, stream.shutdown()).await.map_err(late)??;
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "an ACME server's question was answered"));
        }
        Ok(Stream::Tls(Box::new(stream)))
    }

    /// Measures when the certificate ends.
    fn tell_end(&self) {
        let end = self.newest.taken.read().as_ref().and_then(|taken| validity(&taken.key));
        if let Some(Validity { until, .. }) = end {
            metrics::gauge!(CERTIFICATE_EXPIRES).set(until.seconds() as f64);
        }
    }

    /// Takes up files that change, without end. Those that cannot be used are told of, and the old ones stay.
    pub(super) async fn keep_newest(&self, clock: &Clock, shift: Shift) {
        let mut refused: Option<String> = None;
        loop {
            self.tell_end();
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
    // A device that comes again need not prove and be proved everything anew.
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

/// The certificate that clients are shown, and what an ACME server is.
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
