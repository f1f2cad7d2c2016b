//! Aggregates series in buckets of time (contract: Beyond the specification).

use std::collections::BTreeMap;
use std::sync::Arc;

use isobar_model::buckets::{BUCKETS_MAX, Function, Functions, Grid, Stretch, Tally};
use isobar_model::json::{Step, find};
use isobar_model::page::TimeRange;
use isobar_model::time::Timestamp;

use super::query::Filter;
use crate::error::{Result, StoreError};

/// Bounds the bytes of the buckets of one answer: percentiles grow with the spread of the numbers.
pub const BUCKETS_BYTES_MAX: usize = 64 << 20;
/// Number of values in a bucket after which its size is measured again.
const WEIGHED_EVERY: u64 = 64;
/// Smallest number that is read as milliseconds when it is a time; smaller ones are seconds. As seconds it would be the
/// year 5138.
const MILLIS_FROM: f64 = 100_000_000_000.0;

/// Query for buckets of series.
#[derive(Clone, Debug)]
pub struct BucketQuery {
    /// Paths of keys in the payload to the numbers; an empty path is the payload itself.
    pub fields: Vec<Vec<String>>,
    /// Functions to compute of the numbers.
    pub functions: Functions,
    /// Grid of buckets, or `None`: a single bucket.
    pub grid: Option<Grid>,
    /// Inclusive start and exclusive end of the time axis.
    pub range: TimeRange,
    /// Filters, all of which a value must pass.
    pub filters: Vec<Filter>,
    /// Time axis, if it is not createdAt.
    pub time: Option<PayloadTime>,
}

/// Time axis of moments in payloads.
#[derive(Clone, Debug)]
pub struct PayloadTime {
    /// Path to the moment: RFC 3339, or Unix seconds or milliseconds.
    pub path: Vec<String>,
    /// Time by which a value may have been stored later than its moment, in milliseconds.
    pub late_millis: i64,
}

impl BucketSeries {
    /// Counts more values, the first and the last of them at these moments.
    fn add(&mut self, first: Timestamp, last: Timestamp, count: u64) {
        self.values += count;
        self.span = Some(self.span.map_or((first, last), |(earliest, latest)| (earliest.min(first), latest.max(last))));
    }
}

impl BucketQuery {
    /// Returns true if the answer depends on moments and numbers only.
    pub(crate) fn is_of_numbers(&self) -> bool {
        let is_sent = [Function::First, Function::Last].into_iter().any(|function| self.functions.has(function));
        !is_sent && self.time.is_none()
    }

    /// Returns the range of moments at which the values of the answer were stored. A fast clock gives a payload a
    /// moment after it was stored: it may be fast by as much as values may be late, so that each value counts in
    /// exactly one of several adjacent ranges.
    pub fn stored(&self) -> TimeRange {
        let late = self.time.as_ref().map_or(0, |time| time.late_millis);
        let moved = |at: Timestamp, millis: i64| Timestamp::from_millis(at.millis().saturating_add(millis));
        TimeRange { from: self.range.from.map(|from| moved(from, -late)), to: self.range.to.map(|to| moved(to, late)) }
    }
}

/// Function that lends memory: called with a total in bytes, returns the total up to which memory is lent, or `None` if
/// there is no more.
pub type BucketMemory = Box<dyn FnMut(usize) -> Option<usize> + Send + Sync>;

/// Accumulator of the buckets of one answer. Values of many series may be added, in any order.
pub struct Buckets {
    query: Arc<BucketQuery>,
    fields: Vec<Vec<Step>>,
    time: Option<Vec<Step>>,
    /// Values added since the last series was taken out.
    series: BucketSeries,
    /// Bucket of the last value, which is not in `series` while it is open.
    open: Option<(Stretch, Bucket)>,
    /// Bytes of all buckets, including series that were taken out; the next field is the memory lent for them.
    bytes: usize,
    lent: usize,
    memory: BucketMemory,
}

/// Buckets of a series, or of several that are merged.
#[derive(Default)]
pub struct BucketSeries {
    /// Buckets with values, by their beginning.
    pub buckets: BTreeMap<Timestamp, Bucket>,
    /// Number of values in them.
    pub values: u64,
    /// Number of fields without a number, and of payloads without a time.
    pub skipped: u64,
    /// Moments of the first and the last value, on the time axis.
    pub span: Option<(Timestamp, Timestamp)>,
}

/// Aggregate of the values in a bucket.
pub struct Bucket {
    /// Number of values.
    pub count: u64,
    /// Aggregate of each field, in the order of the query.
    pub fields: Vec<Tally>,
    bytes: usize,
}

impl Bucket {
    fn new(query: &BucketQuery) -> Self {
        let fields: Vec<Tally> = query.fields.iter().map(|_| Tally::new(query.functions)).collect();
        Self { count: 0, bytes: 0, fields }
    }

