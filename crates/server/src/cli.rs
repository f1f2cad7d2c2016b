//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::client::{ApiOptions, DesignCommand, DevicesCommand, EventsCommand, LoginOptions, ServerOptions};
use crate::config::Flags;
use crate::simulate::SimulateOptions;

/// Isobar: an IoT device platform in one program
#[derive(Debug, Parser)]
#[command(name = "isobar", version, about, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the platform
    Serve(Flags),
    /// Print the settings file with all defaults and what they mean
    Config,
    /// Check the settings without starting
    CheckConfig(Flags),
    /// Ask the platform that runs with these settings whether it is ready
    Health(Flags),
    /// Print the OpenAPI document of the API
    Openapi,
    /// Print the script that completes commands and flags in a shell
    Completions { shell: clap_complete::Shell },
    /// Write the manual pages into a folder
    #[command(hide = true)]
    Man {
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Change users while the platform does not run
    #[command(subcommand)]
    User(UserCommand),
    /// Copy all state into a folder, or to the target of the settings, while the platform runs or not
    Backup {
        /// The new or empty folder to copy into [default: backup.target, as for scheduled backups]
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
        #[command(flatten)]
        place: DataLocation,
    },
    /// Bring a backup back into an empty data folder
    Restore {
        /// The backup: a folder, a file or s3://BUCKET/NAME; -: the standard input
        #[arg(value_name = "BACKUP")]
        from: String,
        /// File of an identity of age that opens it, if it is encrypted [default: backup.identity]
        #[arg(long, value_name = "FILE")]
        identity: Option<PathBuf>,
        #[command(flatten)]
        place: DataLocation,
    },
    /// Look whether all that is stored is sound, while the platform runs or not
    Check(DataLocation),
    /// List the processes that serve the platform together, with both stores in PostgreSQL
    Nodes(DataLocation),
    /// Say what this program would change of a data folder that an older one has left, and change nothing
    UpgradeCheck(DataLocation),
    /// Write what somebody who helps needs to know into a new file, without secrets and payloads
    SupportBundle {
        /// The archive to be made (.tar.gz)
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        place: DataLocation,
    },
    /// Go on without what damage has taken; names it, and does nothing without --yes
    Recover {
        #[command(flatten)]
        wanted: Recovery,
        #[command(flatten)]
        place: DataLocation,
    },
    /// Bring telemetry from its folder, or the registry from its file, to PostgreSQL, while the platform does not run
    Move(MoveEnds),
    /// Run a fleet of devices against a running server
    Simulate(SimulateOptions),
    /// Sign in at a server, for the commands below
    Login(LoginOptions),
    /// Sign out, and remove what the login has stored
    Logout(ServerOptions),
    /// Make any call of a server's API
    Api(ApiOptions),
    /// Read, compare, test and replace a project's design
    #[command(subcommand)]
    Design(DesignCommand),
    /// List, export and import devices
    #[command(subcommand)]
    Devices(DevicesCommand),
    /// Send events, and follow those of devices
    #[command(subcommand)]
    Events(EventsCommand),
}

#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Give a user a new password, shown once, and end its sessions
    ResetPassword {
        /// Username or e-mail address
        name: String,
        #[command(flatten)]
        place: DataLocation,
    },
}

/// The parts of `recover`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Recovery {
    /// Believe the system's clock, though it is more than a day ahead of what was stored
    #[arg(long)]
    pub clock: bool,
    /// Do what is named
    #[arg(long)]
    pub yes: bool,
}

/// The ends of `move`.
#[derive(Debug, Args)]
pub struct MoveEnds {
    /// The folder that holds telemetry, or the file of the registry; it is not changed
    #[arg(long, value_name = "rocksdb:PATH|sqlite:FILE")]
    pub from: String,
    /// The database to bring it to, which has none of its own
    #[arg(long, value_name = "postgres://USER:PASSWORD@HOST/DATABASE")]
    pub to: String,
}

/// The location of the state.
#[derive(Debug, Args)]
pub struct DataLocation {
    /// Settings file (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder that holds all state [default: ./data]
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
}

impl From<DataLocation> for Flags {
    fn from(DataLocation { config, data }: DataLocation) -> Self {
        Self { config, data, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Holds: c12.place
    #[test]
    fn commands_take_the_place_of_the_state_as_serve_does() {
        for command in [
            "serve",
            "check-config",
            "health",
            "backup",
            "backup /to",
            "restore /from",
            "check",
            "nodes",
            "upgrade-check",
            "support-bundle /to",
            "recover",
            "user reset-password ana",
        ] {
            let words = ["isobar"].into_iter().chain(command.split(' ')).chain(["--data", "/d", "--config", "/c"]);
            let flags: Flags =
                match Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{command}: {error}")).command {
                    Command::Serve(flags) | Command::CheckConfig(flags) | Command::Health(flags) => flags,
                    Command::Backup { place, .. }
                    | Command::Restore { place, .. }
                    | Command::Check(place)
                    | Command::Nodes(place)
                    | Command::UpgradeCheck(place)
                    | Command::SupportBundle { place, .. }
                    | Command::Recover { place, .. }
                    | Command::User(UserCommand::ResetPassword { place, .. }) => place.into(),
                    other => panic!("{other:?}"),
                };
            assert_eq!((flags.data.as_deref(), flags.config), (Some("/d"), Some(PathBuf::from("/c"))), "{command}");
        }
    }
}
