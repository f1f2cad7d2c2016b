//! `isobar api`: any call of the API.

use std::path::PathBuf;

use hyper::Method;
use hyper::header::HeaderName;

use super::caller::{ApiClient, refusal};
use super::failure::ClientError;
use super::http::Call;
use super::json_text::indent;
use super::{ServerOptions, print, read_file};

/// Writes that the server does once per key.
const KEYED_PATHS: [&str; 2] = ["/v2/events/device", "/v2/events/cloud"];

/// Flags of `isobar api`.
#[derive(Debug, clap::Args)]
pub struct ApiOptions {
    /// GET, POST, PUT, PATCH or DELETE
    method: Method,
    /// Path and query, like /v2/devices?limit=10
    path: String,
    /// The body, as JSON
    #[arg(long, value_name = "JSON", conflicts_with = "file")]
    body: Option<String>,
    /// File that holds the body; - is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Makes a repetition of an event harmless; the call is then repeated where the server is busy
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Print the answer as it came, on as few lines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerOptions,
}

/// Makes the call and prints the body of the answer, also that of a refusal.
pub async fn run(options: &ApiOptions) -> Result<bool, ClientError> {
    let mut call = Call::new(options.method.clone(), &options.path)?;
    let body = match (&options.body, &options.file) {
        (Some(body), _) => Some(body.clone()),
        (None, Some(file)) => Some(read_file(file)?),
        (None, None) => None,
    };
    if let Some(body) = body {
        call = call.with_json(body);
    }
    if let Some(key) = &options.idempotency_key {
        call = call.with_header(HeaderName::from_static("idempotency-key"), key)?;
        // Other operations ignore the header, so a retry might do them twice.
        if KEYED_PATHS.contains(&call.path.path()) {
            call = call.repeatable();
        }
    }
    let answer = ApiClient::find(&options.server)?.call_any(call).await?;
    let text = String::from_utf8_lossy(&answer.body);
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
    if !text.is_empty() {
        print(&if is_json && !options.json { indent(&text) } else { format!("{}\n", text.trim_end()) })?;
    }
    if answer.status.is_success() { Ok(true) } else { Err(refusal(&answer)) }
}
