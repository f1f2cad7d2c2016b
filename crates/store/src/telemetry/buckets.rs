//! What series say in buckets of time (contract: Beyond the specification).

use std::collections::BTreeMap;
use std::sync::Arc;

use isobar_model::buckets::{BUCKETS_MAX, Function, Functions, Grid, Stretch, Tally};
use isobar_model::json::{Step, find};
use isobar_model::page::TimeRange;
use isobar_model::time::Timestamp;

use super::query::Filter;
use crate::error::{Result, StoreError};

/// Bytes that the buckets of one answer take at most: those of percentiles grow with how far apart the numbers are.
pub const BUCKETS_BYTES_MAX: usize = 64 << 20;
/// A bucket's weight is looked at again after so many values in it.
const WEIGHED_EVERY: u64 = 64;
/// A number that is a time counts milliseconds from here on, else seconds: as seconds it would be the year 5138.
const MILLIS_FROM: f64 = 100_000_000_000.0;

/// What is asked of series.
#[derive(Clone, Debug)]
pub struct BucketQuery {
    /// Paths of keys beneath the payload where the numbers are; an empty one is the payload.
    pub fields: Vec<Vec<String>>,
    /// What is told of them.
    pub functions: Functions,
    /// Where buckets begin and end; none: all is one bucket.
    pub grid: Option<Grid>,
    /// Inclusive start and exclusive end of the time axis.
    pub range: TimeRange,
    /// All must hold.
    pub filters: Vec<Filter>,
    /// The time axis, where it is not createdAt.
    pub time: Option<PayloadTime>,
}

/// A time axis of moments that payloads tell.
#[derive(Clone, Debug)]
pub struct PayloadTime {
    /// Where the moment is: RFC 3339, or Unix seconds or milliseconds.
    pub path: Vec<String>,
    /// How much later a value may have been stored, in milliseconds.
    pub late_millis: i64,
}

impl BucketSeries {
    /// More values lie in its buckets, the first and the last of them at these moments.
    fn add(&mut self, first: Timestamp, last: Timestamp, count: u64) {
        self.values += count;
        self.span = Some(self.span.map_or((first, last), |(earliest, latest)| (earliest.min(first), latest.max(last))));
    }
}

impl BucketQuery {
    /// Whether moments and numbers are all that the answer is made of.
    pub(crate) fn is_of_numbers(&self) -> bool {
        let is_sent = [Function::First, Function::Last].into_iter().any(|function| self.functions.has(function));
        !is_sent && self.time.is_none()
    }

    /// When the values were stored that the answer is made of. A clock that is ahead tells a moment after that at which the
    /// value is stored: it may be ahead by as much as values may be late, so that each value counts in one range of several
    /// that lie side by side.
    pub fn stored(&self) -> TimeRange {
        let late = self.time.as_ref().map_or(0, |time| time.late_millis);
        let moved = |at: Timestamp, millis: i64| Timestamp::from_millis(at.millis().saturating_add(millis));
        TimeRange { from: self.range.from.map(|from| moved(from, -late)), to: self.range.to.map(|to| moved(to, late)) }
    }
}

/// Lends memory: asked for so many bytes in all, it says up to how many are lent; none: there is no more.
pub type BucketMemory = Box<dyn FnMut(usize) -> Option<usize> + Send + Sync>;

/// The buckets of one answer, so far. Values of many series may go in, in any order.
pub struct Buckets {
    query: Arc<BucketQuery>,
    fields: Vec<Vec<Step>>,
    time: Option<Vec<Step>>,
    /// What was taken in since a series was taken out.
    series: BucketSeries,
    /// The bucket in which the last value lies: it is not among those of the series.
    open: Option<(Stretch, Bucket)>,
    /// What all buckets take, those of series that were taken out too; and what was lent for them.
    bytes: usize,
    lent: usize,
    memory: BucketMemory,
}

/// The buckets of a series, or of several that are taken for one.
#[derive(Default)]
pub struct BucketSeries {
    /// Those that hold anything, by their beginning.
    pub buckets: BTreeMap<Timestamp, Bucket>,
    /// How many values are in them.
    pub values: u64,
    /// How often a field, or a payload's time, was none.
    pub skipped: u64,
    /// The moments of the first and of the last value, on the time axis.
    pub span: Option<(Timestamp, Timestamp)>,
}

