//! Fills the buckets of a series: reads every value of the range once, oldest first, in slices. Cached columns of a
//! block are read instead of its rows.

use std::ops::Range;
use std::sync::Arc;

use isobar_model::ids::OrganizationId;
use isobar_model::retention::Kept;
use rocksdb::ReadOptions;

use super::Core;
use super::columns::{BLOCK_VALUES, NewColumns};
use super::keys;
use super::rows::{read_value, text};
use super::seek::Track;
use super::slices::{Sliced, Watch};
use super::values::{OpenSeries, track};
use crate::error::{Result, StoreError};
use crate::telemetry::Buckets;
use crate::telemetry::ready_query::ReadyQuery;
use crate::telemetry::scan::ScannedRow;

/// Bytes that a scan reads ahead.
const BUCKETS_READAHEAD_BYTES: usize = 1 << 20;
/// Approximate bytes of a value in columns, which count towards the limit of a slice.
const COLUMN_VALUE_BYTES: usize = 8;

/// Scan that fills buckets.
pub struct BucketScan {
    /// Tenant that asks, for which columns are cached.
    tenant: OrganizationId,
    device: u64,
    element: Arc<str>,
    ready: ReadyQuery,
    /// Accumulator, or `None` after it was returned.
    buckets: Option<Buckets>,
    course: Option<BucketCourse>,
    /// Paths whose numbers may be cached in columns; `None` if the answer needs more than columns contain.
    paths: Option<Vec<Arc<[String]>>>,
    /// Buffers into which columns are read.
    moments: Vec<i64>,
    numbers: Vec<Vec<f64>>,
}

/// Progress of a scan.
struct BucketCourse {
    series: u64,
    /// Sequences that were not read yet.
    left: Range<u64>,
    /// Columns of the current block, collected from its first row on.
    making: Option<NewColumns>,
}

impl BucketScan {
    /// Creates a scan that has read nothing.
    pub fn new(tenant: OrganizationId, series: (u64, Arc<str>), kept: Kept, buckets: Buckets) -> Self {
        let (query, (device, element)) = (Arc::clone(buckets.query()), series);
        let ready = ReadyQuery::of_all(query.stored(), query.filters.clone(), kept);
        let paths = || query.fields.iter().map(|path| Arc::from(path.as_slice())).collect();
        let paths = (query.is_of_numbers() && !ready.scans()).then(paths);
        let numbers = vec![Vec::new(); query.fields.len()];
        let (buckets, moments) = (Some(buckets), Vec::new());
        Self { tenant, device, element, ready, buckets, course: None, paths, moments, numbers }
    }

    fn begin(&self, core: &Core) -> Result<Option<BucketCourse>> {
        let Some(mut series) = OpenSeries::of(&core.db, self.device, &self.element, ReadOptions::default())? else {
            return Ok(None);
        };
        let left = series.within(&self.ready)?;
        Ok(Some(BucketCourse { series: series.number, left, making: None }))
    }

    /// Reads the next block from cached columns; returns false if there are none.
    fn take_columns(&mut self, core: &Core) -> Result<bool> {
        let (Some(paths), Some(course), Some(buckets)) = (&self.paths, &mut self.course, &mut self.buckets) else {
            return Ok(false);
        };
        if !course.is_at_block() {
            return Ok(false);
        }
        let Some(columns) = core.columns.get(self.tenant, course.series, course.left.start / BLOCK_VALUES, paths)
        else {
            course.making = Some(NewColumns::new(paths.len()));
            return Ok(false);
        };
        columns.moments(&mut self.moments);
        for (path, numbers) in self.numbers.iter_mut().enumerate() {
            columns.numbers(path, numbers);
        }
        buckets.take_numbers(&self.moments, &self.numbers)?;
        course.left.start += BLOCK_VALUES;
        Ok(true)
    }

