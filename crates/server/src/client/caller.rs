//! Authenticated calls: renews an expired session, and turns refusals into sentences.

use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderMap, SET_COOKIE};
use hyper::{Method, Response, StatusCode};
use isobar_model::quote::quote;
use serde_json::Value;

use super::ServerOptions;
use super::credentials::{self, Credential, Login};
use super::failure::ClientError;
use super::http::{Address, Call, HttpClient, ServerReply};

/// The cookie with the refresh token.
const REFRESH_COOKIE: &str = "refreshToken=";
/// Most faults of a refusal that are shown.
const FAULTS_SHOWN_MAX: usize = 100;

/// A server with the caller's credential.
pub struct ApiClient {
    /// The HTTP client.
    pub http: HttpClient,
    credential: Credential,
    is_stored: bool,
}

impl ApiClient {
    /// Finds server and credential: the environment's key first, then the login. Credentials of a login are sent to its
    /// server only.
    pub fn find(options: &ServerOptions) -> Result<Self, ClientError> {
        let key = credentials::environment_key();
        let login = if key.is_some() && options.server.is_some() { None } else { credentials::load()? };
        let stored: Option<Address> = login.as_ref().and_then(|login| login.server.parse().ok());
        let address = options.server.clone().or_else(|| stored.clone()).ok_or_else(|| {
            ClientError::Credentials("no server is known: run isobar login, or set ISOBAR_URL".to_owned())
        })?;
        let of_login = login.filter(|_| stored.as_ref() == Some(&address)).map(|login| login.credential);
        let is_stored = key.is_none();
        let credential = key.map(Credential::ApiKey).or(of_login).ok_or_else(|| {
            let told = format!("no login at {address}: run isobar login --server {address}, or set ISOBAR_API_KEY");
            ClientError::Credentials(told)
        })?;
        Ok(Self { http: options.http(&address)?, credential, is_stored })
    }

    /// Uses server and credential of the login, regardless of the environment.
    pub fn of_login(options: &ServerOptions) -> Result<Self, ClientError> {
        let login = credentials::load()?.ok_or_else(|| ClientError::Credentials("there is no login".to_owned()))?;
        let address: Address = login.server.parse().map_err(ClientError::Local)?;
        Ok(Self { http: options.http(&address)?, credential: login.credential, is_stored: true })
    }

    /// Makes a call and returns a successful answer.
    pub async fn call(&mut self, call: Call) -> Result<ServerReply, ClientError> {
        let answer = self.call_any(call).await?;
        if answer.status.is_success() { Ok(answer) } else { Err(refusal(&answer)) }
    }

    /// Makes a call and returns the answer of an Isobar, whatever its status.
    pub async fn call_any(&mut self, call: Call) -> Result<ServerReply, ClientError> {
        let answer = self.http.call(&self.with_credential(call.clone())?).await?;
        let is_session = matches!(self.credential, Credential::Session { .. });
        let answer = if answer.status == StatusCode::UNAUTHORIZED && is_session {
            self.renew().await?;
            self.http.call(&self.with_credential(call)?).await?
        } else {
            answer
        };
        only_isobar(&self.http.address, answer)
    }

    /// Makes a call whose answer is streamed. Never retries.
    pub async fn open(&mut self, call: Call) -> Result<Response<Incoming>, ClientError> {
        let mut response = self.http.open(&self.with_credential(call.clone())?).await?;
        if response.status() == StatusCode::UNAUTHORIZED && matches!(self.credential, Credential::Session { .. }) {
            self.renew().await?;
            response = self.http.open(&self.with_credential(call)?).await?;
        }
        if response.status().is_success() {
            return Ok(response);
        }
        Err(refusal(&only_isobar(&self.http.address, self.http.read(response).await?)?))
    }

    fn with_credential(&self, call: Call) -> Result<Call, ClientError> {
        match &self.credential {
            Credential::ApiKey(key) => call.with_header(AUTHORIZATION, key),
            Credential::Session { access_token, refresh_token } => {
                let call = call.with_header(AUTHORIZATION, &format!("Bearer {access_token}"))?;
                // Only on the paths of the cookie, as a browser does: a logout ends the session of the cookie.
                let takes_cookie = call.path.path().starts_with("/v2/auth/");
                if takes_cookie {
                    call.with_header(COOKIE, &format!("{REFRESH_COOKIE}{refresh_token}"))
                } else {
                    Ok(call)
                }
            }
        }
    }

