//! The newest lines of the log: from the process that serves, which keeps them, or from the journal of systemd.

use std::io::Read as _;
use std::process::{Command, Stdio};

use super::scrub;
use crate::Failure;

/// The service of the packages.
const UNIT: &str = "isobar.service";
/// Newest lines of the journal that are read, and their bytes at most.
const JOURNAL_LINES: &str = "1000";
const JOURNAL_BYTES_MAX: u64 = 4 << 20;

/// Returns lines with a first one that says where they come from.
pub fn headed(from: &str, lines: &str, left_out: usize) -> String {
    format!("The newest lines of {from}; {left_out} are left out: too long, not in JSON, or below INFO.\n{lines}")
}

/// Returns the newest lines of the service in the journal.
pub fn of_the_journal(secrets: &[String]) -> Result<String, Failure> {
    let cannot = |error| format!("no running process has it, and the journal of {UNIT} cannot be read: {error}");
    let mut journal = Command::new("journalctl")
        .args(["--no-pager", "--quiet", "--output=cat", "--lines", JOURNAL_LINES, "--unit", UNIT])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(cannot)?;
    let mut bytes = Vec::new();
    let read = journal.stdout.take().map(|lines| lines.take(JOURNAL_BYTES_MAX).read_to_end(&mut bytes));
    // Its exit code says nothing once its output was cut.
    let _ = journal.kill();
    let _ = journal.wait();
    read.transpose().map_err(cannot)?;
    let (lines, left_out) = scrub::log(&String::from_utf8_lossy(&bytes), secrets);
    match lines.is_empty() {
        true => Err(format!("no running process has it, and the journal of {UNIT} has no lines in JSON").into()),
        false => Ok(headed(&format!("the journal of {UNIT}"), &lines, left_out)),
    }
}
