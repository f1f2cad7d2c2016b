//! The port to the telemetry store, as this adapter carries it out.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use isobar_model::access::{CanRead, CanWrite};
use isobar_model::event::{Event, LastValues, StoredValue};
use isobar_model::ids::{DeviceKey, DeviceRef, EventId};
use isobar_model::page::{Page, TimeRange};
use isobar_model::retention::Kept;
use isobar_model::time::Timestamp;

use super::bucket_scan::BucketScan;
use super::catch_up::{self, Search};
use super::device::{DeviceState, SeriesState};
use super::rows::failed;
use super::scanning::Scan;
use super::turn::KeyAnswer;
use super::{Cancel, Core, Embedded, engine, export, history, load, outbox, retention, values};
use crate::error::{Result, StoreError};
use crate::telemetry::ready_query::ReadyQuery;
use crate::telemetry::{
    Buckets, EventWriter, Followed, Following, HistoryQuery, Locked, OutboxEntry, PositionOrder, QueueQuery, Series,
    StreamCursor, StreamPiece, StreamPosition, Telemetry, Turn, ValueChunk, ValueCursor, ValueQuery,
};
use isobar_quota::Claim;

/// A page of more items waits for a slot too.
const PAGE_AT_ONCE: u32 = 1_000;
/// Events of a cursor that are read at a time.
const EVENTS_AT_ONCE: usize = 500;

#[async_trait]
impl Telemetry for Embedded {
    fn lock_now(&self, device: &CanWrite<DeviceRef>) -> Result<Option<Turn>> {
        match self.core.devices.lock_now(device.target().key.0, device.tenant()) {
            Some(held) => self.core.turn(held, device.tenant()).map(Some),
            None => Ok(None),
        }
    }

    async fn lock(&self, device: &CanWrite<DeviceRef>) -> Result<Turn> {
        let held = self.hold(device.target().key, device.tenant()).await?;
        self.core.turn(held, device.tenant())
    }

    async fn lock_unless_repeated(
        &self,
        device: &CanWrite<DeviceRef>,
        idempotency_key: &str,
        now: Timestamp,
    ) -> Result<Locked> {
        let held = self.hold(device.target().key, device.tenant()).await?;
        match Box::pin(self.answer(held, idempotency_key, now)).await? {
            KeyAnswer::Known(first) => Ok(Locked::Repeated(first)),
            KeyAnswer::Unknown(held) => self.core.turn(held, device.tenant()).map(Locked::Turn),
        }
    }

    async fn values(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        query: ValueQuery,
        claim: Claim,
    ) -> Result<Option<Page<StoredValue>>> {
        let (device, element) = (device.target().key.0, element.to_owned());
        let (is_long, ready) = (query.page.limit > PAGE_AT_ONCE, ReadyQuery::of(query));
        if ready.scans() {
            let slot = self.scans.take(claim).await?;
            return self.in_slices(slot, Scan::new(device, element, Arc::new(ready))).await;
        }
        let page = move |core: &Core, _: &Cancel| values::page(&core.db, device, &element, &ready);
        if is_long { self.in_slot(self.scans.take(claim).await?, page).await } else { self.reading(page).await }
    }

    async fn values_chunk(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        query: &ValueQuery,
        cursor: Option<ValueCursor>,
        claim: Claim,
    ) -> Result<Option<ValueChunk>> {
        let (device, element) = (device.target().key.0, element.to_owned());
        let ready = ReadyQuery::of(query.clone());
        // One slot a piece: a long series lets others in between.
        let slot = self.scans.take(claim).await?;
        self.in_slot(slot, move |core, _| export::chunk(&core.db, device, &element, &ready, cursor)).await
    }

    async fn buckets(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        kept: &Kept,
        buckets: Buckets,
        claim: Claim,
    ) -> Result<(Buckets, bool)> {
        let series = (device.target().key.0, Arc::from(element));
        let scan = BucketScan::new(claim.holder, series, kept.clone(), buckets);
        self.in_slices(self.scans.take(claim).await?, scan).await
    }

    async fn extent(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        kept: &Kept,
        range: TimeRange,
        claim: Claim,
    ) -> Result<Option<(Timestamp, Timestamp)>> {
        let (device, element) = (device.target().key.0, element.to_owned());
        let ready = ReadyQuery::of_all(range, Vec::new(), kept.clone());
        let slot = self.scans.take(claim).await?;
        self.in_slot(slot, move |core, _| values::extent(&core.db, device, &element, &ready)).await
    }

    async fn last(&self, device: &CanRead<DeviceRef>, element: &str) -> Result<Option<LastValues>> {
        let (key, name) = (device.target().key, element.to_owned());
        let look = |state: &DeviceState| state.find(element).map(SeriesState::last_values);
        self.peek(key, look, move |db| Ok(load::one_series(db, key.0, &name)?.map(|series| series.last_values()))).await
    }

    async fn series(&self, device: &CanRead<DeviceRef>) -> Result<Vec<Series>> {
        let key = device.target().key;
        let list = |series: &[SeriesState]| {
            let mut list: Vec<_> = series.iter().map(SeriesState::series).collect();
            list.sort_unstable_by(|left, right| left.element.cmp(&right.element));
            list
        };
        self.peek(key, |state| list(&state.series), move |db| Ok(list(&load::series(db, key.0)?))).await
    }

