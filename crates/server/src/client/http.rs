//! Calls over HTTP/1.1, with TLS if the URL asks for it: timeouts, and retries of idempotent calls.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use isobar_model::time::Clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::failure::ClientError;

/// Largest answer, in bytes: a page holds at most 64 MiB of values.
const REPLY_BYTES_MAX: usize = 128 << 20;
/// Most attempts of a retried call.
const CALL_ATTEMPTS_MAX: u32 = 5;
/// Longest pause that a server may ask for, longer than a window of the rate limit.
const PAUSE_MAX: Duration = Duration::from_secs(90);

/// The address of a server: `http[s]://HOST[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    is_tls: bool,
    authority: String,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (is_tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err("must begin with https:// or http://".to_owned()),
        };
        let authority = rest.trim_end_matches('/').trim_end_matches("/v2");
        let read: hyper::http::uri::Authority =
            authority.parse().map_err(|_| "must be like https://iot.example.com".to_owned())?;
        if read.host().is_empty() || authority.contains('@') {
            return Err("must be like https://iot.example.com, without credentials".to_owned());
        }
        Ok(Self { is_tls, authority: authority.to_ascii_lowercase() })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", if self.is_tls { "https" } else { "http" }, self.authority)
    }
}

impl Address {
    /// Returns the host for TLS, and host and port for the resolver.
    fn target(&self) -> (&str, String) {
        let port = if self.is_tls { 443 } else { 80 };
        let (host, has_port) = match self.authority.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() => (host, true),
            _ => (self.authority.as_str(), false),
        };
        let place = if has_port { self.authority.clone() } else { format!("{}:{port}", self.authority) };
        (host.trim_start_matches('[').trim_end_matches(']'), place)
    }
}

/// A call without credentials.
#[derive(Clone, Debug)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: Uri,
    /// Headers beside those of every call.
    pub headers: HeaderMap,
    /// The body, which is JSON.
    pub body: Option<Bytes>,
    /// True if the call is idempotent.
    pub is_repeatable: bool,
}

impl Call {
    /// Makes a call without a body. Fails if the path is invalid.
    pub fn new(method: Method, path: &str) -> Result<Self, ClientError> {
        let is_repeatable = method == Method::GET || method == Method::HEAD;
        let path = Some(path)
            .filter(|path| path.starts_with('/'))
            .and_then(|path| path.parse().ok())
            .ok_or_else(|| ClientError::Local(format!("the path {path:?} must begin with / and be percent-encoded")))?;
        Ok(Self { method, path, headers: HeaderMap::new(), body: None, is_repeatable })
    }

    /// Adds a body of JSON.
    pub fn with_json(mut self, body: impl Into<Bytes>) -> Self {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.body = Some(body.into());
        self
    }

    /// Sets a header. Fails on characters that a header cannot have; the error does not quote the value.
    pub fn with_header(mut self, name: HeaderName, value: &str) -> Result<Self, ClientError> {
        let value = HeaderValue::from_str(value.trim())
            .map_err(|_| ClientError::Local(format!("the value of {name} has characters that no header has")))?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Marks the call as idempotent, whatever its method.
    pub fn repeatable(mut self) -> Self {
        self.is_repeatable = true;
        self
    }
}

/// Appends percent-encoded parameters to a path.
pub fn with_query(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut out = path.to_owned();
    for (index, (name, value)) in parameters.iter().enumerate() {
        out.push(if index == 0 { '?' } else { '&' });
        encode(name, &mut out);
        out.push('=');
        encode(value, &mut out);
    }
    out
}

fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b',' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// A complete answer.
#[derive(Debug)]
pub struct ServerReply {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// A client of one server.
pub struct HttpClient {
    /// The server's address.
    pub address: Address,
    tls: Option<TlsConnector>,
    timeout: Duration,
    /// The clock of timeouts and pauses.
    pub clock: Clock,
}

impl HttpClient {
    /// Makes a client; reads certificates if the address needs TLS.
    pub fn new(address: Address, ca: Option<&Path>, timeout: Duration, clock: Clock) -> Result<Self, ClientError> {
        let tls = if address.is_tls { Some(connector(ca)?) } else { None };
        Ok(Self { address, tls, timeout, clock })
    }

    /// Makes a call. Retries it if that is harmless and the server was busy or the connection broke.
    pub async fn call(&self, call: &Call) -> Result<ServerReply, ClientError> {
        let mut attempt = 1;
        loop {
            let outcome = self.attempt(call).await;
            let pause = match &outcome {
                Ok(answer) if [429, 503].contains(&answer.status.as_u16()) => pause_of(answer, attempt),
                // A wrong address fails at once; a server that answered before may be back soon.
                Err(ClientError::Unreachable(_)) if attempt > 1 => backoff(attempt),
                _ => return outcome,
            };
            // A call beyond the rate limit had no effect.
            let is_harmless = call.is_repeatable || matches!(&outcome, Ok(answer) if answer.status.as_u16() == 429);
            if !is_harmless || attempt == CALL_ATTEMPTS_MAX || pause > PAUSE_MAX {
                return outcome;
            }
            attempt += 1;
            self.clock.sleep(pause).await;
        }
    }

