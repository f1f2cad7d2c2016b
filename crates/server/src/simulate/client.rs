//! A small HTTP/1.1 client with one persistent connection, reopened when lost.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use isobar_model::time::Clock;
use tokio::net::TcpStream;

/// Timeout of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The address of the server: `http://HOST[:PORT]`.
#[derive(Clone, Debug)]
pub struct ServerUrl {
    authority: Arc<str>,
    host: HeaderValue,
}

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let rest =
            url.strip_prefix("http://").ok_or("must begin with http:// (for https, run it beside the server)")?;
        let plain = rest.trim_end_matches('/').trim_end_matches("/v2");
        let host = HeaderValue::from_str(plain).map_err(|_| "is no address")?;
        if plain.is_empty() || plain.contains('/') {
            return Err("must be like http://127.0.0.1:8080".to_owned());
        }
        let has_port = plain.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { plain.into() } else { format!("{plain}:80").into() };
        Ok(Self { authority, host })
    }
}

impl std::fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// The connection was refused, or the address is wrong.
    #[error("cannot connect: {0}")]
    Connect(#[source] std::io::Error),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(#[from] hyper::Error),
    /// The timeout has passed.
    #[error("no answer within {} s", ANSWER_TIMEOUT.as_secs())]
    Late,
    /// The body could not be read.
    #[error("the answer cannot be read: {0}")]
    Unreadable(Box<dyn std::error::Error + Send + Sync>),
}

impl NoAnswer {
    /// Returns the error's kind for a table.
    pub fn kind(&self) -> &'static str {
        match self {
            NoAnswer::Connect(_) => "no connection",
            NoAnswer::Broken(_) | NoAnswer::Unreadable(_) => "broken connection",
            NoAnswer::Late => "timeout",
        }
    }
}

/// A complete answer.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Answer {
    /// Returns the number in a header.
    pub fn number(&self, header: &str) -> Option<i64> {
        self.headers.get(header)?.to_str().ok()?.parse().ok()
    }
}

/// A connection, opened on first use.
pub struct Connection {
    server: ServerUrl,
    sender: Option<SendRequest<Full<Bytes>>>,
    clock: Clock,
}

impl Connection {
    /// Makes a connection to this server.
    pub fn to(server: &ServerUrl, clock: &Clock) -> Self {
        Self { server: server.clone(), sender: None, clock: clock.clone() }
    }

    /// Sends a request and reads the answer.
    pub async fn call(
        &mut self,
        method: &Method,
        path: &Uri,
        credential: Option<(&HeaderName, &HeaderValue)>,
        body: Option<Bytes>,
    ) -> Result<Answer, NoAnswer> {
        let request = self.server.request(method, path, credential, body);
        let clock = self.clock.clone();
        let outcome = clock.timeout(ANSWER_TIMEOUT, self.call_untimed(request)).await;
        let outcome = outcome.unwrap_or(Err(NoAnswer::Late));
        if outcome.is_err() {
            self.sender = None;
        }
        outcome
    }

    async fn call_untimed(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, NoAnswer> {
        let was_open = self.sender.is_some();
        match self.send(request.clone()).await {
            // The server closed an idle connection: the request was not sent, and may be retried.
            Err(NoAnswer::Broken(error)) if was_open && error.is_canceled() => {
                self.sender = None;
                self.send(request).await
            }
            outcome => outcome,
        }
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, NoAnswer> {
        let sender = match &mut self.sender {
            Some(open) if !open.is_closed() => open,
            lost => lost.insert(open(&self.server).await?),
        };
        sender.ready().await?;
        read(sender.send_request(request).await?).await
    }
}

async fn open(server: &ServerUrl) -> Result<SendRequest<Full<Bytes>>, NoAnswer> {
    let stream = TcpStream::connect(&*server.authority).await.map_err(NoAnswer::Connect)?;
    stream.set_nodelay(true).map_err(NoAnswer::Connect)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // The task ends with the connection; the current request gets its error.
    tokio::spawn(connection);
    Ok(sender)
}

async fn read(response: hyper::Response<Incoming>) -> Result<Answer, NoAnswer> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(NoAnswer::Unreadable)?.to_bytes();
    Ok(Answer { status: head.status, headers: head.headers, body })
}

impl ServerUrl {
    fn request(
        &self,
        method: &Method,
        path: &Uri,
        credential: Option<(&HeaderName, &HeaderValue)>,
        body: Option<Bytes>,
    ) -> Request<Full<Bytes>> {
        let has_body = body.is_some();
        let mut request = Request::new(Full::new(body.unwrap_or_default()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = path.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        if has_body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some((name, value)) = credential {
            headers.insert(name, value.clone());
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let authority = |url: &str| url.parse::<ServerUrl>().map(|server| server.authority.to_string());
        assert_eq!(authority("http://127.0.0.1:8080/"), Ok("127.0.0.1:8080".to_owned()));
        assert_eq!(authority("http://iot.local/v2"), Ok("iot.local:80".to_owned()));
        assert_eq!(authority("http://[::1]:9"), Ok("[::1]:9".to_owned()));
        assert!(authority("https://x").is_err() && authority("x:80").is_err() && authority("http://x/y/z").is_err());
    }
}
