//! `isobar` as a client of a server, by its public API alone: it does not use the hub or the stores.
//!
//! This is the cheapest shape that meets the goal: a command is a few calls in a row. So each call opens a connection
//! of its own ([`http`]), with the HTTP library of `simulate` and the outgoing calls, on one thread. [`credentials`]
//! finds the caller, [`caller`] renews a session and describes refusals, and each command has a file. JSON is handled
//! as text, so that numbers keep their digits.

mod api;
mod caller;
mod credentials;
mod csv;
mod design;
mod devices;
mod events;
mod failure;
mod http;
mod json_text;
mod login;
mod text_diff;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget};
use isobar_model::time::Clock;

pub use self::api::ApiOptions;
pub use self::design::DesignCommand;
pub use self::devices::DevicesCommand;
pub use self::events::EventsCommand;
use self::failure::ClientError;
use self::http::{Address, HttpClient};
pub use self::login::LoginOptions;
use crate::output;

/// The server, and how to reach it.
#[derive(Debug, clap::Args)]
pub struct ServerOptions {
    /// Address of the server, like <https://iot.example.com> [default: that of the login]
    #[arg(long = "url", alias = "server", env = "ISOBAR_URL", value_name = "URL")]
    server: Option<Address>,
    /// Certificates (PEM) to trust beside the system's
    #[arg(long, env = "ISOBAR_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Seconds that an answer may take
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

impl ServerOptions {
    fn http(&self, address: &Address) -> Result<HttpClient, ClientError> {
        HttpClient::new(address.clone(), self.ca.as_deref(), self.timeout(), Clock::System)
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// A command of the client.
#[derive(Debug)]
pub enum ClientCommand {
    /// Signs in.
    Login(LoginOptions),
    /// Signs out.
    Logout(ServerOptions),
    /// Makes any call.
    Api(ApiOptions),
    /// Handles a design.
    Design(DesignCommand),
    /// Lists, exports and creates devices.
    Devices(DevicesCommand),
    /// Sends and follows events.
    Events(EventsCommand),
}

/// Runs a command and returns the program's exit code, as docs/cli.md lists them.
pub fn run(command: ClientCommand) -> ExitCode {
    let outcome = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| ClientError::Local(format!("cannot start: {error}")))
        .and_then(|runtime| runtime.block_on(execute(command)));
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(ClientError::ClosedOutput) => ExitCode::SUCCESS,
        Err(error) => {
            note(&error.to_string());
            ExitCode::from(error.exit_code())
        }
    }
}

async fn execute(command: ClientCommand) -> Result<bool, ClientError> {
    match command {
        ClientCommand::Login(options) => login::login(&options).await,
        ClientCommand::Logout(options) => login::logout(&options).await,
        ClientCommand::Api(options) => api::run(&options).await,
        ClientCommand::Design(command) => design::run(&command).await,
        ClientCommand::Devices(command) => devices::run(&command).await,
        ClientCommand::Events(command) => events::run(&command).await,
    }
}

/// Prints to standard output. Fails silently if the reader is gone.
fn print(text: &str) -> Result<(), ClientError> {
    output::print(text).map_err(|error| unprinted(&error))
}

/// Makes the error of standard output.
fn unprinted(error: &std::io::Error) -> ClientError {
    match error.kind() {
        std::io::ErrorKind::BrokenPipe => ClientError::ClosedOutput,
        _ => ClientError::Local(format!("cannot write: {error}")),
    }
}

/// Prints a message for people to standard error.
fn note(text: &str) {
    output::note(&format!("isobar: {text}"));
}

/// Makes a progress bar, shown if standard error is a terminal.
fn progress(steps: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
    if !output::is_error_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar
}

/// Reads a file, or standard input if it is named `-`.
fn read_file(path: &std::path::Path) -> Result<String, ClientError> {
    let text =
        if path.as_os_str() == "-" { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(path) };
    text.map_err(|error| ClientError::Local(format!("cannot read {}: {error}", path.display())))
}
