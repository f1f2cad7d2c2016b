//! `isobar move`: brings the telemetry of a stopped platform from a folder to PostgreSQL.

use std::path::Path;
use std::time::Instant;

use isobar_model::time::Clock;
use isobar_store::telemetry::embedded::StoppedStore;
use isobar_store::telemetry::postgres::{MoveError, MoveOptions, MoveProgress, MoveTotals, TelemetryMove};

use super::UpkeepReport;
use super::move_store::{ProgressLine, lock_of};
use crate::stores::{is_telemetry, whole};
use crate::{Failure, output, runtime};

/// Moves the telemetry in this folder to this database.
pub(super) fn run(from: &Path, to: &str) -> Result<UpkeepReport, Failure> {
    if !is_telemetry(from) {
        return Err(format!("there is no telemetry store in {}", from.display()).into());
    }
    let _folder = lock_of(from)?;
    let opened = StoppedStore::open(from);
    let source = opened.map_err(|error| format!("the telemetry store {}: {}", from.display(), whole(&error)))?;
    let moved = runtime::start(2)?.block_on(carry(source, to));
    let totals = moved.map_err(|error| format!("telemetry was not moved: {}", whole(&error)))?;
    Ok(UpkeepReport { text: summary(&totals, from), sound: true })
}

async fn carry(source: StoppedStore, to: &str) -> Result<MoveTotals, MoveError> {
    let (mut moving, is_anew) = TelemetryMove::begin(source, to, MoveOptions::default()).await?;
    if is_anew {
        output::note("The platform has run on the folder since the last move: it begins anew.");
    }
    let mut shown = ProgressView::new("copied", moving.progress());
    while moving.copy().await? {
        shown.show(moving.progress());
    }
    shown.end(moving.progress());
    let mut shown = ProgressView::new("compared", MoveProgress::default());
    let mut reached = MoveProgress::default();
    while let Some(progress) = moving.compare().await? {
        reached = progress;
        shown.show(progress);
    }
    shown.end(reached);
    moving.finish().await
}

/// Shows progress on standard error.
struct ProgressView {
    done: &'static str,
    begun: Instant,
    from: MoveProgress,
    line: ProgressLine,
}

impl ProgressView {
    fn new(done: &'static str, from: MoveProgress) -> Self {
        Self { done, begun: Clock::System.instant(), from, line: ProgressLine::new() }
    }

    /// Shows progress, unless the last was shown a moment ago.
    fn show(&mut self, progress: MoveProgress) {
        self.line.show(&self.text(progress));
    }

    /// Shows the last progress.
    fn end(&self, progress: MoveProgress) {
        self.line.end(&self.text(progress));
    }

    fn text(&self, progress: MoveProgress) -> String {
        let MoveProgress { devices, of_devices, events, values } = progress;
        let rows = (events + values).saturating_sub(self.from.events + self.from.values);
        let rate = rows as f64 / Clock::System.elapsed(self.begun).as_secs_f64().max(0.001);
        let done = self.done;
        format!("{done}: {devices} of {of_devices} devices, {events} events, {values} values, {rate:.0} a second")
    }
}

fn summary(totals: &MoveTotals, from: &Path) -> String {
    let MoveTotals { progress, series, states, queued, keys, outbox, lacking } = totals;
    let MoveProgress { devices, events, values, .. } = progress;
    let lacking = match lacking {
        0 => String::new(),
        some => format!(
            "{some} events had left history already, though timelines named them, and could not be read before either.\n"
        ),
    };
    format!(
        "Telemetry is moved, and both sides are the same: {devices} devices, {events} events, {values} values of {series} series, \
         {states} states, {queued} queued events, {keys} idempotency keys, {outbox} entries of the outbox.\n{lacking}\
         Name the database as stores.telemetry and start the platform. {} is unchanged.\n",
        from.display()
    )
}
