//! HTTP to a bucket: one connection per request, as a request is a part of a backup or small.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use isobar_model::quote::quote;
use isobar_model::time::Clock;
use isobar_outlets::calls;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpService,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// Timeout of connecting.
const BUCKET_CONNECT_TIME: Duration = Duration::from_secs(10);
/// Largest answer that is read, in bytes: a piece of an object, or a list.
const BUCKET_ANSWER_BYTES_MAX: usize = 64 << 20;
/// Largest part of a refusal that is read, in bytes.
const REFUSAL_BYTES_MAX: usize = 8 << 10;

/// A client whose requests have a timeout.
#[derive(Clone)]
pub struct Wire {
    tls: TlsConnector,
    request_time: Duration,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("request_time", &self.request_time).finish_non_exhaustive()
    }
}

impl Wire {
    /// Makes a client with the trusted roots of outgoing calls.
    pub fn new(request_time: Duration) -> Result<Self, calls::CallError> {
        Ok(Self { tls: calls::tls()?, request_time })
    }

    async fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (mut parts, body) = request.into_parts();
        let uri = std::mem::take(&mut parts.uri);
        let host = uri.host().ok_or_else(|| broken(HttpErrorKind::Unknown, "the address has no host"))?;
        let is_secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        if let Some(authority) = uri.authority()
            && let Ok(value) = HeaderValue::from_str(authority.as_str())
        {
            parts.headers.entry(HOST).or_insert(value);
        }
        parts.uri = uri.path_and_query().map_or_else(Uri::default, |target| Uri::from(target.clone()));
        let request = Request::from_parts(parts, body);
        let host = host.trim_matches(['[', ']']);
        let stream = timely(TcpStream::connect((host, port))).await?;
        if !is_secure {
            return answered(stream, request).await;
        }
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        answered(timely(self.tls.connect(name, stream)).await?, request).await
    }
}

impl HttpConnector for Wire {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Wire {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        match Clock::System.timeout(self.request_time, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_) => {
                let told = format!("no answer within {} s", self.request_time.as_secs_f64());
                Err(broken(HttpErrorKind::Timeout, &told))
            }
        }
    }
}

fn broken(kind: HttpErrorKind, told: &str) -> HttpError {
    HttpError::new(kind, io::Error::other(told.to_owned()))
}

/// Awaits a connection, with a timeout; callers retry.
async fn timely<T>(connecting: impl Future<Output = io::Result<T>>) -> Result<T, HttpError> {
    let connected = Clock::System.timeout(BUCKET_CONNECT_TIME, connecting).await;
    let connected = connected.unwrap_or_else(|_| Err(io::Error::from(ErrorKind::TimedOut)));
    connected.map_err(|error| HttpError::new(HttpErrorKind::Connect, error))
}

/// Sends a request and reads its answer, both whole, but only the beginning of a refusal.
async fn answered(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<HttpRequestBody>,
) -> Result<HttpResponse, HttpError> {
    let cut = |error: hyper::Error| HttpError::new(HttpErrorKind::Interrupted, error);
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(cut)?;
    // Ends with this request, however it ends.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let (head, body) = sender.send_request(request).await.map_err(cut)?.into_parts();
    if head.status.is_client_error() || head.status.is_server_error() {
        return Ok(HttpResponse::from_parts(head, refusal_of(body).await.into()));
    }
    let body = Limited::new(body, BUCKET_ANSWER_BYTES_MAX).collect().await;
    let body: Bytes = body
        .map_err(|error: Box<dyn Error + Send + Sync>| HttpError::new_boxed(HttpErrorKind::Interrupted, error))?
        .to_bytes();
    Ok(HttpResponse::from_parts(head, body.into()))
}

/// Reads the beginning of a refusal, without the declaration of its XML. Errors quote no more, and what breaks it off later
/// does not matter.
async fn refusal_of(mut body: Incoming) -> String {
    let mut begin = Vec::new();
    while begin.len() < REFUSAL_BYTES_MAX
        && let Some(Ok(frame)) = body.frame().await
    {
        begin.extend_from_slice(frame.data_ref().map_or(&[], |bytes| bytes));
    }
    begin.truncate(REFUSAL_BYTES_MAX);
    let text = String::from_utf8_lossy(&begin);
    let told = text.strip_prefix("<?xml").and_then(|rest| rest.split_once("?>")).map_or(&*text, |(_, told)| told);
    quote(told)
}
