//! Manual pages and shell completions for packages, generated from the command line.

use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::Failure;
use crate::cli::Cli;

/// Returns the completion script of a shell.
pub fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "isobar", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes manual pages for the program and each command into a folder.
pub fn write_pages(folder: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(failed)?;
    Ok(())
}