    async fn visible_bytes(&self, device: &CanRead<DeviceRef>, kept: Vec<(Arc<str>, Kept)>) -> Result<u64> {
        self.bytes_shown(device, kept).await
    }

    async fn series_delete(&self, device: &CanWrite<DeviceRef>, element: Option<&str>) -> Result<bool> {
        self.delete_series(device, element).await
    }

    async fn series_retain(
        &self,
        device: &CanWrite<DeviceRef>,
        kept: Vec<(Arc<str>, Kept)>,
        exactly: bool,
    ) -> Result<bool> {
        self.drop_not_kept(device, kept, exactly).await
    }

    async fn history(&self, device: &CanRead<DeviceRef>, query: HistoryQuery, claim: Claim) -> Result<Page<Event>> {
        let device = *device.target();
        let is_long = query.page.limit > PAGE_AT_ONCE;
        let page = move |core: &Core, _: &Cancel| history::page(core, device, &query);
        if is_long { self.in_slot(self.scans.take(claim).await?, page).await } else { self.reading(page).await }
    }

    async fn history_event(&self, device: &CanRead<DeviceRef>, id: EventId) -> Result<Option<Event>> {
        let device = *device.target();
        self.reading(move |core, _| history::event(core, device, id)).await
    }

    async fn history_position(&self, id: EventId) -> Result<StreamPosition> {
        self.reading(move |core, _| catch_up::position(&core.db, id)).await
    }

    fn position_order(&self) -> PositionOrder {
        PositionOrder::Embedded
    }

    async fn history_between(
        &self,
        devices: &Followed,
        after: StreamPosition,
        until: StreamPosition,
        limit: usize,
        claim: Claim,
    ) -> Result<StreamCursor> {
        let slot = self.scans.take(claim).await?;
        self.in_slices(slot, Search::new(devices.clone(), after..until, limit)).await
    }

    async fn history_next(
        &self,
        cursor: &mut StreamCursor,
        (bytes, write): (usize, EventWriter),
        claim: Claim,
    ) -> Result<StreamPiece> {
        let slot = self.scans.take(claim).await?;
        let next: Vec<_> = cursor.found.iter().take(EVENTS_AT_ONCE).copied().collect();
        let devices = cursor.devices.clone();
        let read = move |core: &Core, _: &_| catch_up::next(core, &devices, &next, (bytes, write));
        let (piece, read) = self.in_slot(slot, read).await?;
        cursor.found.drain(..read);
        Ok(piece)
    }

    fn is_followed(&self) -> bool {
        self.core.shared.followers.is_any()
    }

    fn follow(&self) -> Following {
        self.core.shared.follow()
    }

    async fn queue_peek(&self, device: &CanRead<DeviceRef>, query: QueueQuery) -> Result<Vec<Event>> {
        self.peek_queue(device, query).await
    }

    async fn queue_take_while(
        &self,
        device: &CanWrite<DeviceRef>,
        query: QueueQuery,
        may: Box<dyn Fn(usize) -> bool + Send>,
    ) -> Result<Option<Vec<Event>>> {
        self.take_from_queue(device, query, may).await
    }

    async fn queue_delete(&self, device: &CanWrite<DeviceRef>, id: EventId) -> Result<bool> {
        self.delete_from_queue(device, id).await
    }

    async fn forget(&self, device: &CanWrite<DeviceRef>) -> Result<()> {
        self.forget_device(device).await
    }

    async fn retain(&self, now: Timestamp, running: Duration, history_seconds: i64) -> Result<Timestamp> {
        self.reading(move |core, _| retention::retain(core, now, running, history_seconds)).await
    }

    fn outbox_number(&self) -> u64 {
        self.core.outbox.number()
    }

    async fn outbox(&self, after: u64, limit: usize) -> Result<Vec<OutboxEntry>> {
        self.reading(move |core, _| outbox::entries(core, after, limit)).await
    }

    async fn outbox_done(&self, done: &[(DeviceKey, u64)]) -> Result<Vec<(DeviceKey, u64)>> {
        let numbers: Vec<u64> = done.iter().map(|(_, number)| *number).collect();
        self.core.outbox_done(&numbers).map(|()| Vec::new())
    }

    async fn outbox_park(&self, _device: DeviceKey, number: u64, why: &str) -> Result<()> {
        self.core.outbox_park(number, why).await
    }

    async fn sync(&self) -> Result<()> {
        self.core.shared.healthy()?;
        self.core.shared.everything_durable().wait().await
    }

    async fn healthy(&self) -> Result<()> {
        self.core.shared.healthy()
    }

    async fn failed(&self) -> StoreError {
        self.core.shared.failed().await
    }

    async fn close(&self) -> Result<()> {
        let Some((mut worker, mut writer)) = self.threads.lock().take() else { return Ok(()) };
        let core = self.core.clone();
        let close = move || {
            worker.join();
            let healthy = core.shared.healthy();
            writer.join();
            healthy?;
            let families = engine::families(&core.db)?;
            let options = rocksdb::FlushOptions::default();
            core.db.flush_cfs_opt(&families, &options).map_err(failed)?;
            core.note.record_in_tables(core.db.latest_sequence_number()).map_err(StoreError::unavailable)
        };
        tokio::task::spawn_blocking(close).await.map_err(StoreError::unavailable)?
    }
}
