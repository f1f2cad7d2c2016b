//! Runs the examples of a published collection of codecs: `scripts/try-codecs FOLDER`. `tests/collection/layouts.rs`
//! lists the supported layouts. Reports on each codec, prints totals, and exits with 1 if anything differs.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "a report for people")]

#[path = "../tests/collection/mod.rs"]
mod collection;
#[path = "../tests/stand/mod.rs"]
mod stand;

use std::path::Path;
use std::process::ExitCode;

use collection::Tried;

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: try_codecs FOLDER");
        return ExitCode::from(2);
    };
    let report = collection::try_all(Path::new(&folder), |codec| println!("{codec}"));
    println!("\n{report}");
    if report.codecs.is_empty() {
        eprintln!("there is no codec in {}", folder.to_string_lossy());
        return ExitCode::from(2);
    }
    if report.codecs.iter().all(Tried::is_sound) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
