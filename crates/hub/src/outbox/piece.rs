//! Pieces of pending work: what is written or refused as a whole, how often it was refused, and the room that it takes.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isobar_model::ids::DeviceRef;
use smallvec::SmallVec;

use super::work::{DeviceFindings, OutgoingWork, SettingWork};

/// Refusals of a piece of work by the registry after which it is parked.
pub(crate) const PARKED_AFTER: u32 = 5;
/// First pause before refused work is retried; it doubles.
const RETRY_PAUSE_FIRST: Duration = Duration::from_millis(100);
/// First pause before parked work is retried; it doubles up to [`PARKED_PAUSE_MAX`].
const PARKED_PAUSE_FIRST: Duration = Duration::from_secs(60);
pub(crate) const PARKED_PAUSE_MAX: Duration = Duration::from_secs(3_600);
/// Findings about alarms of one device written in one transaction, and what each counts for: an alarm is in seven indexes.
const ALARMS_AT_ONCE: usize = 64;
const ALARM_ROWS: usize = 4;

/// Counts the refusals of a piece of work, with the time of its next attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refusals {
    pub tries: u32,
    pub due: Option<Instant>,
}

impl Refusals {
    pub const PARKED: Self = Self { tries: PARKED_AFTER, due: None };

    pub fn is_parked(self) -> bool {
        self.tries >= PARKED_AFTER
    }

    /// Counts one more refusal and sets the next attempt.
    pub fn again(self, now: Instant) -> Self {
        let pause = match self.tries.checked_sub(PARKED_AFTER - 1) {
            None => RETRY_PAUSE_FIRST * (1 << self.tries),
            Some(parked) => PARKED_PAUSE_FIRST.saturating_mul(1 << parked.min(10)).min(PARKED_PAUSE_MAX),
        };
        Self { tries: self.tries.saturating_add(1), due: Some(now + pause) }
    }

    pub fn ripen(&mut self, now: Instant) {
        self.due = self.due.filter(|due| *due > now);
    }
}

/// Number and bytes of pending entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutboxSize {
    pub entries: usize,
    pub bytes: usize,
}

impl OutboxSize {
    pub fn add(&mut self, more: OutboxSize) {
        self.entries += more.entries;
        self.bytes += more.bytes;
    }

    pub fn take(&mut self, less: OutboxSize) {
        self.entries = self.entries.saturating_sub(less.entries);
        self.bytes = self.bytes.saturating_sub(less.bytes);
    }
}

/// The changes that runs have found for a device, not yet written.
#[derive(Debug)]
pub(crate) struct Report {
    pub found: Arc<DeviceFindings>,
    /// Bytes of its entries: at most twice those of the whole report as one entry.
    pub bytes: usize,
    pub rows: ReportRows,
    /// Number of its findings about alarms, oldest first, that the registry has: a large report is written in parts.
    pub alarms_written: usize,
    /// The arrival of its oldest part, in the order of all pending work and in milliseconds.
    pub sequence: u64,
    pub since: i64,
    pub faults: Refusals,
}

/// The entries of the store that contain a report, each a part of it; later parts override earlier ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReportRows {
    /// Entries of an earlier process, which may contain other work too.
    pub left: SmallVec<[u64; 1]>,
    /// Entries of this process, and their bytes.
    pub own: SmallVec<[u64; 1]>,
    pub own_bytes: usize,
    /// Bytes of the whole report when one of them last contained it.
    pub whole_bytes: usize,
}

impl Report {
    /// Returns what a parked report says without the labels that `is_dropped` names. `None` if it loses nothing.
    pub fn without_parked_labels(&self, is_dropped: &dyn Fn(&str) -> bool) -> Option<DeviceFindings> {
        let labels = &self.found.report.meta;
        if !self.faults.is_parked() || !labels.iter().any(|(label, _)| is_dropped(label)) {
            return None;
        }
        let mut found = (*self.found).clone();
        found.report.meta.retain(|(label, _)| !is_dropped(label));
        Some(found)
    }

    pub fn size(&self) -> OutboxSize {
        OutboxSize { entries: 1, bytes: size_of::<Self>() + self.bytes }
    }

    /// Returns the findings about alarms that the next transaction writes, by their places.
    pub fn part(&self) -> Range<usize> {
        let end = self.alarms_written + ALARMS_AT_ONCE;
        self.alarms_written..end.min(self.found.alarms.iter().count())
    }