    /// Reads rows up to the end of a block; returns false if the slice is over.
    fn take_rows(&mut self, core: &Core, track: &mut Track<'_>, watch: &mut Watch<'_>) -> Result<bool> {
        let (Some(course), Some(buckets)) = (&mut self.course, &mut self.buckets) else { return Ok(true) };
        let (left, making, ready) = (&mut course.left, &mut course.making, &self.ready);
        let block = left.start / BLOCK_VALUES;
        let end = block.saturating_add(1).saturating_mul(BLOCK_VALUES).min(left.end);
        let mut goes_on = true;
        track.read(left.start..end, |sequence, value| {
            let (id, order, payload) = read_value(value)?;
            let row = ScannedRow { sequence, id, order, payload: text(payload)? };
            if ready.holds(&row) {
                let at = keys::moment(order);
                if let Some(making) = making.as_mut() {
                    making.push_moment(at.millis());
                }
                buckets.take(at, row.payload, |field, number| {
                    if let Some(making) = making.as_mut() {
                        making.push_number(field, number);
                    }
                })?;
            }
            left.start = sequence + 1;
            goes_on = watch.goes_on(value.len())?;
            Ok(goes_on)
        })?;
        if goes_on {
            // Missing rows mean that the series was deleted meanwhile.
            left.start = end;
        }
        if left.start == end
            && let (Some(made), Some(paths)) = (making.take(), &self.paths)
        {
            core.columns.keep(self.tenant, course.series, block, paths, made);
        }
        Ok(goes_on)
    }
}

impl BucketCourse {
    /// Returns true if a whole block follows.
    fn is_at_block(&self) -> bool {
        self.left.start.is_multiple_of(BLOCK_VALUES) && self.left.end - self.left.start >= BLOCK_VALUES
    }
}

impl Sliced for BucketScan {
    /// Buckets, with true if the series exists.
    type Done = (Buckets, bool);

    fn go_on(&mut self, core: &Core, watch: &mut Watch<'_>) -> Result<Option<Self::Done>> {
        if self.course.is_none() {
            self.course = self.begin(core)?;
        }
        let Some(series) = self.course.as_ref().map(|course| course.series) else {
            return Ok(self.buckets.take().map(|buckets| (buckets, false)));
        };
        let mut rows = None;
        while self.course.as_ref().is_some_and(|course| !course.left.is_empty()) {
            let goes_on = if self.take_columns(core)? {
                watch.goes_on(BLOCK_VALUES as usize * COLUMN_VALUE_BYTES * self.numbers.len().max(1))?
            } else {
                let rows = match &mut rows {
                    Some(rows) => rows,
                    none => none.insert(track(&core.db, series, reading())?),
                };
                self.take_rows(core, rows, watch)?
            };
            if !goes_on && self.course.as_ref().is_some_and(|course| !course.left.is_empty()) {
                return Ok(None);
            }
        }
        let buckets = self.buckets.take().ok_or_else(|| StoreError::unavailable("buckets are handed out once"))?;
        Ok(Some((buckets, true)))
    }
}

