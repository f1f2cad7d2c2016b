//! Drafts the work of a run outside the lock that all tenants share, because a report may be as large as a device's
//! labels.

use std::sync::Arc;

use isobar_model::ids::DeviceRef;
use isobar_model::time::Timestamp;
use isobar_store::telemetry::OutboxChange;

use super::piece::{OutboxSize, Report, ReportRows};
use super::work::{DeviceFindings, RegistryWork};

/// Largest report, in bytes, that is always rewritten whole as one entry. A larger one gets entries with only the
/// changes, until all its entries have twice the bytes that it had when it was last written whole.
const WHOLE_BYTES_MAX: usize = 1_024;

/// The pending report of a device at the time when a run's report is drafted.
pub(crate) struct ReportBase {
    found: Arc<DeviceFindings>,
    rows: ReportRows,
}

/// The work of a run before its effect on the pending report is drafted.
pub(crate) struct UnstagedWork {
    found: Option<DeviceFindings>,
    work: RegistryWork,
    row: u64,
    /// The change that stores the settings and deliveries, and their size.
    put: Option<OutboxChange>,
    size: OutboxSize,
}

/// The work of a run, merged with the report that was pending at that time.
pub(crate) struct Draft {
    base: Option<Arc<DeviceFindings>>,
    report: Option<(Arc<DeviceFindings>, usize, ReportRows)>,
    changes: Vec<OutboxChange>,
    pub rest: UnstagedWork,
}

/// The work of a run, ready to be pending once the run is committed.
pub(crate) struct StagedWork {
    /// The pending report that the draft was merged with.
    pub base: Option<Arc<DeviceFindings>>,
    pub found: Option<(Arc<DeviceFindings>, usize, ReportRows)>,
    pub rest: RegistryWork,
    pub row: u64,
}

impl ReportBase {
    pub fn of(report: &Report) -> Self {
        Self { found: Arc::clone(&report.found), rows: report.rows.clone() }
    }
}

impl UnstagedWork {
    pub fn of(mut work: RegistryWork, number: &dyn Fn() -> u64) -> Self {
        let found = work.take_found(Timestamp::default());
        let (mut row, mut put, mut size) = (0, None, OutboxSize::default());
        if !work.is_empty() {
            row = number();
            let bytes = work.bytes();
            size =
                OutboxSize { entries: work.settings.len() + work.notices.len() + work.calls.len(), bytes: bytes.len() };
            put = Some(OutboxChange::Put { number: row, work: bytes });
        }
        Self { found, work, row, put, size }
    }
}

impl Draft {
    /// Merges the work with the pending report.
    pub fn of(device: DeviceRef, base: Option<ReportBase>, rest: UnstagedWork, number: &dyn Fn() -> u64) -> Self {
        let mut changes = Vec::with_capacity(2);
        let report = rest.found.as_ref().map(|found| {
            let (found, bytes, rows) = report_entry(device, base.as_ref(), found, number, &mut changes);
            (Arc::new(found), bytes, rows)
        });
        Self { base: base.map(|base| base.found), report, changes, rest }
    }

    /// Returns true if the pending report is still the one that the draft was merged with.
    pub fn stands_on(&self, report: Option<&Report>) -> bool {
        match (&self.base, report) {
            (Some(base), Some(report)) => Arc::ptr_eq(base, &report.found),
            (None, None) => true,
            // Work without a report does not depend on the pending report.
            _ => self.report.is_none(),
        }
    }

    /// Returns the size by which pending work grows.
    pub fn more(&self, before: Option<&Report>) -> OutboxSize {
        let mut more = self.rest.size;
        if let Some((_, bytes, _)) = &self.report {
            more.entries += usize::from(before.is_none());
            more.bytes += bytes.saturating_sub(before.map_or(0, |before| before.bytes));
        }
        more
    }

    pub fn goes(self) -> (StagedWork, Vec<OutboxChange>) {
        let Self { base, report, mut changes, rest } = self;
        changes.extend(rest.put);
        (StagedWork { base, found: report, rest: rest.work, row: rest.row }, changes)
    }
}

/// Merges new findings into a report, and returns the whole report with the bytes of its entries, and these entries.
fn report_entry(
    device: DeviceRef,
    before: Option<&ReportBase>,
    found: &DeviceFindings,
    number: &dyn Fn() -> u64,
    changes: &mut Vec<OutboxChange>,
) -> (DeviceFindings, usize, ReportRows) {
    let Some(before) = before else {
        let (row, work) = (number(), found.bytes(device.id));
        let mut rows = ReportRows { own_bytes: work.len(), whole_bytes: work.len(), ..ReportRows::default() };
        rows.own.push(row);
        let bytes = work.len();
        changes.push(OutboxChange::Put { number: row, work });
        return (found.clone(), bytes, rows);
    };
    let all = before.found.then(found.clone());
    let mut rows = before.rows.clone();
    let news = (rows.own_bytes > WHOLE_BYTES_MAX).then(|| found.bytes(device.id));
    match news.filter(|news| rows.own_bytes + news.len() < 2 * rows.whole_bytes) {
        Some(work) => {
            rows.own_bytes += work.len();
            let row = number();
            rows.own.push(row);
            changes.push(OutboxChange::Put { number: row, work });
        }
        None => {
            let (row, work) = (rows.own.pop().unwrap_or_else(number), all.bytes(device.id));
            (rows.own_bytes, rows.whole_bytes) = (work.len(), work.len());
            changes.push(OutboxChange::Put { number: row, work });
            changes.extend(rows.own.drain(..).map(OutboxChange::Done));
            rows.own.push(row);
        }
    }
    (all, rows.own_bytes, rows)
}
