//! The port to the telemetry store, as this adapter carries it out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use isobar_model::access::{CanRead, CanWrite};
use isobar_model::event::{Event, LastValues, StoredValue};
use isobar_model::ids::{DeviceKey, DeviceRef, EventId};
use isobar_model::json::LastKept;
use isobar_model::page::{Page, TimeRange};
use isobar_model::retention::Kept;
use isobar_model::time::{Clock, Timestamp};
use isobar_quota::Claim;

use super::catch_up::encoded;
use super::connections::{ReadColumn as _, failed, must_have_room};
use super::live_events::EventPlace;
use super::load::read_series;
use super::memory::SeriesMemory;
use super::values::FoundSeries;
use super::{CommitterFailed, PostgresTelemetry, StoreTasks, values};
use crate::error::{Result, StoreError};
use crate::postgres::must_take_writes;
use crate::telemetry::dropping::share_of_bytes;
use crate::telemetry::follow::FoundEvent;
use crate::telemetry::ready_query::ReadyQuery;
use crate::telemetry::time_order::moment;
use crate::telemetry::{
    Buckets, EventWriter, Followed, Following, HistoryQuery, Locked, OutboxEntry, PositionOrder, QueueQuery, Series,
    SharedTelemetry, StreamCursor, StreamPiece, StreamPosition, Telemetry, Turn, ValueChunk, ValueCursor, ValueQuery,
};

impl PostgresTelemetry {
    /// Returns the place of an event, if it is there.
    pub(crate) async fn event_place(&self, id: EventId) -> Result<Option<EventPlace>> {
        self.core.place_of(id).await
    }

    /// Returns true if there has been an event with this identifier or a greater one.
    pub(crate) async fn is_anything_from(&self, id: EventId) -> Result<bool> {
        self.core.is_anything_from(id).await
    }

    /// Returns the series of a device, by name, without their last values.
    async fn series_stored(&self, device: &CanRead<DeviceRef>) -> Result<Vec<SeriesMemory>> {
        let query = sqlx::query(
            "SELECT element, series, created, count, floor, bytes, ord, ''::bytea FROM telemetry.last WHERE device = $1 \
             ORDER BY element",
        );
        let query = query.bind(self.key(device.target().key)?);
        query.fetch_all(&self.core.reads.get()).await.map_err(failed)?.iter().map(read_series).collect()
    }

    /// Reads the first of these events, of about this many bytes; also returns how many were read.
    pub(crate) async fn read_found(
        &self,
        devices: &Followed,
        found: &[FoundEvent],
        bytes: usize,
    ) -> Result<(Vec<(StreamPosition, Event)>, usize)> {
        self.core.next(devices, found, bytes).await
    }
}

/// A page of more items waits for a slot.
const SHORT_PAGE: u32 = 1_000;
/// Time for the note that this process ends.
const LEFT_WITHIN: Duration = Duration::from_secs(5);
/// Events of a cursor that are read by one statement.
const EVENTS_A_PIECE: usize = 500;

#[async_trait]
impl Telemetry for PostgresTelemetry {
    async fn lock(&self, device: &CanWrite<DeviceRef>) -> Result<Turn> {
        self.core.turn(device).await.map(Turn::new)
    }

    fn lock_now(&self, device: &CanWrite<DeviceRef>) -> Result<Option<Turn>> {
        self.core.turn_now(device)
    }

    async fn lock_unless_repeated(
        &self,
        device: &CanWrite<DeviceRef>,
        idempotency_key: &str,
        now: Timestamp,
    ) -> Result<Locked> {
        self.core.turn_unless_known(device, idempotency_key, now).await
    }

    async fn values(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        query: ValueQuery,
        claim: Claim,
    ) -> Result<Option<Page<StoredValue>>> {
        let (is_long, ready) = (query.page.limit > SHORT_PAGE, ReadyQuery::of(query));
        let slot = match is_long || ready.scans() {
            true => Some(self.parts.scans.take(claim).await?),
            false => None,
        };
        let Some(series) = values::find(&self.core.reads.get(), self.key(device.target().key)?, element).await? else {
            return Ok(None);
        };
        match slot {
            Some(slot) if ready.scans() => self.page_of_scan(series, Arc::new(ready), slot).await.map(Some),
            _slot => self.page_in_time(series, &ready).await.map(Some),
        }
    }

