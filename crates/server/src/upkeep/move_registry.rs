//! `isobar move`: brings the registry of a stopped platform from its file to PostgreSQL.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use isobar_model::time::Clock;
use isobar_store::registry::{RegistryMoveProgress, RegistryMoveStage, RegistryMoveTotals, move_registry};

use super::UpkeepReport;
use super::move_store::{ProgressLine, lock_of};
use crate::stores::whole;
use crate::{Failure, runtime};

/// Tables that the report counts by name, as operators know them.
const NAMED_TABLES: [(&str, &str); 6] = [
    ("organizations", "organizations"),
    ("users", "users"),
    ("projects", "projects"),
    ("devices", "devices"),
    ("settings", "records of settings"),
    ("alarms", "alarms"),
];

/// Moves the registry in this file to this database.
pub(super) fn run(file: &str, to: &str) -> Result<UpkeepReport, Failure> {
    let _folder = lock_of(Path::new(file))?;
    let mut view = StageView { line: ProgressLine::new(), stage: None };
    let moved = runtime::start(2)?.block_on(move_registry(file, to, &mut |progress| view.show(progress)));
    let totals = moved.map_err(|error| format!("the registry was not moved: {}", whole(&error)))?;
    Ok(UpkeepReport { text: summary(&totals, file)?, sound: true })
}

/// Shows progress, stage after stage.
struct StageView {
    line: ProgressLine,
    stage: Option<(RegistryMoveStage, Instant)>,
}

impl StageView {
    fn show(&mut self, progress: RegistryMoveProgress) {
        let RegistryMoveProgress { stage, done, of, is_last } = progress;
        let begun = match self.stage {
            Some((shown, begun)) if shown == stage => begun,
            _ => self.stage.insert((stage, Clock::System.instant())).1,
        };
        let of_them = if of > 0 { format!(" of {of}") } else { String::new() };
        let rate = done as f64 / Clock::System.elapsed(begun).as_secs_f64().max(0.001);
        let text = match stage {
            RegistryMoveStage::Read => format!("read: {done} rows, {rate:.0} a second"),
            RegistryMoveStage::Copied => format!("copied: {done}{of_them} rows, {rate:.0} a second"),
            RegistryMoveStage::Indexed => format!("made: {done}{of_them} indexes and references"),
            RegistryMoveStage::Compared => format!("compared: {done}{of_them} rows, {rate:.0} a second"),
        };
        match is_last {
            true => self.line.end(&text),
            false => self.line.show(&text),
        }
    }
}

fn summary(totals: &RegistryMoveTotals, file: &str) -> Result<String, Failure> {
    let rows_of = |name: &str| totals.iter().find(|(table, _)| table == name).map_or(0, |(_, rows)| *rows);
    let all: u64 = totals.iter().map(|(_, rows)| rows).sum();
    let mut text = "The registry is moved, and both sides are the same: ".to_owned();
    for (table, words) in NAMED_TABLES {
        write!(text, "{} {words}, ", rows_of(table))?;
    }
    writeln!(text, "{all} rows of {} tables.", totals.len())?;
    writeln!(text, "Name the database as stores.registry and start the platform. {file} is unchanged.")?;
    Ok(text)
}
