//! The port to the telemetry store, over several databases: calls for a device go to its database.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use isobar_model::access::{CanRead, CanWrite};
use isobar_model::event::{Event, LastValues, StoredValue};
use isobar_model::ids::{DeviceKey, DeviceRef, EventId};
use isobar_model::page::{Page, TimeRange};
use isobar_model::retention::Kept;
use isobar_model::time::{Clock, Timestamp};
use isobar_quota::Claim;

use super::SpreadTelemetry;
use super::live::SpreadEvents;
use super::member::Member;
use crate::error::{Result, StoreError};
use crate::telemetry::{
    Buckets, EventWriter, Followed, Following, HistoryQuery, Locked, OutboxEntry, PositionOrder, QueueQuery, Series,
    SharedTelemetry, StreamCursor, StreamPiece, StreamPosition, Telemetry, Turn, ValueChunk, ValueCursor, ValueQuery,
};

/// Time that a database has to remove entries of the outbox.
const REMOVED_WITHIN: Duration = Duration::from_secs(2);

/// Asks the database of a device.
macro_rules! ask {
    ($spread:ident, $device:ident, $method:ident($($argument:expr),*)) => {{
        let member = $spread.of($device.target().key)?;
        member.ask(member.store().$method($device, $($argument),*)).await
    }};
}

#[async_trait]
impl Telemetry for SpreadTelemetry {
    async fn lock(&self, device: &CanWrite<DeviceRef>) -> Result<Turn> {
        ask!(self, device, lock())
    }

    fn lock_now(&self, device: &CanWrite<DeviceRef>) -> Result<Option<Turn>> {
        self.of(device.target().key)?.here()?.lock_now(device)
    }

    async fn lock_unless_repeated(
        &self,
        device: &CanWrite<DeviceRef>,
        idempotency_key: &str,
        now: Timestamp,
    ) -> Result<Locked> {
        ask!(self, device, lock_unless_repeated(idempotency_key, now))
    }

    async fn values(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        query: ValueQuery,
        claim: Claim,
    ) -> Result<Option<Page<StoredValue>>> {
        ask!(self, device, values(element, query, claim))
    }

    async fn values_chunk(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        query: &ValueQuery,
        cursor: Option<ValueCursor>,
        claim: Claim,
    ) -> Result<Option<ValueChunk>> {
        ask!(self, device, values_chunk(element, query, cursor, claim))
    }

    async fn buckets(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        kept: &Kept,
        buckets: Buckets,
        claim: Claim,
    ) -> Result<(Buckets, bool)> {
        ask!(self, device, buckets(element, kept, buckets, claim))
    }

    async fn extent(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        kept: &Kept,
        range: TimeRange,
        claim: Claim,
    ) -> Result<Option<(Timestamp, Timestamp)>> {
        ask!(self, device, extent(element, kept, range, claim))
    }

    async fn last(&self, device: &CanRead<DeviceRef>, element: &str) -> Result<Option<LastValues>> {
        ask!(self, device, last(element))
    }

    async fn series(&self, device: &CanRead<DeviceRef>) -> Result<Vec<Series>> {
        ask!(self, device, series())
    }

    async fn visible_bytes(&self, device: &CanRead<DeviceRef>, kept: Vec<(Arc<str>, Kept)>) -> Result<u64> {
        ask!(self, device, visible_bytes(kept))
    }

    async fn series_delete(&self, device: &CanWrite<DeviceRef>, element: Option<&str>) -> Result<bool> {
        ask!(self, device, series_delete(element))
    }

    async fn series_retain(
        &self,
        device: &CanWrite<DeviceRef>,
        kept: Vec<(Arc<str>, Kept)>,
        exactly: bool,
    ) -> Result<bool> {
        ask!(self, device, series_retain(kept, exactly))
    }

    async fn history(&self, device: &CanRead<DeviceRef>, query: HistoryQuery, claim: Claim) -> Result<Page<Event>> {
        ask!(self, device, history(query, claim))
    }

    async fn history_event(&self, device: &CanRead<DeviceRef>, id: EventId) -> Result<Option<Event>> {
        ask!(self, device, history_event(id))
    }

    async fn history_position(&self, id: EventId) -> Result<StreamPosition> {
        match self.merged() {
            Some(events) => self.position(events, id).await,
            None => self.first().ask(self.first().store().history_position(id)).await,
        }
    }

    fn position_order(&self) -> PositionOrder {
        if self.merged().is_some() { PositionOrder::Spread } else { PositionOrder::Postgres }
    }

    async fn history_between(
        &self,
        devices: &Followed,
        after: StreamPosition,
        until: StreamPosition,
        limit: usize,
        claim: Claim,
    ) -> Result<StreamCursor> {
        match self.merged() {
            Some(events) => self.between((events, devices), (after, until), limit, claim).await,
            None => {
                let found = self.first().store().history_between(devices, after, until, limit, claim);
                self.first().ask(found).await
            }
        }
    }

    async fn history_next(
        &self,
        cursor: &mut StreamCursor,
        written: (usize, EventWriter),
        claim: Claim,
    ) -> Result<StreamPiece> {
        match self.merged() {
            Some(_) => self.next(cursor, written, claim).await,
            None => self.first().ask(self.first().store().history_next(cursor, written, claim)).await,
        }
    }

    fn is_followed(&self) -> bool {
        self.merged().map_or_else(|| self.first().store().is_followed(), SpreadEvents::is_any)
    }

