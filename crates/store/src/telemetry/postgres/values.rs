//! Reads stored values: pages, filters, orders by payload, exports, buckets.
//!
//! A page in the order of time is one range of numbers. Everything else reads the values of a range in pieces, each in a
//! slot, and looks at them on threads that yield to those that serve calls.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt as _;
use isobar_model::event::StoredValue;
use isobar_model::ids::EventId;
use isobar_model::json::RawJson;
use isobar_model::page::Page;
use isobar_model::retention::Kept;
use isobar_model::time::Timestamp;
use isobar_quota::QueueSlot;
use sqlx::postgres::{PgPool, PgRow};

use super::PostgresTelemetry;
use super::connections::{ReadColumn as _, failed};
use crate::error::{Result, StoreError};
use crate::telemetry::page_budget::PageBudget;
use crate::telemetry::ready_query::{ReadyQuery, ValueOrder, slice};
use crate::telemetry::scan::ScannedRow;
use crate::telemetry::sorted_page::SortedPage;
use crate::telemetry::time_order::{TimeOrder, moment, order_at};
use crate::telemetry::{Buckets, ValueChunk, ValueCursor};

/// Values of a piece, and (next constant) the bytes of payloads after which it is full.
const PIECE_VALUES: u64 = 1_024;
const PIECE_BYTES: usize = 1 << 20;
/// Payload bytes after which a chunk of an export is full.
const CHUNK_BYTES: usize = 256 << 10;
/// Looks for the first value of a chunk, as values may be dropped meanwhile.
const CHUNK_LOOKS: usize = 3;
/// The error for a series that is deleted during its export.
const DELETED_SERIES: StoreError = StoreError::Gone("storage element");

/// A series as it was when it was looked up.
#[derive(Clone, Copy, Debug)]
pub struct FoundSeries {
    pub number: i64,
    /// Number below which values are not shown.
    pub floor: u64,
    /// Number after its last value.
    pub count: u64,
}

/// A value as it is stored.
struct FoundValue {
    number: u64,
    order: TimeOrder,
    id: EventId,
    payload: Bytes,
}

impl FoundValue {
    fn read(row: &PgRow) -> Result<Self> {
        let order = row.order(1)?;
        let payload = Bytes::copy_from_slice(row.column(3)?);
        Ok(Self { number: row.count(0)?, order, id: row.id(2, order)?, payload })
    }

    /// Calls `take` with the value as filters and orders see it.
    fn scanned<T>(&self, take: impl FnOnce(&ScannedRow<'_>) -> T) -> Result<T> {
        let payload = std::str::from_utf8(&self.payload)
            .map_err(|_| StoreError::Damaged("a stored value is no text".to_owned()))?;
        Ok(take(&ScannedRow { sequence: self.number, id: self.id, order: self.order, payload }))
    }

    fn stored(self) -> StoredValue {
        StoredValue { id: self.id, created_at: moment(self.order), payload: RawJson::trusted(self.payload) }
    }
}

/// Finds the series of a device's element.
pub async fn find(pool: &PgPool, device: i64, element: &str) -> Result<Option<FoundSeries>> {
    let query = sqlx::query("SELECT series, floor, count FROM telemetry.last WHERE device = $1 AND element = $2");
    let row = query.bind(device).bind(element.as_bytes()).fetch_optional(pool).await.map_err(failed)?;
    row.map(|row| Ok(FoundSeries { number: row.column(0)?, floor: row.count(1)?, count: row.count(2)? })).transpose()
}

impl FoundSeries {
    /// Returns the first number of a range whose value has at least this position in time, or the end of the range.
    async fn first_at(&self, pool: &PgPool, within: Range<u64>, order: TimeOrder) -> Result<u64> {
        if within.is_empty() || order == 0 {
            return Ok(within.start);
        }
        let query = sqlx::query("SELECT telemetry.value_first_at($1, $2, $3, $4)");
        let query = query.bind(self.number).bind(within.start as i64).bind(within.end as i64);
        query.bind(order.to_be_bytes()).fetch_one(pool).await.map_err(failed)?.count(0)
    }