/// What lies in a bucket.
pub struct Bucket {
    /// How many values.
    pub count: u64,
    /// What is told of each field, in the order of the query.
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
    /// None yet. All that they will take is asked of `memory` before it grows much.
    pub fn new(query: Arc<BucketQuery>, memory: BucketMemory) -> Self {
        let steps = |path: &Vec<String>| path.iter().map(Step::new).collect();
        let (fields, time) = (query.fields.iter().map(steps).collect(), query.time.as_ref().map(|it| steps(&it.path)));
        Self { query, fields, time, series: BucketSeries::default(), open: None, bytes: 0, lent: 0, memory }
    }

    /// What is asked.
    pub fn query(&self) -> &Arc<BucketQuery> {
        &self.query
    }

    /// Takes in a stored value that passes the filters. `seen` hears what each field is; none: no number.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`]: a series has more buckets than [`BUCKETS_MAX`], or all of them take more than
    /// [`BUCKETS_BYTES_MAX`]. [`StoreError::Busy`]: no more memory is lent.
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

    /// Takes in many stored values at once, of which the moments ascend: of each its moment, and field by field its number; one
    /// that is none stands for no number. The answer is that of one after the other, where it needs neither texts nor another
    /// time axis.
    ///
    /// # Errors
    /// As those of a value.
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

    /// Whether a moment of a payload lies in the range, and no further from that at which it was stored than it may.
    fn holds(&self, at: Timestamp, stored: Timestamp) -> bool {
        let TimeRange { from, to } = self.query.range;
        let late = self.query.time.as_ref().map_or(0, |time| time.late_millis);
        from.is_none_or(|from| from <= at)
            && to.is_none_or(|to| at < to)
            && stored.millis().saturating_sub(at.millis()).saturating_abs() <= late
    }

    /// Opens the bucket that a moment lies in.
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

    /// Bytes that all buckets take, those of series that were taken out too.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes out what was taken in so far: what follows is another series. Its memory stays with these buckets.
    ///
    /// # Errors
    /// As those of a value more.
    pub fn take_series(&mut self) -> Result<BucketSeries> {
        self.close()?;
        Ok(std::mem::take(&mut self.series))
    }
}

/// A number that a double can say.
fn number(text: &str) -> Option<f64> {
    matches!(text.as_bytes().first(), Some(b'-' | b'0'..=b'9'))
        .then(|| text.parse().ok())
        .flatten()
        .filter(|it: &f64| it.is_finite())
}

/// A moment: RFC 3339, or Unix seconds or milliseconds.
fn moment(text: &str) -> Option<Timestamp> {
    if let Some(text) = text.strip_prefix('"') {
        return text.strip_suffix('"')?.parse().ok();
    }
    let number = number(text)?;
    let millis = if number.abs() < MILLIS_FROM { number * 1_000.0 } else { number };
    // A cast takes what is beyond to the nearest there is.
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

    /// Takes in numbers that are as far apart as can be, two a second, until it is refused: how many seconds that took.
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
    fn what_buckets_take_is_bounded_and_no_more_than_was_lent() {
        let mut buckets = Buckets::new(query(&[Function::P50]), Box::new(Some));
        let (seconds, error) = seconds_until_refused(&mut buckets);
        assert!(matches!(error, StoreError::TooMuch) && buckets.bytes <= 2 * BUCKETS_BYTES_MAX, "{seconds}");
        // Another series of the same answer finds nothing left either.
        assert!(buckets.take_series().is_err());
        const LENT: usize = 4 << 20;
        let lend = |bytes| (bytes <= LENT).then_some(LENT);
        let mut buckets = Buckets::new(query(&[Function::P50]), Box::new(lend));
        let (fewer, error) = seconds_until_refused(&mut buckets);
        assert!(matches!(error, StoreError::Busy) && fewer < seconds, "{fewer} of {seconds}");
        // Without percentiles the same is a little.
        let mut buckets = Buckets::new(query(&[Function::Mean]), Box::new(lend));
        for second in 0..BUCKETS_MAX as i64 {
            buckets.take(Timestamp::from_millis(second * 1_000), "1e300", |_, _| {}).unwrap();
        }
        assert_eq!(buckets.take_series().unwrap().buckets.len(), BUCKETS_MAX);
    }

    #[test]
    fn moments_are_told_in_three_ways() {
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