    async fn values_chunk(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        query: &ValueQuery,
        cursor: Option<ValueCursor>,
        claim: Claim,
    ) -> Result<Option<ValueChunk>> {
        let _slot = self.parts.scans.take(claim).await?;
        self.chunk((self.key(device.target().key)?, element), &ReadyQuery::of(query.clone()), cursor).await
    }

    async fn buckets(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        kept: &Kept,
        buckets: Buckets,
        claim: Claim,
    ) -> Result<(Buckets, bool)> {
        let slot = self.parts.scans.take(claim).await?;
        match values::find(&self.core.reads.get(), self.key(device.target().key)?, element).await? {
            Some(series) => Ok((self.fill_buckets(series, kept, buckets, slot).await?, true)),
            None => Ok((buckets, false)),
        }
    }

    async fn extent(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        kept: &Kept,
        range: TimeRange,
        claim: Claim,
    ) -> Result<Option<(Timestamp, Timestamp)>> {
        let _slot = self.parts.scans.take(claim).await?;
        match values::find(&self.core.reads.get(), self.key(device.target().key)?, element).await? {
            Some(series) => self.extent_of(series, &ReadyQuery::of_all(range, Vec::new(), kept.clone())).await,
            None => Ok(None),
        }
    }

    async fn last(&self, device: &CanRead<DeviceRef>, element: &str) -> Result<Option<LastValues>> {
        let query = sqlx::query("SELECT ord, last FROM telemetry.last WHERE device = $1 AND element = $2");
        let query = query.bind(self.key(device.target().key)?).bind(element.as_bytes());
        let Some(row) = query.fetch_optional(&self.core.reads.get()).await.map_err(failed)? else { return Ok(None) };
        let values = LastKept::from_bytes(row.column(1)?).values();
        Ok(Some(LastValues { updated_at: moment(row.order(0)?), values }))
    }

    async fn series(&self, device: &CanRead<DeviceRef>) -> Result<Vec<Series>> {
        let series = self.series_stored(device).await?.into_iter().map(|series| Series {
            element: series.element,
            created_at: series.created,
            updated_at: moment(series.order),
            count: series.count,
            bytes: series.bytes,
        });
        Ok(series.collect())
    }

    async fn visible_bytes(&self, device: &CanRead<DeviceRef>, kept: Vec<(Arc<str>, Kept)>) -> Result<u64> {
        let kept: HashMap<Arc<str>, Kept> = kept.into_iter().collect();
        let mut bytes = 0;
        for series in self.series_stored(device).await? {
            let found = FoundSeries { number: series.number, floor: series.floor, count: series.count };
            let first = match kept.get(&series.element) {
                Some(kept) => found.first_kept(&self.core.reads.get(), kept).await?,
                None => series.floor,
            };
            let (hidden, of) = (first.saturating_sub(series.floor), series.count - series.floor);
            bytes += series.bytes - share_of_bytes(series.bytes, hidden, of);
        }
        Ok(bytes)
    }

    async fn series_delete(&self, device: &CanWrite<DeviceRef>, element: Option<&str>) -> Result<bool> {
        self.core.delete_series(device, element).await
    }

    async fn series_retain(
        &self,
        device: &CanWrite<DeviceRef>,
        kept: Vec<(Arc<str>, Kept)>,
        exactly: bool,
    ) -> Result<bool> {
        self.core.drop_past(device, &kept, exactly).await
    }

    async fn history(&self, device: &CanRead<DeviceRef>, query: HistoryQuery, claim: Claim) -> Result<Page<Event>> {
        let _slot = match query.page.limit > SHORT_PAGE {
            true => Some(self.parts.scans.take(claim).await?),
            false => None,
        };
        self.core.history_page(*device.target(), &query).await
    }

    async fn history_event(&self, device: &CanRead<DeviceRef>, id: EventId) -> Result<Option<Event>> {
        self.core.event(*device.target(), id).await
    }

    async fn history_position(&self, id: EventId) -> Result<StreamPosition> {
        self.core.position_of(id).await
    }

    fn position_order(&self) -> PositionOrder {
        PositionOrder::Postgres
    }

    async fn history_between(
        &self,
        devices: &Followed,
        after: StreamPosition,
        until: StreamPosition,
        limit: usize,
        claim: Claim,
    ) -> Result<StreamCursor> {
        let _slot = self.parts.scans.take(claim).await?;
        self.core.between(devices, after, until, limit).await
    }

