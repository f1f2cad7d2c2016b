//! `isobar login` and `logout`.

use std::io::IsTerminal as _;

use hyper::Method;
use hyper::header::AUTHORIZATION;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::json;

use super::caller::{ApiClient, only_isobar, refusal, session_of};
use super::credentials::{self, Credential, Login};
use super::failure::ClientError;
use super::http::{Call, HttpClient};
use super::{ServerOptions, print};
use crate::output;

/// Flags of `isobar login`.
#[derive(Debug, clap::Args)]
pub struct LoginOptions {
    #[command(flatten)]
    server: ServerOptions,
    /// Username or e-mail address; the password is asked for, or read from standard input
    #[arg(long, value_name = "NAME", required_unless_present = "api_key")]
    user: Option<String>,
    /// Sign in with an API key, which is asked for, or read from standard input
    #[arg(long, conflicts_with = "user")]
    api_key: bool,
}

/// Signs in and stores the credential.
pub async fn login(options: &LoginOptions) -> Result<bool, ClientError> {
    let address = options.server.server.clone();
    let address = address.ok_or_else(|| ClientError::Local("name the server: --url URL or ISOBAR_URL".to_owned()))?;
    let http = options.server.http(&address)?;
    let credential = match &options.user {
        Some(user) => by_password(&http, user, &secret("Password: ")?).await?,
        None => by_key(&http, secret("API key: ")?).await?,
    };
    let path = credentials::save(&Login { server: address.to_string(), credential })?;
    print(&format!("Signed in at {address}; stored in {}.\n", path.display()))?;
    Ok(true)
}

async fn by_password(http: &HttpClient, user: &str, password: &str) -> Result<Credential, ClientError> {
    let body = json!({"usernameOrEmail": user, "password": password}).to_string();
    let answer = http.call(&Call::new(Method::POST, "/v2/auth/login")?.with_json(body)).await?;
    session_of(&only_isobar(&http.address, answer)?, None)
}

async fn by_key(http: &HttpClient, key: String) -> Result<Credential, ClientError> {
    let call = Call::new(Method::GET, "/v2/auth/user")?.with_header(AUTHORIZATION, &key)?;
    let answer = only_isobar(&http.address, http.call(&call).await?)?;
    if answer.status.is_success() { Ok(Credential::ApiKey(key)) } else { Err(refusal(&answer)) }
}

/// Ends the session at the server and removes it here. A stored API key stays valid at the server.
pub async fn logout(options: &ServerOptions) -> Result<bool, ClientError> {
    let Some(login) = credentials::load()? else {
        print("There is no login.\n")?;
        return Ok(true);
    };
    let ended = match login.credential {
        Credential::Session { .. } => end_session(options).await,
        Credential::ApiKey(_) => Ok(()),
    };
    credentials::remove()?;
    match ended {
        // The session has ended already.
        Ok(()) | Err(ClientError::Credentials(_)) => print("Signed out.\n").map(|()| true),
        Err(error) => Err(error),
    }
}

async fn end_session(options: &ServerOptions) -> Result<(), ClientError> {
    let call = Call::new(Method::POST, "/v2/auth/logout")?;
    ApiClient::of_login(options)?.call(call).await.map(drop)
}

/// Asks for a secret without echo; without a terminal, reads the first line of standard input.
fn secret(question: &str) -> Result<String, ClientError> {
    let input = std::io::stdin();
    let unreadable = |error: &dyn std::fmt::Display| ClientError::Local(format!("cannot read the secret: {error}"));
    let mut line = String::new();
    if input.is_terminal() {
        let before = tcgetattr(&input).map_err(|error| unreadable(&error))?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        output::note_with(question, "");
        tcsetattr(&input, OptionalActions::Now, &quiet).map_err(|error| unreadable(&error))?;
        let read = input.read_line(&mut line);
        let _ = tcsetattr(&input, OptionalActions::Now, &before);
        output::note("");
        read.map_err(|error| unreadable(&error))?;
    } else {
        input.read_line(&mut line).map_err(|error| unreadable(&error))?;
    }
    let secret = line.trim_end_matches(['\n', '\r']).to_owned();
    if secret.is_empty() { Err(unreadable(&"it is empty")) } else { Ok(secret) }
}
