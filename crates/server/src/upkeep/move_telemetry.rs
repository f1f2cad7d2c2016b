//! `isobar move`: brings the telemetry of a stopped platform from a folder to PostgreSQL.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use isobar_model::time::Clock;
use isobar_store::telemetry::embedded::StoppedStore;
use isobar_store::telemetry::postgres::{MoveError, MoveOptions, MoveProgress, MoveTotals, TelemetryMove};

use super::UpkeepReport;
use crate::cli::MoveEnds;
use crate::folder::DataFolder;
use crate::stores::{is_telemetry, whole};
use crate::{Failure, runtime};

/// Pause between two lines of progress on a terminal, where each replaces the one before it; and (next constant) elsewhere.
const TERMINAL_EVERY: Duration = Duration::from_secs(1);
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Runs `isobar move`.
pub fn move_telemetry(ends: &MoveEnds) -> Result<UpkeepReport, Failure> {
    let from = ends.from.strip_prefix("rocksdb:").filter(|path| !path.is_empty()).map(Path::new);
    let from = from.ok_or("--from must be rocksdb:PATH")?;
    if !["postgres://", "postgresql://"].iter().any(|scheme| ends.to.starts_with(scheme)) {
        return Err("--to must be postgres://USER:PASSWORD@HOST/DATABASE".into());
    }
    if ends.to.split(',').nth(1).is_some_and(|next| next.trim_start().starts_with("postgres")) {
        return Err("--to is one database: move telemetry there, then add others to stores.telemetry".into());
    }
    if !is_telemetry(from) {
        return Err(format!("there is no telemetry store in {}", from.display()).into());
    }
    // Mostly it lies in the data folder, whose lock says by whom it is used.
    let absolute = std::path::absolute(from)?;
    let data = absolute.parent().filter(|folder| DataFolder::is_there(folder));
    let _folder = data.map(DataFolder::take).transpose()?;
    let opened = StoppedStore::open(from);
    let source = opened.map_err(|error| format!("the telemetry store {}: {}", from.display(), whole(&error)))?;
    let moved = runtime::start(2)?.block_on(carry(source, &ends.to));
    let totals = moved.map_err(|error| format!("telemetry was not moved: {}", whole(&error)))?;
    Ok(UpkeepReport { text: summary(&totals, from), sound: true })
}

async fn carry(source: StoppedStore, to: &str) -> Result<MoveTotals, MoveError> {
    let (mut moving, is_anew) = TelemetryMove::begin(source, to, MoveOptions::default()).await?;
    if is_anew {
        eprintln!("The platform has run on the folder since the last move: it begins anew.");
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
    shown: Instant,
    is_terminal: bool,
}

impl ProgressView {
    fn new(done: &'static str, from: MoveProgress) -> Self {
        let now = Clock::System.instant();
        Self { done, begun: now, from, shown: now, is_terminal: std::io::stderr().is_terminal() }
    }

    /// Shows progress, unless the last was shown a moment ago.
    fn show(&mut self, progress: MoveProgress) {
        let pause = if self.is_terminal { TERMINAL_EVERY } else { LINE_EVERY };
        if Clock::System.elapsed(self.shown) >= pause {
            self.shown = Clock::System.instant();
            self.write(progress, if self.is_terminal { "\r" } else { "\n" });
        }
    }

    /// Shows the last progress.
    fn end(&self, progress: MoveProgress) {
        self.write(progress, "\n");
    }

    fn write(&self, progress: MoveProgress, end: &str) {
        let MoveProgress { devices, of_devices, events, values } = progress;
        let rows = (events + values).saturating_sub(self.from.events + self.from.values);
        let rate = rows as f64 / Clock::System.elapsed(self.begun).as_secs_f64().max(0.001);
        let done = self.done;
        // Nobody may read it.
        let _ = write!(
            std::io::stderr().lock(),
            "{done}: {devices} of {of_devices} devices, {events} events, {values} values, {rate:.0} a second  {end}"
        );
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