    fn follow(&self) -> Following {
        self.merged().map_or_else(|| self.first().store().follow(), SpreadEvents::follow)
    }

    async fn follow_from(&self, position: StreamPosition) -> Result<Following> {
        match self.merged() {
            Some(events) => events.follow_from(position).await,
            None => self.first().ask(self.first().store().follow_from(position)).await,
        }
    }

    fn newest_event(&self) -> EventId {
        self.newest()
    }

    async fn queue_peek(&self, device: &CanRead<DeviceRef>, query: QueueQuery) -> Result<Vec<Event>> {
        ask!(self, device, queue_peek(query))
    }

    async fn queue_take_while(
        &self,
        device: &CanWrite<DeviceRef>,
        query: QueueQuery,
        may: Box<dyn Fn(usize) -> bool + Send>,
    ) -> Result<Option<Vec<Event>>> {
        ask!(self, device, queue_take_while(query, may))
    }

    async fn queue_delete(&self, device: &CanWrite<DeviceRef>, id: EventId) -> Result<bool> {
        ask!(self, device, queue_delete(id))
    }

    async fn forget(&self, device: &CanWrite<DeviceRef>) -> Result<()> {
        ask!(self, device, forget())
    }

    async fn retain(&self, now: Timestamp, running: Duration, history_seconds: i64) -> Result<Timestamp> {
        let (trusted, outcome) = self.ask_all(|store| store.retain(now, running, history_seconds)).await;
        // The earliest of them: nothing is removed that any database thinks too new.
        let earliest = trusted.into_iter().map(|(_, trusted)| trusted).min();
        if let Some(events) = self.merged() {
            events.forget_marks().await;
        }
        match (earliest, outcome) {
            (Some(earliest), Ok(())) => Ok(earliest),
            (Some(earliest), Err(error)) => {
                tracing::warn!(%error, "cannot remove old history of a database, will retry");
                Ok(earliest)
            }
            (None, outcome) => outcome.map(|()| now),
        }
    }

    fn outbox_number(&self) -> u64 {
        self.parts.numbers.next().unsigned_abs()
    }

    async fn outbox(&self, after: u64, limit: usize) -> Result<Vec<OutboxEntry>> {
        let (found, outcome) = self.ask_all(|store| store.outbox(after, limit)).await;
        // An entry that is not returned would be skipped for ever.
        outcome?;
        let entries = found.into_iter().flat_map(|(_, entries)| entries);
        let by_number: BTreeMap<u64, OutboxEntry> = entries.map(|entry| (entry.number, entry)).collect();
        Ok(by_number.into_values().take(limit).collect())
    }

    async fn outbox_done(&self, done: &[(DeviceKey, u64)]) -> Result<Vec<(DeviceKey, u64)>> {
        let asked = self.sorted(done, |(device, _)| *device)?.into_iter().map(|(member, done)| async move {
            let done: Vec<(DeviceKey, u64)> = done.into_iter().map(|(_, done)| done).collect();
            // Entries of the others do not wait for a database whose commits hang.
            let removed = Clock::System.timeout(REMOVED_WITHIN, member.ask(member.store().outbox_done(&done))).await;
            match removed.unwrap_or(Err(StoreError::Busy)) {
                Ok(left) => left,
                Err(error) => {
                    if member.here().is_ok() {
                        let database = member.name();
                        tracing::warn!(%error, %database, "cannot remove entries of the outbox, will retry");
                    }
                    done
                }
            }
        });
        Ok(futures::future::join_all(asked).await.concat())
    }

    async fn outbox_park(&self, device: DeviceKey, number: u64, why: &str) -> Result<()> {
        let member = self.of(device)?;
        member.ask(member.store().outbox_park(device, number, why)).await
    }

    async fn sync(&self) -> Result<()> {
        self.ask_all(|store| store.sync()).await.1
    }

    fn shared(&self) -> Option<&dyn SharedTelemetry> {
        Some(self)
    }

    fn must_reach(&self, device: DeviceKey) -> Result<()> {
        self.of(device)?.here().map(drop)
    }

    fn databases(&self) -> Vec<(u16, Arc<str>)> {
        self.members.iter().map(|member| (member.number(), Arc::clone(member.name()))).collect()
    }

    async fn database_healthy(&self, number: u16) -> Result<()> {
        let member = self.of(DeviceKey::new(number, 0))?;
        member.ask(member.store().healthy()).await
    }

    async fn healthy(&self) -> Result<()> {
        let asked = self.members.iter().map(|member| {
            Box::pin(async move { member.ask(member.store().healthy()).await.map_err(|error| member.named(error)) })
        });
        futures::future::select_ok(asked).await.map(drop)
    }

    fn stalled_streams(&self) -> Vec<(u16, Duration)> {
        self.members.iter().flat_map(|member| member.store().stalled_streams()).collect()
    }

    /// Waits until the store in any of the databases has failed. One that is away has not: it comes back by itself. What has
    /// failed does so only when it is opened again, with all others.
    async fn failed(&self) -> StoreError {
        let failing =
            self.members.iter().map(|member| Box::pin(async move { member.named(member.store().failed().await) }));
        futures::future::select_all(failing).await.0
    }

    async fn close(&self) -> Result<()> {
        if let Some(merged) = &self.merged {
            merged.sends.abort();
        }
        futures::future::join_all(self.members.iter().map(Member::close)).await.into_iter().collect()
    }
}
