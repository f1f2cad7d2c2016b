//! The binary: configuration, command line, wiring, a simulated fleet, and a client of the API.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod acme;
mod allocator;
mod backups;
mod cli;
mod client;
mod config;
#[cfg(test)]
mod faults;
mod folder;
mod health;
mod logging;
mod manual;
mod otlp;
mod output;
mod process;
mod reload;
mod runtime;
mod serve;
mod service_manager;
mod several_nodes;
mod simulate;
mod stores;
mod support;
mod upkeep;
mod user;

use std::process::ExitCode;

use clap::Parser as _;

/// The allocator; without this line the system's is used.
#[global_allocator]
static ALLOCATOR: allocator::Mimalloc = allocator::Mimalloc;

/// The error of a command.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let outcome = match cli::Cli::parse().command {
        cli::Command::Serve(flags) => serve::run(&flags).map(|()| true),
        cli::Command::Config => print(config::DEFAULT_FILE),
        cli::Command::CheckConfig(flags) => check_config(&flags),
        cli::Command::Health(flags) => health::ask(&flags).map(|()| true),
        cli::Command::Completions { shell } => print(&manual::completions(shell)),
        cli::Command::Man { folder } => manual::write_pages(&folder).map(|()| true),
        cli::Command::Openapi => serve::openapi().and_then(|document| print(&format!("{document}\n"))),
        cli::Command::User(cli::UserCommand::ResetPassword { name, place }) => {
            user::reset_password(&place.into(), &name).and_then(|told| print(&told))
        }
        cli::Command::Backup { folder, place } => {
            upkeep::backup(&place.into(), folder.as_deref()).and_then(|told| say(&told))
        }
        cli::Command::Restore { from, identity, place } => {
            upkeep::restore(&place.into(), &from, identity.as_deref()).and_then(|told| say(&told))
        }
        cli::Command::Check(place) => upkeep::check(&place.into()).and_then(|told| say(&told)),
        cli::Command::Nodes(place) => upkeep::nodes(&place.into()).and_then(|told| say(&told)),
        cli::Command::SupportBundle { file, place } => {
            support::bundle(&place.into(), &file).and_then(|told| say(&told))
        }
        cli::Command::UpgradeCheck(place) => upkeep::upgrade_check(&place.into()).and_then(|told| say(&told)),
        cli::Command::Recover { wanted, place } => upkeep::recover(&place.into(), &wanted).and_then(|told| say(&told)),
        cli::Command::Move(ends) => upkeep::move_store(&ends).and_then(|told| say(&told)),
        cli::Command::Simulate(options) => simulate::run(options),
        cli::Command::Login(options) => return client::run(client::ClientCommand::Login(options)),
        cli::Command::Logout(options) => return client::run(client::ClientCommand::Logout(options)),
        cli::Command::Api(options) => return client::run(client::ClientCommand::Api(options)),
        cli::Command::Design(command) => return client::run(client::ClientCommand::Design(command)),
        cli::Command::Devices(command) => return client::run(client::ClientCommand::Devices(command)),
        cli::Command::Events(command) => return client::run(client::ClientCommand::Events(command)),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            output::note(&format!("isobar: {failure}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints a text; a reader that is gone (`| head`) is not an error.
fn print(text: &str) -> Result<bool, Failure> {
    match output::print(text) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(true),
    }
}

/// Prints a report; returns false if it found damage.
fn say(told: &upkeep::UpkeepReport) -> Result<bool, Failure> {
    Ok(print(&told.text)? && told.sound)
}

fn check_config(flags: &config::Flags) -> Result<bool, Failure> {
    let loaded = config::load(flags)?;
    let given = loaded.given.iter().map(|(name, place)| format!("  {name} is given by {place}\n"));
    let warnings = loaded.warnings.iter().map(|warning| format!("  {warning}\n"));
    print(&format!("The settings are sound.\n{}{}", given.collect::<String>(), warnings.collect::<String>()))
}