    /// Returns the number from which on values are shown.
    pub async fn first_kept(&self, pool: &PgPool, kept: &Kept) -> Result<u64> {
        let (floor, count) = (self.floor, self.count);
        let mut first = kept.values.map_or(floor, |most| floor.max(count.saturating_sub(most)));
        for (moment, most) in &kept.of_former {
            let came = self.first_at(pool, floor..count, order_at(*moment)).await?;
            first = first.max(came.saturating_sub(*most));
        }
        match kept.not_before {
            Some(moment) => self.first_at(pool, first..count, order_at(moment)).await,
            None => Ok(first),
        }
    }

    /// Returns the numbers in a query's range among the shown ones.
    async fn within(&self, pool: &PgPool, query: &ReadyQuery) -> Result<Range<u64>> {
        let Range { start, end } = query.range;
        if start >= end {
            return Ok(0..0);
        }
        let low = self.first_kept(pool, &query.kept).await?;
        let low = self.first_at(pool, low..self.count.max(low), start).await?;
        if end == TimeOrder::MAX {
            return Ok(low..self.count.max(low));
        }
        Ok(low..self.first_at(pool, low..self.count.max(low), end).await?)
    }

    /// Reads values of a range from one end on, until it is read or `is_full` returns true for a value of this size.
    async fn read(
        &self,
        pool: &PgPool,
        within: Range<u64>,
        newest_first: bool,
        mut is_full: impl FnMut(usize) -> Result<bool> + Send,
    ) -> Result<Vec<FoundValue>> {
        if within.is_empty() {
            return Ok(Vec::new());
        }
        let text = match newest_first {
            true => {
                "SELECT n, ord, id, payload FROM telemetry.value WHERE series = $1 AND n >= $2 AND n < $3 ORDER BY n DESC"
            }
            false => {
                "SELECT n, ord, id, payload FROM telemetry.value WHERE series = $1 AND n >= $2 AND n < $3 ORDER BY n"
            }
        };
        let query = sqlx::query(text).bind(self.number).bind(within.start as i64).bind(within.end as i64);
        let (mut rows, mut values) = (query.fetch(pool), Vec::new());
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            let value = FoundValue::read(&row)?;
            let bytes = value.payload.len();
            values.push(value);
            if is_full(bytes)? {
                break;
            }
        }
        Ok(values)
    }

    /// Reads the next piece of a range, and removes it from the range. Values that are missing were removed meanwhile.
    async fn piece(&self, pool: &PgPool, left: &mut Range<u64>, newest_first: bool) -> Result<Vec<FoundValue>> {
        let within = match newest_first {
            true => left.start.max(left.end.saturating_sub(PIECE_VALUES))..left.end,
            false => left.start..left.end.min(left.start.saturating_add(PIECE_VALUES)),
        };
        let mut bytes = 0;
        let is_full = |more: usize| {
            bytes += more;
            Ok(bytes >= PIECE_BYTES)
        };
        let values = self.read(pool, within.clone(), newest_first, is_full).await?;
        let last = values.last().map(|value| value.number).filter(|_| bytes >= PIECE_BYTES);
        match (newest_first, last) {
            (true, last) => left.end = last.unwrap_or(within.start),
            (false, last) => left.start = last.map_or(within.end, |last| last + 1),
        }
        Ok(values)
    }

    /// Reads values by their numbers, in this order; those that are gone are left out.
    async fn fetch(&self, pool: &PgPool, numbers: &[u64]) -> Result<Vec<StoredValue>> {
        let wanted: Vec<i64> = numbers.iter().map(|number| *number as i64).collect();
        let query = sqlx::query(
            "SELECT v.n, v.ord, v.id, v.payload FROM unnest($2::bigint[]) WITH ORDINALITY AS g(n, place) \
             JOIN telemetry.value v ON v.series = $1 AND v.n = g.n ORDER BY g.place",
        );
        let query = query.bind(self.number).bind(wanted);
        let (mut rows, mut budget, mut values) = (query.fetch(pool), PageBudget::default(), Vec::new());
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            let value = FoundValue::read(&row)?;
            budget.take(value.payload.len())?;
            values.push(value.stored());
        }
        Ok(values)
    }
}