    fn weight(&self) -> usize {
        size_of::<Self>() + self.fields.iter().map(Tally::weight).sum::<usize>()
    }
}

impl Buckets {
    /// Creates an empty accumulator. All memory is requested from `memory` before it grows much.
    pub fn new(query: Arc<BucketQuery>, memory: BucketMemory) -> Self {
        let steps = |path: &Vec<String>| path.iter().map(Step::new).collect();
        let (fields, time) = (query.fields.iter().map(steps).collect(), query.time.as_ref().map(|it| steps(&it.path)));
        Self { query, fields, time, series: BucketSeries::default(), open: None, bytes: 0, lent: 0, memory }
    }

    /// Returns the query.
    pub fn query(&self) -> &Arc<BucketQuery> {
        &self.query
    }

    /// Adds a stored value that passes the filters. `seen` is called with the number of each field, or `None` if it has
    /// none.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`] if a series has more buckets than [`BUCKETS_MAX`], or all of them take more than
    /// [`BUCKETS_BYTES_MAX`]. [`StoreError::Busy`] if no more memory is lent.
    pub(crate) fn take(
        &mut self,
        stored: Timestamp,
        payload: &str,
        mut seen: impl FnMut(usize, Option<f64>),
    ) -> Result<()> {
        let at = match &self.time {
            None => stored,
            Some(path) => match find(payload, path).and_then(moment) {
                Some(at) if self.holds(at, stored) => at,
                Some(_) => return Ok(()),
                None => {
                    self.series.skipped += 1;
                    return Ok(());
                }
            },
        };
        self.open(at)?;
        let Some((_, bucket)) = &mut self.open else { return Ok(()) };
        self.series.add(at, at, 1);
        bucket.count += 1;
        for (field, (path, tally)) in self.fields.iter().zip(&mut bucket.fields).enumerate() {
            let found = find(payload, path).and_then(|text| Some((number(text)?, text)));
            seen(field, found.map(|(number, _)| number));
            match found {
                Some((number, text)) => tally.add(self.query.functions, at, number, text),
                None => self.series.skipped += 1,
            }
        }
        if bucket.count.is_multiple_of(WEIGHED_EVERY) {
            self.weigh()?;
        }
        Ok(())
    }

    /// Adds many stored values at once, with ascending moments: the moment of each, and for each field the numbers; NaN
    /// means no number. The answer equals adding them one by one, if it needs neither texts nor another time axis.
    ///
    /// # Errors
    /// Fails like adding a single value.
    pub(crate) fn take_numbers(&mut self, moments: &[i64], fields: &[Vec<f64>]) -> Result<()> {
        let mut from = 0;
        while let Some(at) = moments.get(from) {
            self.open(Timestamp::from_millis(*at))?;
            let Some((stretch, bucket)) = &mut self.open else { return Ok(()) };
            let rest = moments.get(from..).unwrap_or_default();
            let count = rest.partition_point(|at| stretch.holds(Timestamp::from_millis(*at))).max(1);
            let last = rest.get(count - 1).unwrap_or(at);
            self.series.add(Timestamp::from_millis(*at), Timestamp::from_millis(*last), count as u64);
            bucket.count += count as u64;
            for (numbers, tally) in fields.iter().zip(&mut bucket.fields) {
                for number in numbers.get(from..from + count).unwrap_or_default() {
                    if number.is_nan() {
                        self.series.skipped += 1;
                    } else {
                        tally.add_number(*number);
                    }
                }
            }
            self.weigh()?;
            from += count;
        }
        Ok(())
    }

    /// Returns true if a moment of a payload is within the range, and no further from the moment of storing than
    /// allowed.
    fn holds(&self, at: Timestamp, stored: Timestamp) -> bool {
        let TimeRange { from, to } = self.query.range;
        let late = self.query.time.as_ref().map_or(0, |time| time.late_millis);
        from.is_none_or(|from| from <= at)
            && to.is_none_or(|to| at < to)
            && stored.millis().saturating_sub(at.millis()).saturating_abs() <= late
    }

    /// Opens the bucket of a moment.
    fn open(&mut self, at: Timestamp) -> Result<()> {
        if self.open.as_ref().is_some_and(|(stretch, _)| stretch.holds(at)) {
            return Ok(());
        }
        self.close()?;
        let stretch = self.query.grid.as_ref().map_or(Stretch::ALL, |grid| grid.bucket(at));
        let bucket = match self.series.buckets.remove(&stretch.from) {
            Some(bucket) => bucket,
            None if self.series.buckets.len() >= BUCKETS_MAX => return Err(StoreError::TooMuch),
            None => Bucket::new(&self.query),
        };
        self.open = Some((stretch, bucket));
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        self.weigh()?;
        if let Some((stretch, bucket)) = self.open.take() {
            self.series.buckets.insert(stretch.from, bucket);
        }
        Ok(())
    }

