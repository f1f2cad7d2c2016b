//! An answer in buckets, row by row: those that hold nothing are made when they are told of.

use std::ops::Bound;
use std::sync::Arc;

use isobar_model::buckets::{Functions, Grid, Stretch, Tally, Zone};
use isobar_model::ids::DeviceId;
use isobar_model::page::TimeRange;
use isobar_model::time::Timestamp;
use isobar_store::telemetry::BucketSeries;
use parking_lot::Mutex;

use crate::resources::buckets::{BucketFill, BucketRequest, stretch_of};
use isobar_quota::TenantShare;

/// What series say in buckets. What it takes of memory is charged to its tenant until it is dropped.
pub struct BucketAnswer {
    request: BucketRequest,
    grid: Option<Grid>,
    range: TimeRange,
    series: Vec<(Option<DeviceId>, BucketSeries)>,
    _holds: Arc<Mutex<TenantShare>>,
}

/// A bucket of an answer.
pub struct BucketRow<'a> {
    /// Where it begins and ends.
    pub stretch: Stretch,
    /// How many values lie in it.
    pub count: u64,
    /// What there is to tell of each field.
    pub fields: Vec<FieldRow<'a>>,
}

/// What there is to tell of a field in a bucket.
#[derive(Clone, Copy)]
pub struct FieldRow<'a> {
    /// How many numbers lie in it.
    pub count: u64,
    /// What else is told: that of an earlier bucket where there are none and the answer is filled so. None: nothing.
    pub tally: Option<&'a Tally>,
}

/// How far the rows of a series were told.
#[derive(Default)]
pub struct BucketRows {
    begun: bool,
    /// Where the next bucket begins, or the last one began.
    at: Timestamp,
    /// The last bucket that held a number, of each field.
    numbers: Vec<Option<Timestamp>>,
}

impl BucketAnswer {
    /// The answer to a request. `holds` is its share of memory.
    pub(super) fn new(
        request: BucketRequest,
        grid: Option<Grid>,
        series: Vec<(Option<DeviceId>, BucketSeries)>,
        holds: Arc<Mutex<TenantShare>>,
    ) -> Self {
        let spans = || series.iter().filter_map(|(_, series)| series.span);
        let first = spans().map(|(first, _)| first).min();
        let last = spans().map(|(_, last)| Timestamp::from_millis(last.millis().saturating_add(1))).max();
        let range = TimeRange { from: request.range.from.or(first), to: request.range.to.or(last) };
        Self { request, grid, range, series, _holds: holds }
    }

    /// Where its buckets begin and end; none: all is one bucket.
    pub fn grid(&self) -> Option<&Grid> {
        self.grid.as_ref()
    }

    /// Whose clock and calendar they follow.
    pub fn zone(&self) -> &Zone {
        &self.request.zone
    }

    /// The range that was asked for; where it had no end, as far as there are values.
    pub fn range(&self) -> TimeRange {
        self.range
    }

    /// What is told of each field.
    pub fn functions(&self) -> Functions {
        self.request.functions
    }

    /// Its series, each with its device where each device has one.
    pub fn series(&self) -> impl ExactSizeIterator<Item = (Option<DeviceId>, &BucketSeries)> {
        self.series.iter().map(|(device, series)| (*device, series))
    }

    /// How many values lie in all buckets, and how often a field, or a payload's time, was none.
    pub fn totals(&self) -> (u64, u64) {
        self.series
            .iter()
            .fold((0, 0), |(values, skipped), (_, series)| (values + series.values, skipped + series.skipped))
    }

    /// The next bucket of a series.
    pub fn next_row(&self, series: usize, rows: &mut BucketRows) -> Option<BucketRow<'_>> {
        let (_, series) = self.series.get(series)?;
        let stretch = match (&self.grid, self.request.fill) {
            (None, _) => self.all(series, rows)?,
            (Some(grid), BucketFill::None) => {
                let after = if rows.begun { Bound::Excluded(rows.at) } else { Bound::Unbounded };
                rows.at = *series.buckets.range((after, Bound::Unbounded)).next()?.0;
                grid.bucket(rows.at)
            }
            (Some(grid), _) => {
                let within = stretch_of(self.range)?;
                let at = if rows.begun { rows.at } else { within.from };
                if at >= within.to {
                    return None;
                }
                let stretch = grid.bucket(at);
                rows.at = stretch.to;
                stretch
            }
        };
        rows.begun = true;
        Some(self.row(series, stretch, rows))
    }

    /// The one bucket of all time, if there is anything to tell of it.
    fn all(&self, series: &BucketSeries, rows: &BucketRows) -> Option<Stretch> {
        let stretch = stretch_of(self.range).filter(|stretch| stretch.from < stretch.to)?;
        let is_told = !series.buckets.is_empty() || self.request.fill != BucketFill::None;
        (is_told && !rows.begun).then_some(stretch)
    }

    fn row<'a>(&'a self, series: &'a BucketSeries, stretch: Stretch, rows: &mut BucketRows) -> BucketRow<'a> {
        let key = if self.grid.is_some() { stretch.from } else { Stretch::ALL.from };
        let bucket = series.buckets.get(&key);
        rows.numbers.resize(self.request.fields.len(), None);
        let tally = |field: usize, at: &Timestamp| series.buckets.get(at)?.fields.get(field);
        let fields = rows.numbers.iter_mut().enumerate().map(|(field, last)| {
            let own = bucket.and_then(|bucket| bucket.fields.get(field)).filter(|tally| tally.count() > 0);
            let earlier = last.as_ref().filter(|_| self.request.fill == BucketFill::Previous);
            let told = own.or_else(|| tally(field, earlier?));
            if own.is_some() {
                *last = Some(key);
            }
            FieldRow { count: own.map_or(0, Tally::count), tally: told }
        });
        BucketRow { stretch, count: bucket.map_or(0, |bucket| bucket.count), fields: fields.collect() }
    }
}