/// Content and order of the values that a scan collects.
trait PieceWork: Send + 'static {
    /// Takes the values of a piece, in the order in which they were read.
    fn take(&mut self, values: &[FoundValue], query: &ReadyQuery) -> Result<()>;
}

/// Collects the numbers of a page in the order of time.
struct TimePage {
    offset: u64,
    end: u64,
    total: u64,
    page: Vec<u64>,
}

impl PieceWork for TimePage {
    fn take(&mut self, values: &[FoundValue], query: &ReadyQuery) -> Result<()> {
        for value in values {
            if value.scanned(|row| query.holds(row))? {
                if (self.offset..self.end).contains(&self.total) {
                    self.page.push(value.number);
                }
                self.total += 1;
            }
        }
        Ok(())
    }
}

impl PieceWork for SortedPage {
    fn take(&mut self, values: &[FoundValue], query: &ReadyQuery) -> Result<()> {
        let ValueOrder::Sorted(sort) = &query.listing else { return Ok(()) };
        for value in values {
            value.scanned(|row| {
                if query.holds(row) {
                    SortedPage::take(self, sort, row);
                }
            })?;
        }
        Ok(())
    }
}

impl PieceWork for Buckets {
    fn take(&mut self, values: &[FoundValue], query: &ReadyQuery) -> Result<()> {
        for value in values {
            value.scanned(|row| match query.holds(row) {
                true => Buckets::take(self, moment(row.order), row.payload, |_, _| {}),
                false => Ok(()),
            })??;
        }
        Ok(())
    }
}

impl PostgresTelemetry {
    /// Reads a page that is found without reading other values.
    pub(super) async fn page_in_time(&self, series: FoundSeries, query: &ReadyQuery) -> Result<Page<StoredValue>> {
        let pool = &self.core.reads.get();
        let within = series.within(pool, query).await?;
        let (total, newest_first) = (within.end - within.start, query.newest_first() == Some(true));
        let mut budget = PageBudget::default();
        let page = slice(within, query.request, newest_first);
        let values = series.read(pool, page, newest_first, |bytes| budget.take(bytes).map(|()| false)).await?;
        Ok(Page::new(values.into_iter().map(FoundValue::stored).collect(), total, query.request))
    }

    /// Reads a page for which every value of a range is looked at.
    pub(super) async fn page_of_scan(
        &self,
        series: FoundSeries,
        query: Arc<ReadyQuery>,
        slot: QueueSlot,
    ) -> Result<Page<StoredValue>> {
        let within = series.within(&self.core.reads.get(), &query).await?;
        let (total, page) = match query.newest_first() {
            Some(newest_first) => {
                let (offset, end) = (query.request.offset(), query.end_of_page());
                let work = TimePage { offset, end, total: 0, page: Vec::new() };
                let (TimePage { total, page, .. }, _slot) =
                    self.scan(series, within, newest_first, &query, (work, slot)).await?;
                (total, page)
            }
            None => self.sorted(series, within, &query, slot).await?,
        };
        let items = series.fetch(&self.core.reads.get(), &page).await?;
        Ok(Page::new(items, total, query.request))
    }

    async fn sorted(
        &self,
        series: FoundSeries,
        within: Range<u64>,
        query: &Arc<ReadyQuery>,
        mut slot: QueueSlot,
    ) -> Result<(u64, Vec<u64>)> {
        let total = query.takes_all().then_some(within.end - within.start);
        let within = if query.reaches(total)? { within } else { 0..0 };
        let mut work = SortedPage::new(query.end_of_page(), total, &self.parts.sorted_bytes);
        let mut page = Vec::new();
        loop {
            (work, slot) = self.scan(series, within.clone(), false, query, (work, slot)).await?;
            let ValueOrder::Sorted(sort) = &query.listing else { return Ok((0, page)) };
            if let Some(total) = work.end_round(query, sort, &mut page)? {
                return Ok((total, page));
            }
        }
    }