    /// Merges a newer report that arrived while this one was being written. An entry may contain a part of either.
    pub fn then(self, newer: Self, device: DeviceRef) -> Self {
        let found = Arc::new(self.found.then((*newer.found).clone()));
        let mut rows = self.rows;
        for (all, more) in [(&mut rows.left, newer.rows.left), (&mut rows.own, newer.rows.own)] {
            for row in more {
                if !all.contains(&row) {
                    all.push(row);
                }
            }
        }
        rows.own_bytes += newer.rows.own_bytes;
        rows.whole_bytes = found.bytes(device.id).len();
        Self {
            bytes: rows.whole_bytes,
            found,
            rows,
            alarms_written: 0,
            sequence: self.sequence,
            since: self.since,
            faults: self.faults,
        }
    }
}

/// One item of a run's work, and the entry of the store that contains it.
#[derive(Debug)]
pub(crate) struct PendingItem<T> {
    pub what: Arc<T>,
    pub row: u64,
    pub bytes: usize,
    pub sequence: u64,
    pub since: i64,
    pub faults: Refusals,
}

impl<T> PendingItem<T> {
    pub fn size(&self) -> OutboxSize {
        OutboxSize { entries: 1, bytes: size_of::<Self>() + self.bytes }
    }
}

/// A piece of work that is written or refused as a whole.
#[derive(Debug)]
pub(crate) struct Piece {
    pub device: DeviceRef,
    pub what: PieceKind,
}

#[derive(Debug)]
pub(crate) enum PieceKind {
    Report(Report),
    /// Settings in order.
    Settings(Vec<PendingItem<SettingWork>>, Refusals),
    Delivery(PendingItem<OutgoingWork>),
}

impl Piece {
    pub fn faults(&self) -> Refusals {
        match &self.what {
            PieceKind::Report(report) => report.faults,
            PieceKind::Settings(_, faults) => *faults,
            PieceKind::Delivery(delivery) => delivery.faults,
        }
    }

    pub fn faults_mut(&mut self) -> &mut Refusals {
        match &mut self.what {
            PieceKind::Report(report) => &mut report.faults,
            PieceKind::Settings(_, faults) => faults,
            PieceKind::Delivery(delivery) => &mut delivery.faults,
        }
    }

    pub fn size(&self) -> OutboxSize {
        let mut size = OutboxSize::default();
        match &self.what {
            PieceKind::Report(report) => size.add(report.size()),
            PieceKind::Settings(settings, _) => settings.iter().for_each(|setting| size.add(setting.size())),
            PieceKind::Delivery(delivery) => size.add(delivery.size()),
        }
        size
    }

    /// Returns what the next transaction writes of the piece, in rows and bytes.
    pub fn cost(&self) -> OutboxSize {
        match &self.what {
            PieceKind::Report(report) => {
                let (part, all) = (report.part().len(), report.found.alarms.iter().count());
                let bytes = report.bytes * (part + 1) / (all + 1);
                let first = if report.alarms_written == 0 { report.found.report.meta.len() } else { 0 };
                OutboxSize { entries: 1 + first + ALARM_ROWS * part, bytes }
            }
            PieceKind::Settings(..) | PieceKind::Delivery(_) => self.size(),
        }
    }

    /// Notes that a part of the piece was written. Returns true if more of it is left.
    pub fn advance(&mut self) -> bool {
        let PieceKind::Report(report) = &mut self.what else { return false };
        report.alarms_written = report.part().end;
        !report.part().is_empty()
    }

    /// Returns the entries of the store that contain the piece.
    pub fn rows(&self) -> SmallVec<[u64; 2]> {
        match &self.what {
            PieceKind::Report(report) => report.rows.left.iter().chain(&report.rows.own).copied().collect(),
            PieceKind::Settings(settings, _) => settings.iter().map(|setting| setting.row).collect(),
            PieceKind::Delivery(delivery) => SmallVec::from_slice(&[delivery.row]),
        }
    }

    /// Returns the piece's arrival, in the order of all work and in milliseconds.
    pub fn came(&self) -> Option<(u64, i64)> {
        match &self.what {
            PieceKind::Report(report) => Some((report.sequence, report.since)),
            PieceKind::Settings(settings, _) => settings.first().map(|setting| (setting.sequence, setting.since)),
            PieceKind::Delivery(delivery) => Some((delivery.sequence, delivery.since)),
        }
    }
}