/// Returns the read options: rows are read once, in order.
fn reading() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.fill_cache(false);
    options.set_readahead_size(BUCKETS_READAHEAD_BYTES);
    options
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use futures::FutureExt as _;
    use isobar_model::access::CanWrite;
    use isobar_model::buckets::{Function, Functions, Grid, Told, Zone};
    use isobar_model::ids::DeviceRef;
    use isobar_model::page::TimeRange;
    use isobar_model::time::Timestamp;
    use parking_lot::Mutex;
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};

    use super::super::{Embedded, Options, load};
    use super::*;
    use crate::given::{self, at, id};
    use crate::telemetry::{BucketQuery, Telemetry as _};

    /// Number of values of the series: a few blocks, the last of them partial.
    const COUNT: i64 = 3 * BLOCK_VALUES as i64 + 1_000;
    /// Number of values that are stored at one moment.
    const AT_ONCE: i64 = 32;
    const MILLIS: i64 = 6_800;

    fn moment(n: i64) -> i64 {
        n / AT_ONCE * MILLIS
    }

    /// Returns numbers that vary by block: with few decimals, with many, or none.
    fn number(n: i64) -> Option<f64> {
        match n / BLOCK_VALUES as i64 {
            _ if n % 11 == 3 => None,
            1 => Some((n as f64).sqrt() - 70.0),
            _ => Some((n * 37 % 2_003 - 1_000) as f64 / 100.0),
        }
    }

    async fn stored() -> (tempfile::TempDir, Embedded, CanWrite<DeviceRef>) {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path(), Options::default()).unwrap();
        let device = given::device();
        for first in (0..COUNT).step_by(AT_ONCE as usize) {
            let payload = |n| match number(n) {
                Some(number) => format!(r#"{{"v":{number},"n":{n}}}"#),
                None => format!(r#"{{"v":"{n}","n":{n}}}"#),
            };
            let payloads: Vec<String> = (first..(first + AT_ONCE).min(COUNT)).map(payload).collect();
            let values: Vec<_> = payloads.iter().map(|text| ("log", text.as_str())).collect();
            given::run(&store, &device, given::storing(id(moment(first)), &values)).await;
        }
        (folder, store, device)
    }

    type Rows = Vec<(i64, u64, Vec<Vec<Option<f64>>>)>;

    async fn ask(store: &Embedded, device: &CanWrite<DeviceRef>, query: &BucketQuery) -> (Rows, u64, u64) {
        let buckets = Buckets::new(Arc::new(query.clone()), Box::new(Some));
        let (mut buckets, is_there) =
            store.buckets(&device.reading(), "log", &Kept::default(), buckets, given::claim()).await.unwrap();
        assert!(is_there);
        let series = buckets.take_series().unwrap();
        let told = |told: Told<'_>| match told {
            Told::Whole(count) => count as f64,
            Told::Number(number) => number,
            Told::Sent(text) => text.parse().unwrap(),
        };
        let rows = series.buckets.iter().map(|(from, bucket)| {
            let fields = bucket.fields.iter();
            let fields = fields.map(|tally| query.functions.each().map(|it| tally.told(it).map(told)).collect());
            (from.millis(), bucket.count, fields.collect())
        });
        (rows.collect(), series.values, series.skipped)
    }

    /// Computes count, sum, minimum and maximum of each bucket, value by value.
    fn naive(range: std::ops::Range<i64>, width: i64) -> (Rows, u64, u64) {
        let mut buckets: BTreeMap<i64, (u64, Vec<f64>)> = BTreeMap::new();
        let (mut values, mut skipped) = (0, 0);
        for n in (0..COUNT).filter(|n| range.contains(&moment(*n))) {
            let bucket = buckets.entry(at(moment(n)).millis().div_euclid(width) * width).or_default();
            bucket.0 += 1;
            values += 1;
            match number(n) {
                Some(number) => bucket.1.push(number),
                None => skipped += 1,
            }
        }
        let rows = buckets.into_iter().map(|(from, (count, numbers))| {
            let each = || numbers.iter().copied();
            let sum = (!numbers.is_empty()).then(|| each().sum());
            let told = vec![Some(numbers.len() as f64), sum, each().reduce(f64::min), each().reduce(f64::max)];
            (from, count, vec![told])
        });
        (rows.collect(), values, skipped)
    }

    #[test]
    fn columns_rows_and_a_manual_count_agree() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (_folder, store, device) = runtime.block_on(stored());
        let end = moment(COUNT) + MILLIS;
        let some = prop::sample::subsequence(Function::ALL.to_vec(), 1..=12);
        let asked = (0..end, 0..end, 1..5_000_i64, some, 1..4_usize);
        let mut runner = TestRunner::new(Config { cases: 24, ..Config::default() });
        let tested = runner.run(&asked, |(one, other, seconds, functions, width)| {
            let range = one.min(other)..one.max(other);
            let grid = |width: &str| Some(Grid::new(width.parse().unwrap(), Zone::default()));
            let query = |functions: Functions, grid| BucketQuery {
                fields: vec![vec!["v".to_owned()]],
                functions,
                grid,
                range: TimeRange { from: Some(at(range.start)), to: Some(at(range.end)) },
                filters: Vec::new(),
                time: None,
            };
            let counted = [Function::Count, Function::Sum, Function::Min, Function::Max];
            let (text, millis) = [("10s", 10_000), ("5m", 300_000), ("1h", 3_600_000)][width - 1];
            let by_hand = query(counted.into_iter().collect(), grid(text));
            prop_assert_eq!(runtime.block_on(ask(&store, &device, &by_hand)), naive(range.clone(), millis));
            // Columns, rows (read if the first value is requested too) and a store without a cache must give the same
            // answer.
            let functions: Functions = functions.into_iter().collect();
            let with_first: Functions = functions.each().chain([Function::First]).collect();
            let every = grid(&format!("{seconds}s"));
            let (of_columns, values, skipped) =
                runtime.block_on(ask(&store, &device, &query(functions, every.clone())));
            let (mut of_rows, ..) = runtime.block_on(ask(&store, &device, &query(with_first, every)));
            let first = with_first.each().position(|function| function == Function::First).unwrap();
            if !functions.has(Function::First) {
                for told in of_rows.iter_mut().flat_map(|(.., fields)| fields) {
                    told.remove(first);
                }
            }
            prop_assert_eq!(&of_columns, &of_rows);
            prop_assert_eq!((values, skipped), {
                let (_, values, skipped) = naive(range, 1_000);
                (values, skipped)
            });
            Ok(())
        });
        tested.unwrap();
        // No range of those may have held a whole block.
        let all = BucketQuery { fields: vec![vec!["v".to_owned()]], ..sum_of_all() };
        runtime.block_on(ask(&store, &device, &all));
        let of_v: Arc<[String]> = Arc::new(["v".to_owned()]);
        let record = load::record(&store.core.db, device.target().key.0, "log").unwrap().unwrap();
        let (tenant, of_v) = (given::claim().holder, std::slice::from_ref(&of_v));
        let is_kept = |block| store.core.columns.get(tenant, record.number, block, of_v).is_some();
        assert!((0..3).all(is_kept) && !is_kept(3), "full blocks are remembered, the last is none");
    }

    fn sum_of_all() -> BucketQuery {
        BucketQuery {
            fields: vec![vec!["n".to_owned()]],
            functions: [Function::Sum].into_iter().collect(),
            grid: None,
            range: TimeRange { from: None, to: None },
            filters: Vec::new(),
            time: None,
        }
    }

    /// Checks that a scan ends when its caller is gone. The scan pauses at its first bucket until then, and makes at
    /// most as many buckets, of several hundred, as there are rows between two checks.
    // Holds: c13.bucketsEnd
    #[tokio::test(flavor = "multi_thread")]
    async fn bucket_query_ends_when_its_caller_is_gone() {
        let (_folder, store, device) = stored().await;
        let query = BucketQuery { grid: Some(Grid::new("1s".parse().unwrap(), Zone::default())), ..sum_of_all() };
        let all = ask(&store, &device, &query).await.0.len();
        for is_remembered in [false, true] {
            let (reading, kept, made) = (device.reading(), Kept::default(), Arc::new(AtomicUsize::new(0)));
            let (begun, first) = mpsc::channel();
            let (go, gone) = mpsc::channel::<()>();
            // Each further bucket takes a little more memory.
            let (count, gone) = (Arc::clone(&made), Mutex::new(gone));
            let lend = move |bytes| {
                if count.fetch_add(1, Ordering::Relaxed) == 0 {
                    begun.send(()).unwrap();
                    gone.lock().recv().unwrap();
                }
                Some(bytes)
            };
            let query = match is_remembered {
                true => query.clone(),
                false => BucketQuery { functions: [Function::Last].into_iter().collect(), ..query.clone() },
            };
            let buckets = Buckets::new(Arc::new(query), Box::new(lend));
            let mut asked = store.buckets(&reading, "log", &kept, buckets, given::claim());
            assert!((&mut asked).now_or_never().is_none());
            first.recv().unwrap();
            assert_eq!(store.scans.taken_and_waiting(), (1, 0));
            drop(asked);
            go.send(()).unwrap();
            while store.scans.taken_and_waiting() != (0, 0) {
                tokio::task::yield_now().await;
            }
            let made = made.load(Ordering::Relaxed);
            // Columns are read block by block, two blocks before a check.
            let most = if is_remembered { all * 3 / 4 } else { 10 };
            assert!((1..=most).contains(&made), "{made} of {all} buckets");
        }
    }

    #[tokio::test]
    async fn cached_columns_are_dropped_with_their_series() {
        let (_folder, store, device) = stored().await;
        let query = sum_of_all();
        let all = ask(&store, &device, &query).await;
        assert_eq!(all.0[0].2, [[Some((COUNT * (COUNT - 1) / 2) as f64)]]);
        assert_eq!(ask(&store, &device, &query).await, all, "of columns, and the rest of rows");
        store.series_delete(&device, Some("log")).await.unwrap();
        given::store(&store, &device, moment(COUNT) + 1, "log", r#"{"n":5}"#).await;
        assert_eq!(ask(&store, &device, &query).await.0[0].2, [[Some(5.0)]]);
        assert_eq!(
            Timestamp::from_millis(ask(&store, &device, &query).await.0[0].0),
            isobar_model::buckets::Stretch::ALL.from
        );
    }
}
