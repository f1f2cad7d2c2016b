//! The command line.

use clap::{Parser, Subcommand};

use crate::config::Flags;
use crate::simulate::SimulateOptions;

/// Isobar: an IoT device platform in one program
#[derive(Debug, Parser)]
#[command(name = "isobar", version, about, propagate_version = true, disable_help_subcommand = true)]
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
    /// Print the OpenAPI document of the API
    Openapi,
    /// Run a fleet of devices against a running server
    Simulate(SimulateOptions),
}