    async fn renew(&mut self) -> Result<(), ClientError> {
        let Credential::Session { refresh_token, .. } = &self.credential else { return Ok(()) };
        let cookie = format!("{REFRESH_COOKIE}{refresh_token}");
        let call = Call::new(Method::GET, "/v2/auth/refreshToken")?.with_header(COOKIE, &cookie)?;
        let answer = only_isobar(&self.http.address, self.http.call(&call).await?)?;
        if answer.status == StatusCode::UNAUTHORIZED {
            return Err(ClientError::Credentials("the session has ended: run isobar login again".to_owned()));
        }
        self.credential = session_of(&answer, Some(refresh_token))?;
        if self.is_stored {
            let server = self.http.address.to_string();
            credentials::save(&Login { server, credential: self.credential.clone() })?;
        }
        Ok(())
    }
}

/// Reads the session in an answer to a login or renewal.
pub fn session_of(answer: &ServerReply, old: Option<&str>) -> Result<Credential, ClientError> {
    if !answer.status.is_success() {
        return Err(refusal(answer));
    }
    let read: Option<Value> = serde_json::from_slice(&answer.body).ok();
    let access_token = read.as_ref().and_then(|body| body.get("jwtToken")?.as_str());
    let refresh_token = refresh_token(&answer.headers).or_else(|| old.map(str::to_owned));
    match (access_token, refresh_token) {
        (Some(access), Some(refresh_token)) => {
            Ok(Credential::Session { access_token: access.to_owned(), refresh_token })
        }
        _ => Err(ClientError::Unreachable("the answer to the login holds no session".to_owned())),
    }
}

fn refresh_token(headers: &HeaderMap) -> Option<String> {
    headers.get_all(SET_COOKIE).iter().find_map(|cookie| {
        let value = cookie.to_str().ok()?.strip_prefix(REFRESH_COOKIE)?;
        value.split(';').next().filter(|value| !value.is_empty()).map(str::to_owned)
    })
}

/// Returns the answer if it may be an Isobar's; fails with advice otherwise.
pub fn only_isobar(address: &Address, answer: ServerReply) -> Result<ServerReply, ClientError> {
    let status = answer.status;
    let kind = answer.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_page = kind.starts_with("text/html");
    let is_strange_error = !status.is_success() && status != StatusCode::NOT_MODIFIED && message_of(&answer).is_none();
    if !is_page && !is_strange_error {
        return Ok(answer);
    }
    let hint = if status.is_redirection() {
        "it sends elsewhere: is it https, or another address?"
    } else {
        "is the address that of the server, and does the proxy before it reach it?"
    };
    let told = format!("{address} answered {} with something that is not from Isobar: {hint}", status.as_u16());
    Err(ClientError::Unreachable(told))
}

fn message_of(answer: &ServerReply) -> Option<Value> {
    serde_json::from_slice(&answer.body).ok().filter(|body: &Value| body.get("message").is_some_and(Value::is_string))
}

/// Converts a refusal into an error.
pub fn refusal(answer: &ServerReply) -> ClientError {
    let body = message_of(answer).unwrap_or_default();
    let mut told = match body.get("message").and_then(Value::as_str) {
        Some(message) => format!("{} ({})", quote(message), answer.status.as_u16()),
        None => format!("{} {}", answer.status, quote(&String::from_utf8_lossy(&answer.body))),
    };
    let faults = body.get("errors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for fault in faults.iter().take(FAULTS_SHOWN_MAX) {
        let part = |name: &str| quote(fault.get(name).and_then(Value::as_str).unwrap_or_default());
        told.push_str(&format!("\n  {}: {}", part("field"), part("message")));
    }
    if faults.len() > FAULTS_SHOWN_MAX {
        told.push_str(&format!("\n  and {} more", faults.len() - FAULTS_SHOWN_MAX));
    }
    match answer.status {
        StatusCode::UNAUTHORIZED => ClientError::Credentials(format!("the server refuses the credentials: {told}")),
        StatusCode::PRECONDITION_FAILED => ClientError::Changed(format!("somebody else was faster: {told}")),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => ClientError::Unreachable(told),
        _ => ClientError::Refused(told),
    }
}
