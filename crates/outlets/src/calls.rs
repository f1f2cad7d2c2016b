//! Outgoing HTTP calls of projects' designs. A call connects only to an address that was checked: names are resolved
//! here, the guard checks every address, and the connection goes to one that passed. Redirects are not followed,
//! proxies are not used, and connections are not reused.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use isobar_model::quote::quote;
use isobar_model::time::Clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use url::{Host, Url};

use crate::guard::Guard;
use crate::plain_body::plain_body;

/// Longest time to reach one address, its TLS handshake included.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Longest time of a whole call, from the look-up of the name to the last byte.
const CALL_TIME: Duration = Duration::from_secs(15);
/// Largest body of an answer, in bytes: as it is sent, unpacked, and in UTF-8.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 10;
/// Largest head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// Most headers of an answer.
const HEADERS_MAX: usize = 100;
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;
/// Most names looked up at the same time; the system's resolver blocks a thread for each.
const LOOKUPS_MAX: usize = 16;

/// Headers that the connection sets itself; a design that sets one is refused.
const OWN_HEADERS: &[&str] = &[
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "keep-alive",
    "proxy-connection",
];

/// An HTTP call to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingCall {
    /// Its method.
    pub method: String,
    /// Its target: http or https, without a username.
    pub url: String,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its body, which is JSON unless a header says otherwise.
    pub body: Option<Bytes>,
}

/// The answer to a call, whatever its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAnswer {
    /// The status.
    pub status: u16,
    /// Headers whose values are text, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, unpacked and in UTF-8; characters that cannot be decoded are U+FFFD.
    pub body: Bytes,
}

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The call is not allowed or its answer not acceptable: a retry cannot succeed.
    #[error("{0}")]
    Refused(String),
    /// The call failed this time: a retry may succeed.
    #[error("{0}")]
    Failed(String),
}

impl CallError {
    /// Cuts what a server brought into the text: names of its certificate, its coding or charset.
    fn quoted(self) -> Self {
        match self {
            Self::Refused(why) => Self::Refused(quote(&why)),
            Self::Failed(why) => Self::Failed(quote(&why)),
        }
    }
}

pub(crate) fn refused(why: impl Into<String>) -> CallError {
    CallError::Refused(why.into())
}

pub(crate) fn too_large() -> CallError {
    refused(format!("the answer is larger than {} KiB", BODY_BYTES_MAX >> 10))
}

/// Returns the host of an address, by which calls are grouped; `None` if the address cannot be parsed.
pub fn host_of(url: &str) -> Option<String> {
    Url::parse(url).ok()?.host_str().map(str::to_owned)
}

/// A client for outgoing calls.
#[derive(Clone)]
pub struct Calls {
    guard: Arc<Guard>,
    tls: TlsConnector,
    lookups: Arc<Semaphore>,
}

impl Calls {
    /// Makes a client. `allow` lists private addresses that may be called all the same (`outgoing.allow`). Certificates
    /// are checked against the machine's own roots and Mozilla's.
    pub fn new(allow: &[String]) -> Result<Self, CallError> {
        Ok(Self { guard: Arc::new(Guard::new(allow)), tls: tls()?, lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)) })
    }

    /// Makes a call. Any answer is `Ok`, whatever its status.
    pub async fn make(&self, call: &OutgoingCall) -> Result<CallAnswer, CallError> {
        let (url, request) = prepared(call)?;
        let exchange = async {
            let addresses = self.addresses(&url).await?;
            let stream = connected(&addresses).await?;
            if url.scheme() != "https" {
                return exchanged(stream, request).await;
            }
            let name = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let name = ServerName::try_from(name).map_err(|_| refused("the host of url has no valid name"))?;
            let secured = Clock::System.timeout(CONNECT_TIME, self.tls.connect(name, stream)).await;
            let secured = secured.map_err(|_| CallError::Failed("the TLS handshake took too long".to_owned()))?;
            exchanged(secured.map_err(|error| CallError::Failed(format!("TLS: {error}")))?, request).await
        };
        let timely = Clock::System.timeout(CALL_TIME, exchange).await;
        let outcome =
            timely.unwrap_or_else(|_| Err(CallError::Failed(format!("no answer within {} s", CALL_TIME.as_secs()))));
        outcome.map_err(CallError::quoted)
    }

    /// Returns the addresses that the call may connect to.
    async fn addresses(&self, url: &Url) -> Result<Vec<SocketAddr>, CallError> {
        let port = url.port_or_known_default().unwrap_or(80);
        let found = match url.host() {
            Some(Host::Ipv4(address)) => vec![SocketAddr::from((address, port))],
            Some(Host::Ipv6(address)) => vec![SocketAddr::from((address, port))],
            Some(Host::Domain(name)) => self.looked_up(name.to_owned(), port).await?,
            None => return Err(refused("url has no host")),
        };
        let host = url.host_str().unwrap_or_default();
        let allowed = found.iter().filter(|address| self.guard.allows(host, address.ip()));
        let allowed: Vec<_> = allowed.copied().take(ADDRESSES_MAX).collect();
        if allowed.is_empty() {
            return Err(refused(format!("{host} is not a public address, and outgoing.allow does not list it")));
        }
        Ok(allowed)
    }

    async fn looked_up(&self, name: String, port: u16) -> Result<Vec<SocketAddr>, CallError> {
        let failed = |why: String| CallError::Failed(why);
        let permit = Arc::clone(&self.lookups).acquire_owned().await.map_err(|error| failed(error.to_string()))?;
        let look = move || {
            // The permit is held until the resolver has answered, even if the call has given up.
            let _permit = permit;
            (name.as_str(), port).to_socket_addrs().map(Iterator::collect)
        };
        let found: std::io::Result<Vec<_>> =
            tokio::task::spawn_blocking(look).await.map_err(|error| failed(error.to_string()))?;
        found.map_err(|_| failed("the host of url is not known".to_owned()))
    }
}

