//! `isobar move`: chooses what is moved by its source, and has what the moves of both stores share.

use std::path::Path;
use std::time::{Duration, Instant};

use isobar_model::time::Clock;

use super::{UpkeepReport, move_registry, move_telemetry};
use crate::Failure;
use crate::cli::MoveEnds;
use crate::folder::DataFolder;
use crate::output;

/// Pause between two lines of progress on a terminal, where each replaces the one before it; and (next constant) elsewhere.
const TERMINAL_EVERY: Duration = Duration::from_secs(1);
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Runs `isobar move`.
pub fn move_store(ends: &MoveEnds) -> Result<UpkeepReport, Failure> {
    let (from, to) = (ends.from.as_str(), ends.to.as_str());
    let place = |scheme| from.strip_prefix(scheme).filter(|path: &&str| !path.is_empty());
    let (folder, file) = (place("rocksdb:"), place("sqlite:"));
    if folder.or(file).is_none() {
        return Err("--from must be rocksdb:PATH (telemetry) or sqlite:FILE (the registry)".into());
    }
    if !["postgres://", "postgresql://"].iter().any(|scheme| to.starts_with(scheme)) {
        return Err("--to must be postgres://USER:PASSWORD@HOST/DATABASE".into());
    }
    if to.split(',').nth(1).is_some_and(|next| next.trim_start().starts_with("postgres")) {
        return Err("--to is one database: move telemetry there, then add others to stores.telemetry".into());
    }
    match file {
        Some(file) => move_registry::run(file.strip_prefix("//").unwrap_or(file), to),
        None => move_telemetry::run(Path::new(folder.unwrap_or_default()), to),
    }
}

/// Locks the data folder that a store lies in, if it lies in one: the lock says by whom it is used.
pub(super) fn lock_of(store: &Path) -> Result<Option<DataFolder>, Failure> {
    let absolute = std::path::absolute(store)?;
    let data = absolute.parent().filter(|folder| DataFolder::is_there(folder));
    Ok(data.map(DataFolder::take).transpose()?)
}

/// Line of progress on standard error.
pub(super) struct ProgressLine {
    shown: Instant,
    is_terminal: bool,
}

impl ProgressLine {
    pub(super) fn new() -> Self {
        Self { shown: Clock::System.instant(), is_terminal: output::is_error_terminal() }
    }

    /// Shows progress, unless the last was shown a moment ago.
    pub(super) fn show(&mut self, text: &str) {
        let pause = if self.is_terminal { TERMINAL_EVERY } else { LINE_EVERY };
        if Clock::System.elapsed(self.shown) >= pause {
            self.shown = Clock::System.instant();
            self.write(text, if self.is_terminal { "\r" } else { "\n" });
        }
    }

    /// Shows the last progress.
    pub(super) fn end(&self, text: &str) {
        self.write(text, "\n");
    }

    fn write(&self, text: &str, end: &str) {
        output::note_with(&format!("{text}  "), end);
    }
}