    /// Makes a call once and returns the answer with its body unread; the timeout is for the head only.
    pub async fn open(&self, call: &Call) -> Result<Response<Incoming>, ClientError> {
        self.in_time(self.send(call)).await
    }

    /// Reads the body of an answer.
    pub async fn read(&self, response: Response<Incoming>) -> Result<ServerReply, ClientError> {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, REPLY_BYTES_MAX).collect().await.map_err(|error| self.broken(&error))?;
        Ok(ServerReply { status: head.status, headers: head.headers, body: body.to_bytes() })
    }

    /// Makes the error of a broken connection.
    pub fn broken(&self, error: &dyn std::fmt::Display) -> ClientError {
        ClientError::Unreachable(format!("the connection to {} broke: {error}", self.address))
    }

    async fn attempt(&self, call: &Call) -> Result<ServerReply, ClientError> {
        self.in_time(async { self.read(self.send(call).await?).await }).await
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
        let seconds = self.timeout.as_secs();
        let late = |_| ClientError::Unreachable(format!("{} gave no answer within {seconds} s", self.address));
        self.clock.timeout(self.timeout, work).await.map_err(late)?
    }

    async fn send(&self, call: &Call) -> Result<Response<Incoming>, ClientError> {
        let (host, place) = self.address.target();
        let stream = TcpStream::connect(&place).await.map_err(|error| {
            ClientError::Unreachable(format!("cannot connect to {}: {error}; is the address right?", self.address))
        })?;
        let Some(tls) = &self.tls else { return self.exchange(stream, call).await };
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| ClientError::Unreachable(format!("{host} is no name that a certificate can have")))?;
        let stream = tls.connect(name, stream).await.map_err(|error| {
            let hint = "with a certificate of your own, name its authority with --ca";
            ClientError::Unreachable(format!("cannot speak TLS with {}: {error}; {hint}", self.address))
        })?;
        self.exchange(stream, call).await
    }

    async fn exchange<S>(&self, stream: S, call: &Call) -> Result<Response<Incoming>, ClientError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| self.broken(&error))?;
        // The task ends with the connection; the request gets its error.
        tokio::spawn(connection);
        sender.send_request(self.request(call)?).await.map_err(|error| self.broken(&error))
    }

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>, ClientError> {
        let host = HeaderValue::from_str(&self.address.authority)
            .map_err(|_| ClientError::Local("the server's address is none".to_owned()))?;
        let mut request = Request::new(Full::new(call.body.clone().unwrap_or_default()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = call.path.clone();
        *request.headers_mut() = call.headers.clone();
        request.headers_mut().insert(HOST, host);
        Ok(request)
    }
}

fn connector(ca: Option<&Path>) -> Result<TlsConnector, ClientError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = ca {
        let unreadable = |error: &dyn std::fmt::Display| {
            ClientError::Local(format!("cannot read certificates from {}: {error}", file.display()))
        };
        let before = roots.len();
        for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unreadable(&error))? {
            let certificate = certificate.map_err(|error| unreadable(&error))?;
            roots.add(certificate).map_err(|error| unreadable(&error))?;
        }
        if roots.len() == before {
            return Err(unreadable(&"it holds none"));
        }
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError::Local(format!("cannot set up TLS: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn pause_of(answer: &ServerReply, attempt: u32) -> Duration {
    let asked = answer.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    asked.map_or(Duration::ZERO, Duration::from_secs).max(backoff(attempt))
}

fn backoff(attempt: u32) -> Duration {
    Duration::from_millis(250 << attempt.min(5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_percent_encoded() {
        assert_eq!(with_query("/v2/x", &[("a[b]", "1"), ("c", "ü &=")]), "/v2/x?a%5Bb%5D=1&c=%C3%BC%20%26%3D");
    }

    #[test]
    fn address_with_more_than_scheme_host_and_port_is_refused() {
        let target = |text: &str| text.parse::<Address>().map(|address| address.target().1);
        assert_eq!(target("https://iot.example.com/"), Ok("iot.example.com:443".to_owned()));
        assert_eq!(target("http://127.0.0.1:8080/v2"), Ok("127.0.0.1:8080".to_owned()));
        assert_eq!(target("http://[::1]"), Ok("[::1]:80".to_owned()));
        for wrong in ["iot.example.com", "ftp://x", "https://", "https://a:b@c", "http://x/y"] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }
}