    /// Looks at all values of a range, piece by piece; others have the slot between two of them.
    async fn scan<W: PieceWork>(
        &self,
        series: FoundSeries,
        mut left: Range<u64>,
        newest_first: bool,
        query: &Arc<ReadyQuery>,
        (mut work, mut slot): (W, QueueSlot),
    ) -> Result<(W, QueueSlot)> {
        while !left.is_empty() {
            let values = series.piece(&self.core.reads.get(), &mut left, newest_first).await?;
            let query = Arc::clone(query);
            let look = move || work.take(&values, &query).map(|()| work);
            work = self.parts.scan_threads.spawn(look).await.map_err(StoreError::unavailable)??;
            if !left.is_empty() {
                slot = slot.pass_on().await?;
            }
        }
        Ok((work, slot))
    }

    /// Adds the values of a series to buckets.
    pub(super) async fn fill_buckets(
        &self,
        series: FoundSeries,
        kept: &Kept,
        buckets: Buckets,
        slot: QueueSlot,
    ) -> Result<Buckets> {
        let asked = buckets.query();
        let query = Arc::new(ReadyQuery::of_all(asked.stored(), asked.filters.clone(), kept.clone()));
        let within = series.within(&self.core.reads.get(), &query).await?;
        Ok(self.scan(series, within, false, &query, (buckets, slot)).await?.0)
    }

    /// Returns the moments of the first and the last value in a query's range.
    pub(super) async fn extent_of(
        &self,
        series: FoundSeries,
        query: &ReadyQuery,
    ) -> Result<Option<(Timestamp, Timestamp)>> {
        let pool = &self.core.reads.get();
        let within = series.within(pool, query).await?;
        let first = series.read(pool, within.clone(), false, |_| Ok(true)).await?;
        let last = series.read(pool, within, true, |_| Ok(true)).await?;
        let at = |values: Vec<FoundValue>| values.first().map(|value| moment(value.order));
        Ok(at(first).zip(at(last)))
    }

    /// Reads a chunk of a series from a cursor on, or the first one.
    pub(super) async fn chunk(
        &self,
        (device, element): (i64, &str),
        query: &ReadyQuery,
        cursor: Option<ValueCursor>,
    ) -> Result<Option<ValueChunk>> {
        let pool = &self.core.reads.get();
        let newest_first =
            query.newest_first().ok_or_else(|| StoreError::unavailable("an export is in an order of time"))?;
        for _ in 0..CHUNK_LOOKS {
            let (series, mut left) = match (find(pool, device, element).await?, cursor) {
                (None, None) => return Ok(None),
                (Some(series), None) => (series, series.within(pool, query).await?),
                // Values past retention are left out, even if they were not when the export began.
                (Some(series), Some(cursor)) if series.number as u64 == cursor.series => {
                    (series, cursor.from.max(series.floor)..cursor.to.max(series.floor))
                }
                // The series was deleted in between, and perhaps created again: the rest is not the requested series.
                _ => return Err(DELETED_SERIES),
            };
            let (mut bytes, asked) = (0, left.clone());
            let within = match newest_first {
                true => left.start.max(left.end.saturating_sub(PIECE_VALUES))..left.end,
                false => left.start..left.end.min(left.start.saturating_add(PIECE_VALUES)),
            };
            let is_full = |more: usize| {
                bytes += more;
                Ok(bytes >= CHUNK_BYTES)
            };
            let values = series.read(pool, within, newest_first, is_full).await?;
            if !asked.is_empty() && !follows(&values, &asked, newest_first) {
                continue;
            }
            match (newest_first, values.last()) {
                (true, Some(last)) => left.end = last.number,
                (false, Some(last)) => left.start = last.number + 1,
                (_, None) => left.end = left.start,
            }
            let next = ValueCursor { series: series.number as u64, from: left.start, to: left.end };
            let next = (!left.is_empty()).then_some(next);
            let mut passed = Vec::with_capacity(values.len());
            for value in values {
                if value.scanned(|row| query.holds(row))? {
                    passed.push(value.stored());
                }
            }
            return Ok(Some(ValueChunk { values: passed, next }));
        }
        Err(DELETED_SERIES)
    }
}

/// Returns true if values are the next of a range, without a gap: a missing one was removed meanwhile.
fn follows(values: &[FoundValue], asked: &Range<u64>, newest_first: bool) -> bool {
    let expected = |index: u64| if newest_first { asked.end - 1 - index } else { asked.start + index };
    !values.is_empty() && values.iter().zip(0..).all(|(value, index)| value.number == expected(index))
}
