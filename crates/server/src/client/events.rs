//! `isobar events`: sends an event, or follows a stream of them.

mod messages;

use std::path::PathBuf;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderName};
use serde::Deserialize;
use serde_json::value::RawValue;

use self::messages::{MessageReader, StreamMessage};
use super::caller::ApiClient;
use super::failure::ClientError;
use super::http::{Call, with_query};
use super::{ServerOptions, note, print, read_file};

/// Longest silence of a stream: the server sends something every 15 seconds.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// Longest pause before a broken stream is reopened.
const RESUME_PAUSE_MAX: Duration = Duration::from_secs(16);

/// `isobar events …`.
#[derive(Debug, clap::Subcommand)]
pub enum EventsCommand {
    /// Send an event of a device, and print its id
    Post(PostOptions),
    /// Print events as they come, until Ctrl+C
    Tail(TailOptions),
}

/// Flags of `isobar events post`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("payload").required(true))]
pub struct PostOptions {
    /// The device's id
    #[arg(long, short, value_name = "ID")]
    device: String,
    /// The element of the design that the event begins at
    #[arg(long, short, value_name = "NAME")]
    element: String,
    /// The payload, as JSON
    #[arg(long, value_name = "JSON", group = "payload")]
    body: Option<String>,
    /// File that holds the payload; - is standard input
    #[arg(long, value_name = "FILE", group = "payload")]
    file: Option<PathBuf>,
    /// Makes a repetition harmless; the call is then repeated where the server is busy
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
}

/// Flags of `isobar events tail`.
#[derive(Debug, clap::Args)]
pub struct TailOptions {
    /// Events of this device alone
    #[arg(long, short, value_name = "ID", conflicts_with = "organization")]
    device: Option<String>,
    /// Events of this organization and all beneath it [default: the caller's]
    #[arg(long, value_name = "ID")]
    organization: Option<String>,
    /// Begin behind this event, with what came since
    #[arg(long, value_name = "EVENT")]
    after: Option<String>,
    /// Print {"event", "data"} for each, a line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerOptions,
}

/// The columns of an event.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShownEvent<'a> {
    received_at: &'a str,
    device_id: &'a str,
    #[serde(borrow)]
    element_name: &'a RawValue,
    #[serde(borrow)]
    payload: &'a RawValue,
}

/// A stream that is reopened when it breaks.
struct EventTail<'a> {
    options: &'a TailOptions,
    client: ApiClient,
    path: String,
    /// The id after which the stream resumes.
    last: Option<String>,
    /// True once a stream was open: failures before are final, later ones are retried.
    has_begun: bool,
    attempt: u32,
}

/// Runs a command.
pub async fn run(command: &EventsCommand) -> Result<bool, ClientError> {
    match command {
        EventsCommand::Post(options) => post(options).await,
        EventsCommand::Tail(options) => tail(options).await,
    }
}

async fn post(options: &PostOptions) -> Result<bool, ClientError> {
    let payload = match (&options.body, &options.file) {
        (Some(body), _) => body.clone(),
        (None, Some(file)) => read_file(file)?,
        (None, None) => return Err(ClientError::Local("name the payload: --body or --file".to_owned())),
    };
    let parameters = [("elementName", options.element.as_str()), ("deviceId", options.device.as_str())];
    let mut call = Call::new(Method::POST, &with_query("/v2/events/device", &parameters))?.with_json(payload);
    if let Some(key) = &options.idempotency_key {
        call = call.with_header(HeaderName::from_static("idempotency-key"), key)?.repeatable();
    }
    let answer = ApiClient::find(&options.server)?.call(call).await?;
    #[derive(Deserialize)]
    struct Accepted {
        id: String,
    }
    let accepted: Accepted = serde_json::from_slice(&answer.body)
        .map_err(|_| ClientError::Unreachable("the answer names no event; is the address right?".to_owned()))?;
    print(&format!("{}\n", accepted.id))?;
    Ok(true)
}

async fn tail(options: &TailOptions) -> Result<bool, ClientError> {
    let parameter = match (&options.device, &options.organization) {
        (Some(device), _) => Some(("deviceId", device.as_str())),
        (None, Some(organization)) => Some(("organizationId", organization.as_str())),
        (None, None) => None,
    };
    let mut tail = EventTail {
        options,
        client: ApiClient::find(&options.server)?,
        path: with_query("/v2/events/stream", parameter.as_slice()),
        last: options.after.clone(),
        has_begun: false,
        attempt: 0,
    };
    tokio::select! {
        failure = tail.follow() => Err(failure),
        interrupt = tokio::signal::ctrl_c() => {
            interrupt.map_err(|error| ClientError::Local(format!("cannot wait for Ctrl+C: {error}")))?;
            if let Some(last) = &tail.last {
                note(&format!("go on with --after {last}"));
            }
            Ok(true)
        }
    }
}

impl EventTail<'_> {
    /// Prints events, and reopens the stream after each break. Returns the error that ends it.
    async fn follow(&mut self) -> ClientError {
        loop {
            let broken = match self.stream().await {
                Ok(()) => "the stream ended".to_owned(),
                Err(ClientError::Unreachable(told)) if self.has_begun => told,
                Err(error) => return error,
            };
            let pause = Duration::from_millis(500 << self.attempt.min(5)).min(RESUME_PAUSE_MAX);
            self.attempt += 1;
            note(&format!("{broken}; opening it again in {:.1} s", pause.as_secs_f32()));
            self.client.http.clock.sleep(pause).await;
        }
    }

    /// Prints the events of one connection.
    async fn stream(&mut self) -> Result<(), ClientError> {
        let mut call = Call::new(Method::GET, &self.path)?;
        if let Some(last) = &self.last {
            call = call.with_header(HeaderName::from_static("last-event-id"), last)?;
        }
        let response = self.client.open(call).await?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            let address = &self.client.http.address;
            return Err(ClientError::Unreachable(format!("{address} answers no stream of events: is it an Isobar?")));
        }
        self.has_begun = true;
        let (mut body, mut reader) = (response.into_body(), MessageReader::default());
        loop {
            let frame = self.client.http.clock.timeout(SILENCE_MAX, body.frame()).await;
            let frame = frame.map_err(|_| ClientError::Unreachable("the stream fell silent".to_owned()))?;
            let Some(frame) = frame else { return Ok(()) };
            let frame = frame.map_err(|error| self.client.http.broken(&error))?;
            let Some(bytes) = frame.data_ref() else { continue };
            // Any message resets the back-off.
            self.attempt = 0;
            for message in reader.push(bytes).map_err(|told| ClientError::Unreachable(told.to_owned()))? {
                if !message.data.is_empty() {
                    print(&self.shown(&message))?;
                }
                if !message.id.is_empty() {
                    self.last = Some(message.id);
                }
            }
        }
    }

    fn shown(&self, message: &StreamMessage) -> String {
        // Data of several lines is still one JSON value.
        let (kind, data) = (&message.event, message.data.replace('\n', " "));
        if self.options.json {
            return format!("{{\"event\":{},\"data\":{data}}}\n", serde_json::Value::from(kind.as_str()));
        }
        match serde_json::from_str::<ShownEvent<'_>>(&data) {
            Ok(ShownEvent { received_at, device_id, element_name, payload }) => {
                format!("{received_at} {kind} {device_id} {} {payload}\n", element_name.get().trim_matches('"'))
            }
            Err(_) => format!("{kind} {data}\n"),
        }
    }
}