    fn weigh(&mut self) -> Result<()> {
        let Some((_, bucket)) = &mut self.open else { return Ok(()) };
        let weight = bucket.weight();
        self.bytes = self.bytes - std::mem::replace(&mut bucket.bytes, weight) + weight;
        if self.bytes > BUCKETS_BYTES_MAX {
            return Err(StoreError::TooMuch);
        }
        if self.bytes > self.lent {
            self.lent = (self.memory)(self.bytes).ok_or(StoreError::Busy)?;
        }
        Ok(())
    }

    /// Returns the bytes of all buckets, including series that were taken out.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes out the values added so far: the next values belong to another series. Their memory still counts.
    ///
    /// # Errors
    /// Fails like adding a value.
    pub fn take_series(&mut self) -> Result<BucketSeries> {
        self.close()?;
        Ok(std::mem::take(&mut self.series))
    }
}

/// Parses a number that fits a double.
fn number(text: &str) -> Option<f64> {
    matches!(text.as_bytes().first(), Some(b'-' | b'0'..=b'9'))
        .then(|| text.parse().ok())
        .flatten()
        .filter(|it: &f64| it.is_finite())
}

/// Parses a moment: RFC 3339, or Unix seconds or milliseconds.
fn moment(text: &str) -> Option<Timestamp> {
    if let Some(text) = text.strip_prefix('"') {
        return text.strip_suffix('"')?.parse().ok();
    }
    let number = number(text)?;
    let millis = if number.abs() < MILLIS_FROM { number * 1_000.0 } else { number };
    // The cast saturates at the nearest integer.
    Some(Timestamp::from_millis(millis.floor() as i64))
}

#[cfg(test)]
mod tests {
    use isobar_model::buckets::Zone;

    use super::*;

    fn query(functions: &[Function]) -> Arc<BucketQuery> {
        Arc::new(BucketQuery {
            fields: vec![Vec::new()],
            functions: functions.iter().copied().collect(),
            grid: Some(Grid::new("1s".parse().unwrap(), Zone::default())),
            range: TimeRange { from: None, to: None },
            filters: Vec::new(),
            time: None,
        })
    }

    /// Adds numbers that are as far apart as possible, two a second, until one is refused; returns the number of
    /// seconds.
    fn seconds_until_refused(buckets: &mut Buckets) -> (i64, StoreError) {
        for second in 0..BUCKETS_MAX as i64 {
            for number in ["1e-300", "1e300"] {
                if let Err(error) = buckets.take(Timestamp::from_millis(second * 1_000), number, |_, _| {}) {
                    return (second, error);
                }
            }
        }
        panic!("nothing was refused");
    }

    #[test]
    fn memory_of_buckets_is_bounded() {
        let mut buckets = Buckets::new(query(&[Function::P50]), Box::new(Some));
        let (seconds, error) = seconds_until_refused(&mut buckets);
        assert!(matches!(error, StoreError::TooMuch) && buckets.bytes <= 2 * BUCKETS_BYTES_MAX, "{seconds}");
        // Another series of the same answer has no memory left either.
        assert!(buckets.take_series().is_err());
        const LENT: usize = 4 << 20;
        let lend = |bytes| (bytes <= LENT).then_some(LENT);
        let mut buckets = Buckets::new(query(&[Function::P50]), Box::new(lend));
        let (fewer, error) = seconds_until_refused(&mut buckets);
        assert!(matches!(error, StoreError::Busy) && fewer < seconds, "{fewer} of {seconds}");
        // Without percentiles the same numbers take little.
        let mut buckets = Buckets::new(query(&[Function::Mean]), Box::new(lend));
        for second in 0..BUCKETS_MAX as i64 {
            buckets.take(Timestamp::from_millis(second * 1_000), "1e300", |_, _| {}).unwrap();
        }
        assert_eq!(buckets.take_series().unwrap().buckets.len(), BUCKETS_MAX);
    }

    #[test]
    fn moments_are_parsed_in_three_forms() {
        let at = |text: &str| moment(text).map(Timestamp::millis);
        assert_eq!(at(r#""2026-01-02T03:04:05.678Z""#), Some(1_767_323_045_678));
        assert_eq!(at(r#""2026-01-02T04:04:05.678+01:00""#), Some(1_767_323_045_678));
        assert_eq!(at("1767323045"), Some(1_767_323_045_000));
        assert_eq!(at("1767323045.678"), Some(1_767_323_045_678));
        assert_eq!(at("1767323045678"), Some(1_767_323_045_678));
        assert_eq!(at("-1"), Some(-1_000));
        for text in ["null", "true", "\"\"", "\"soon\"", "{}", "[1]", "1e999"] {
            assert_eq!(at(text), None, "{text}");
        }
    }
}