    async fn history_next(
        &self,
        cursor: &mut StreamCursor,
        written: (usize, EventWriter),
        claim: Claim,
    ) -> Result<StreamPiece> {
        let _slot = self.parts.scans.take(claim).await?;
        let next: Vec<_> = cursor.found.iter().take(EVENTS_A_PIECE).copied().collect();
        let (bytes, write) = written;
        let (events, read) = self.core.next(&cursor.devices, &next, bytes).await?;
        // Thousands at a time would block the thread that serves calls.
        let encode = move || encoded(events, write);
        let piece = self.parts.scan_threads.spawn(encode).await.map_err(StoreError::unavailable)?;
        cursor.found.drain(..read);
        Ok(piece)
    }

    fn is_followed(&self) -> bool {
        self.core.live.is_any()
    }

    fn follow(&self) -> Following {
        self.core.live.follow()
    }

    async fn follow_from(&self, position: StreamPosition) -> Result<Following> {
        self.core.live.follow_from(position).await
    }

    fn newest_event(&self) -> EventId {
        self.core.live.newest()
    }

    async fn queue_peek(&self, device: &CanRead<DeviceRef>, query: QueueQuery) -> Result<Vec<Event>> {
        self.core.peek_queue(device, &query).await
    }

    async fn queue_take_while(
        &self,
        device: &CanWrite<DeviceRef>,
        query: QueueQuery,
        may: Box<dyn Fn(usize) -> bool + Send>,
    ) -> Result<Option<Vec<Event>>> {
        self.core.take_queued(device, query, may).await
    }

    async fn queue_delete(&self, device: &CanWrite<DeviceRef>, id: EventId) -> Result<bool> {
        self.core.delete_queued(device, id).await
    }

    async fn forget(&self, device: &CanWrite<DeviceRef>) -> Result<()> {
        self.core.forget_device(device).await
    }

    async fn retain(&self, now: Timestamp, running: Duration, history_seconds: i64) -> Result<Timestamp> {
        self.core.retain_history(now, running, history_seconds).await
    }

    fn outbox_number(&self) -> u64 {
        self.core.numbers.next().unsigned_abs()
    }

    async fn outbox(&self, after: u64, limit: usize) -> Result<Vec<OutboxEntry>> {
        self.core.entries(after, limit).await
    }

    async fn outbox_done(&self, done: &[(DeviceKey, u64)]) -> Result<Vec<(DeviceKey, u64)>> {
        self.core.entries_done(done).await.map(|()| Vec::new())
    }

    async fn outbox_park(&self, _device: DeviceKey, number: u64, why: &str) -> Result<()> {
        self.core.park(number, why).await
    }

    async fn sync(&self) -> Result<()> {
        self.core.committer.must_be_open()?;
        self.core.committer.sync().await
    }

    fn shared(&self) -> Option<&dyn SharedTelemetry> {
        Some(self)
    }

    fn databases(&self) -> Vec<(u16, Arc<str>)> {
        vec![(self.core.database, self.name())]
    }

    async fn healthy(&self) -> Result<()> {
        self.core.committer.must_be_open()?;
        if *self.has_failed.borrow() {
            return Err(StoreError::unavailable(CommitterFailed));
        }
        must_take_writes(&self.core.reads.get()).await?;
        if self.core.committer.is_doubtful() {
            must_have_room(&self.core.changes.get()).await?;
            self.core.committer.note_proof();
        }
        Ok(())
    }

    fn stalled_streams(&self) -> Vec<(u16, Duration)> {
        self.core.live.stalled_for().map(|time| (self.core.database, time)).into_iter().collect()
    }

    async fn failed(&self) -> StoreError {
        let mut has_failed = self.has_failed.clone();
        if has_failed.wait_for(|has_failed| *has_failed).await.is_err() {
            // The store was closed, and fails no more.
            std::future::pending::<()>().await;
        }
        StoreError::unavailable(CommitterFailed)
    }

    async fn close(&self) -> Result<()> {
        let Some(StoreTasks { committer, others }) = self.tasks.lock().take() else { return Ok(()) };
        self.core.committer.close();
        let ended = committer.await;
        others.iter().for_each(tokio::task::JoinHandle::abort);
        let leaves = self.core.live.away().ask(self.core.leave_nodes());
        match Clock::System.timeout(LEFT_WITHIN, leaves).await.map_err(StoreError::unavailable) {
            Ok(Ok(())) => {}
            Ok(Err(error)) | Err(error) => {
                tracing::warn!(%error, "cannot tell other processes that this one ends, they will notice");
            }
        }
        futures::join!(self.core.reads.close(), self.core.changes.close(), self.core.groups.close());
        ended.map_err(StoreError::unavailable)
    }
}