/// Returns the TLS connector for HTTP/1.1. Certificates are checked against the machine's own roots and Mozilla's.
pub fn tls() -> Result<TlsConnector, CallError> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let native = rustls_native_certs::load_native_certs();
    let (added, unreadable) = roots.add_parsable_certificates(native.certs);
    tracing::debug!(added, unreadable, "the machine's root certificates");
    let provider = Arc::new(crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Checks a call and builds its request.
fn prepared(call: &OutgoingCall) -> Result<(Url, Request<Full<Bytes>>), CallError> {
    let url = Url::parse(&call.url).map_err(|error| refused(format!("url cannot be read: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refused("url is neither http nor https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused("url carries a username or a password: use a header"));
    }
    let host = url.host_str().ok_or_else(|| refused("url has no host"))?;
    let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let target = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    let body = call.body.clone().unwrap_or_default();
    let request = Request::builder().method(call.method.as_str()).uri(target).header(header::HOST, host);
    let mut request =
        request.body(Full::new(body)).map_err(|error| refused(format!("the call is not sound: {error}")))?;
    let headers = request.headers_mut();
    headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("isobar/", env!("CARGO_PKG_VERSION"))));
    headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if call.body.is_some() {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    for (name, value) in &call.headers {
        let sound = HeaderName::try_from(name.as_str()).ok().zip(HeaderValue::try_from(value.as_str()).ok());
        let (name, value) = sound.ok_or_else(|| refused(format!("the header {name:?} is not sound")))?;
        if OWN_HEADERS.contains(&name.as_str()) {
            return Err(refused(format!("the header {name} is not a design's to set")));
        }
        headers.insert(name, value);
    }
    Ok((url, request))
}

/// Connects to the first address that accepts a connection.
async fn connected(addresses: &[SocketAddr]) -> Result<TcpStream, CallError> {
    let mut last = "there is no address".to_owned();
    for address in addresses {
        match Clock::System.timeout(CONNECT_TIME, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error.to_string(),
            Err(_) => last = "the connection took too long".to_owned(),
        }
    }
    Err(CallError::Failed(format!("no connection: {last}")))
}

/// Sends the request and reads the answer, both whole.
async fn exchanged(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<CallAnswer, CallError> {
    let failed = |error: hyper::Error| CallError::Failed(error.to_string());
    let mut client = hyper::client::conn::http1::Builder::new();
    client.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
    let (mut sender, connection) = client.handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // Ends with this call, however it ends.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let response = sender.send_request(request).await.map_err(failed)?;
    received(response).await
}

async fn received(response: Response<Incoming>) -> Result<CallAnswer, CallError> {
    let (head, body) = response.into_parts();
    let text = |(name, value): (&HeaderName, &HeaderValue)| Some((name.to_string(), value.to_str().ok()?.to_owned()));
    let headers = head.headers.iter().filter_map(text).collect();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|error| {
        if error.downcast_ref::<LengthLimitError>().is_some() {
            return too_large();
        }
        let cause = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        CallError::Failed(format!("the answer broke off{cause}"))
    })?;
    let body = plain_body(&head.headers, body.to_bytes())?;
    Ok(CallAnswer { status: head.status.as_u16(), headers, body })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn call(url: &str) -> OutgoingCall {
        OutgoingCall { method: "GET".to_owned(), url: url.to_owned(), headers: Vec::new(), body: None }
    }

    fn calls(allow: &[&str]) -> Calls {
        Calls::new(&allow.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    /// Starts a server that gives everybody the same answer; returns its port and the count of its calls.
    async fn server(answer: impl Into<Vec<u8>>) -> (u16, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, answer) = (listener.local_addr().unwrap().port(), answer.into());
        let called = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&called);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let mut head = [0; 4096];
                let _ = stream.read(&mut head).await;
                let _ = stream.write_all(&answer).await;
            }
        });
        (port, called)
    }

    #[tokio::test]
    async fn allowed_address_is_called() {
        let (port, _) = server("HTTP/1.1 418 teapot\r\nX-Kind: pot\r\ncontent-length: 4\r\n\r\ntea!").await;
        let answer = calls(&["127.0.0.1"]).make(&call(&format!("http://127.0.0.1:{port}/a?b"))).await.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (418, &b"tea!"[..]));
        assert!(answer.headers.contains(&("x-kind".to_owned(), "pot".to_owned())));
        assert!(calls(&["localhost"]).make(&call(&format!("http://LocalHost:{port}/"))).await.is_ok());
    }

    #[tokio::test]
    async fn packed_answer_is_unpacked() {
        let (_, request) = prepared(&call("http://example.org/")).unwrap();
        assert_eq!(request.headers()[header::ACCEPT_ENCODING], "identity");
        // As `printf '{"a":1}' | gzip -n` gives it.
        let packed = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xabVJT\xb22\xac\x05\0\xaf\xac\x1bV\x07\0\0\0";
        let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", packed.len());
        let (port, _) = server([head.as_bytes(), packed].concat()).await;
        let answer = calls(&["127.0.0.1"]).make(&call(&format!("http://127.0.0.1:{port}/"))).await.unwrap();
        assert_eq!(&answer.body[..], b"{\"a\":1}");
    }

    #[tokio::test]
    async fn every_spelling_of_this_machine_is_refused() {
        let (port, called) = server("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        for host in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0x7f.0.0.1",
            "0177.0.0.1",
            "017700000001",
            "0.0.0.0",
            "0",
            "localhost",
            "LOCALHOST",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[0:0:0:0:0:0:0:1]",
            "[64:ff9b::127.0.0.1]",
            "①②⑦.⓪.⓪.①",
            "%31%32%37.0.0.1",
            "127.0.0.2",
        ] {
            let outcome = calls(&["10.0.0.0/8"]).make(&call(&format!("http://{host}:{port}/"))).await;
            assert!(matches!(outcome, Err(CallError::Refused(_))), "{host}: {outcome:?}");
        }
        assert_eq!(called.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn malformed_call_is_refused() {
        let all = calls(&["0.0.0.0/0"]);
        for url in [
            "",
            "nonsense",
            "ftp://1.1.1.1/",
            "file:///etc/passwd",
            "http://",
            "http://u:p@127.0.0.1/",
            "gopher://127.0.0.1",
        ] {
            assert!(matches!(all.make(&call(url)).await, Err(CallError::Refused(_))), "{url}");
        }
        for (name, value) in [("host", "a"), ("Transfer-Encoding", "chunked"), ("a b", "c"), ("a", "b\r\nc: d")] {
            let headers = vec![(name.to_owned(), value.to_owned())];
            let outcome = all.make(&OutgoingCall { headers, ..call("http://127.0.0.1:9/") }).await;
            assert!(matches!(outcome, Err(CallError::Refused(_))), "{name}");
        }
        let method = OutgoingCall { method: "GET / HTTP/1.1\r\nx".to_owned(), ..call("http://127.0.0.1:9/") };
        assert!(matches!(all.make(&method).await, Err(CallError::Refused(_))));
    }

    // Holds: c11.missing
    #[tokio::test]
    async fn redirect_is_not_followed() {
        let (port, called) = server("HTTP/1.1 302 Found\r\nlocation: /b\r\ncontent-length: 0\r\n\r\n").await;
        let answer = calls(&["127.0.0.1"]).make(&call(&format!("http://127.0.0.1:{port}/"))).await.unwrap();
        assert_eq!((answer.status, called.load(Ordering::SeqCst)), (302, 1));
    }

    #[tokio::test]
    async fn answer_above_the_limit_is_refused() {
        let mut answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec();
        answer.resize(answer.len() + BODY_BYTES_MAX + 1, b'x');
        let (port, _) = server(answer).await;
        let outcome = calls(&["127.0.0.1"]).make(&call(&format!("http://127.0.0.1:{port}/"))).await;
        assert_eq!(outcome, Err(refused("the answer is larger than 64 KiB")));
        let mut head = b"HTTP/1.1 200 OK\r\nx: ".to_vec();
        head.resize(4 * HEAD_BYTES_MAX, b'x');
        let (port, _) = server(head).await;
        let outcome = calls(&["127.0.0.1"]).make(&call(&format!("http://127.0.0.1:{port}/"))).await;
        assert!(matches!(outcome, Err(CallError::Failed(_))), "{outcome:?}");
    }

    #[tokio::test]
    async fn unreachable_server_is_a_failure_to_retry() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let outcome = calls(&["127.0.0.1"]).make(&call(&format!("http://127.0.0.1:{port}/"))).await;
        assert!(matches!(outcome, Err(CallError::Failed(_))), "{outcome:?}");
    }
}
