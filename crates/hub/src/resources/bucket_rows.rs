//! Iterates over the rows of an answer in buckets; empty buckets are made on the fly.

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

/// An answer in buckets. Its memory is charged to its tenant until it is dropped.
pub struct BucketAnswer {
    request: BucketRequest,
    grid: Option<Grid>,
    range: TimeRange,
    series: Vec<(Option<DeviceId>, BucketSeries)>,
    _holds: Arc<Mutex<TenantShare>>,
}

/// A bucket of an answer.
pub struct BucketRow<'a> {
    /// Its beginning and end.
    pub stretch: Stretch,
    /// Number of values in it.
    pub count: u64,
    /// The figures of each field.
    pub fields: Vec<FieldRow<'a>>,
}

/// The figures of a field in a bucket.
#[derive(Clone, Copy)]
pub struct FieldRow<'a> {
    /// Number of numeric values in it.
    pub count: u64,
    /// The figures: those of an earlier bucket if this one is empty and the answer is filled with previous ones; `None`
    /// if there are none.
    pub tally: Option<&'a Tally>,
}

/// The position of an iteration over the rows of a series.
#[derive(Default)]
pub struct BucketRows {
    begun: bool,
    /// The beginning of the next bucket, or of the last one.
    at: Timestamp,
    /// The last bucket with a number, for each field.
    numbers: Vec<Option<Timestamp>>,
}

impl BucketAnswer {
    /// Makes the answer to a request. `holds` is its share of memory.
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

    /// Returns the grid of its buckets; `None` if there is only one bucket.
    pub fn grid(&self) -> Option<&Grid> {
        self.grid.as_ref()
    }

    /// Returns the time zone of the grid.
    pub fn zone(&self) -> &Zone {
        &self.request.zone
    }

    /// Returns the requested range; an open end is replaced by that of the values.
    pub fn range(&self) -> TimeRange {
        self.range
    }

    /// Returns the functions applied to each field.
    pub fn functions(&self) -> Functions {
        self.request.functions
    }

    /// Returns its series, each with its device if the devices are separate.
    pub fn series(&self) -> impl ExactSizeIterator<Item = (Option<DeviceId>, &BucketSeries)> {
        self.series.iter().map(|(device, series)| (*device, series))
    }

    /// Returns the number of values in all buckets, and how often a field or a payload's time was missing.
    pub fn totals(&self) -> (u64, u64) {
        self.series
            .iter()
            .fold((0, 0), |(values, skipped), (_, series)| (values + series.values, skipped + series.skipped))
    }

    /// Returns the next bucket of a series.
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

    /// Returns the single bucket of the whole range, if it is part of the answer.
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
