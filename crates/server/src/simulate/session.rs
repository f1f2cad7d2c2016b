//! Calls as a user: logs in, renews the token before it expires, and waits if the server asks for it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use hyper::{Method, StatusCode, Uri};
use isobar_model::quote::quote;
use isobar_model::time::Clock;
use serde_json::Value;

use super::client::{Answer, Connection, NoAnswer, ServerUrl};

/// Age at which a token, which lives 15 minutes, is renewed.
const TOKEN_LIFE: Duration = Duration::from_secs(10 * 60);
/// Attempts of a call if the server is busy or unreachable.
const ATTEMPTS_MAX: u32 = 8;
/// Longest single wait for a rate window or a busy server.
const WAIT_SECONDS_MAX: i64 = 120;

/// The credential of calls.
#[derive(Clone)]
pub enum Credentials {
    /// Username and password.
    Password { user: String, password: String },
    /// An API key.
    ApiKey(String),
}

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server refused.
    #[error("{method} {path} answers {status}: {body}")]
    Refused {
        /// The method.
        method: Method,
        /// The path.
        path: String,
        /// The status.
        status: StatusCode,
        /// The body.
        body: String,
    },
    /// There was no answer.
    #[error("{server}: {cause}")]
    NoAnswer {
        /// The server's address.
        server: String,
        /// The cause.
        #[source]
        cause: NoAnswer,
    },
    /// The answer lacks a member.
    #[error("{method} {path}: the answer holds no {member}")]
    Incomplete {
        /// The method.
        method: Method,
        /// The path.
        path: String,
        /// The missing member.
        member: &'static str,
    },
    /// The password or key cannot be a header.
    #[error("the API key or token holds characters that a header cannot carry")]
    NoHeader,
    /// The identifier cannot be part of a path.
    #[error("{0} is no path")]
    NoPath(String),
}

/// A user's connection.
pub struct Session {
    server: ServerUrl,
    connection: Connection,
    credentials: Credentials,
    header: Option<(HeaderName, HeaderValue)>,
    since: Instant,
    clock: Clock,
}

impl Session {
    /// Makes a session that logs in with its first call.
    pub fn new(server: &ServerUrl, credentials: &Credentials, clock: &Clock) -> Self {
        Self {
            server: server.clone(),
            connection: Connection::to(server, clock),
            credentials: credentials.clone(),
            header: None,
            since: clock.instant(),
            clock: clock.clone(),
        }
    }

    /// Makes a call and parses the answer's JSON; `null` without a body. Any status but 2xx is an error.
    pub async fn call(&mut self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, CallError> {
        let credential = self.credential().await?;
        match self.ask(Some(&credential), &method, path, body).await {
            Err(CallError::Refused { status: StatusCode::UNAUTHORIZED, .. }) => {
                self.header = None;
                let credential = self.credential().await?;
                self.ask(Some(&credential), &method, path, body).await
            }
            outcome => outcome,
        }
    }

    /// Makes a call and returns texts in the answer.
    pub async fn call_for<const N: usize>(
        &mut self,
        method: Method,
        path: &str,
        body: &Value,
        members: [&'static str; N],
    ) -> Result<[String; N], CallError> {
        let answer = self.call(method.clone(), path, Some(body)).await?;
        texts(&answer, &method, path, members)
    }

    /// Makes a call with or without a credential, and retries while the server is busy or unreachable.
    async fn ask(
        &mut self,
        credential: Option<&(HeaderName, HeaderValue)>,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, CallError> {
        let body = body.map(|body| Bytes::from(body.to_string()));
        let uri: Uri = path.parse().map_err(|_| CallError::NoPath(path.to_owned()))?;
        let credential = credential.map(|(name, value)| (name, value));
        let mut attempt = 0;
        loop {
            attempt += 1;
            match self.connection.call(method, &uri, credential, body.clone()).await {
                Ok(answer) if is_temporary(answer.status) && attempt < ATTEMPTS_MAX => {
                    self.wait_for(&answer).await;
                }
                Ok(answer) if answer.status.is_success() => {
                    return Ok(serde_json::from_slice(&answer.body).unwrap_or_default());
                }
                Ok(Answer { status, body, .. }) => {
                    let body = quote(&String::from_utf8_lossy(&body));
                    return Err(CallError::Refused { method: method.clone(), path: path.to_owned(), status, body });
                }
                // Without an answer a write may have happened: only reads and deletions are retried.
                Err(_) if attempt < ATTEMPTS_MAX && *method != Method::POST => self.pause(attempt).await,
                Err(cause) => return Err(CallError::NoAnswer { server: self.server.to_string(), cause }),
            }
        }
    }

    async fn credential(&mut self) -> Result<(HeaderName, HeaderValue), CallError> {
        match &self.header {
            Some(header) if self.clock.elapsed(self.since) < TOKEN_LIFE => return Ok(header.clone()),
            _ => {}
        }
        let (name, text) = match self.credentials.clone() {
            // Proxies may drop headers with underscores.
            Credentials::ApiKey(key) => (AUTHORIZATION, key),
            Credentials::Password { user, password } => {
                const PATH: &str = "/v2/auth/login";
                let body = serde_json::json!({"usernameOrEmail": user, "password": password});
                let answer = self.ask(None, &Method::POST, PATH, Some(&body)).await?;
                let [token] = texts(&answer, &Method::POST, PATH, ["jwtToken"])?;
                (AUTHORIZATION, format!("Bearer {token}"))
            }
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| CallError::NoHeader)?;
        value.set_sensitive(true);
        self.since = self.clock.instant();
        Ok(self.header.insert((name, value)).clone())
    }

    /// Waits as long as `retry-after` says.
    async fn wait_for(&self, answer: &Answer) {
        let seconds = answer.number("retry-after").unwrap_or(1).clamp(1, WAIT_SECONDS_MAX);
        self.clock.sleep(Duration::from_secs(seconds.unsigned_abs())).await;
    }

    async fn pause(&self, attempt: u32) {
        self.clock.sleep(Duration::from_millis(100 << attempt.min(5))).await;
    }
}

/// Returns members of an answer that must be texts.
fn texts<const N: usize>(
    answer: &Value,
    method: &Method,
    path: &str,
    members: [&'static str; N],
) -> Result<[String; N], CallError> {
    let mut found = [const { String::new() }; N];
    for (member, into) in members.into_iter().zip(&mut found) {
        let missing = || CallError::Incomplete { method: method.clone(), path: path.to_owned(), member };
        *into = answer[member].as_str().ok_or_else(missing)?.to_owned();
    }
    Ok(found)
}

fn is_temporary(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
}
