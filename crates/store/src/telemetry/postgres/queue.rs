//! Reads and removes the queued cloud events of devices.

use bytes::Bytes;
use futures::TryStreamExt as _;
use isobar_model::access::{CanRead, CanWrite};
use isobar_model::event::{Event, EventType};
use isobar_model::ids::{DeviceId, DeviceRef, EventId};
use isobar_model::json::RawJson;
use sqlx::postgres::PgRow;

use super::PgCore;
use super::connections::{ReadColumn as _, failed};
use super::turn::PostgresTurn;
use crate::error::{Result, StoreError};
use crate::telemetry::page_budget::{PageBudget, written_bytes};
use crate::telemetry::time_order::id_of;
use crate::telemetry::{QueueQuery, TURNS_MAX};

/// Reads the queue of a device, oldest first: the events of one element, if it is given.
const QUEUE: &str = "SELECT n, id, element, payload, expires FROM telemetry.queue \
    WHERE device = $1 AND ($2::bytea IS NULL OR element = $2) ORDER BY n";
/// Reads a page of it, without events that have expired.
const QUEUE_PAGE: &str = "SELECT n, id, element, payload, expires FROM telemetry.queue \
    WHERE device = $1 AND ($2::bytea IS NULL OR element = $2) AND (expires IS NULL OR expires > $3) \
    ORDER BY n OFFSET $4 LIMIT $5";

/// Events that are to be taken.
#[derive(Default)]
struct QueueFinds {
    events: Vec<Event>,
    /// Their numbers, and those of expired events that were passed.
    numbers: Vec<u64>,
}

fn read_queued_event(row: &PgRow, device: DeviceId) -> Result<Event> {
    let id = id_of(row.order(1)?);
    Ok(Event {
        id,
        received_at: id.minted_at(),
        kind: EventType::CloudEvent,
        device,
        element: row.name(2)?,
        payload: RawJson::trusted(Bytes::copy_from_slice(row.column(3)?)),
        errors: Vec::new(),
    })
}

impl PgCore {
    /// Reads events and leaves them in the queue.
    pub async fn peek_queue(&self, permit: &CanRead<DeviceRef>, query: &QueueQuery) -> Result<Vec<Event>> {
        let device = permit.target();
        let page =
            sqlx::query(QUEUE_PAGE).bind(self.key(device.key)?).bind(query.element.as_deref().map(str::as_bytes));
        let page = page.bind(query.now.millis()).bind(query.page.offset() as i64).bind(i64::from(query.page.limit));
        let (mut rows, mut events, mut budget) = (page.fetch(&self.reads.get()), Vec::new(), PageBudget::of_queue());
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            let event = read_queued_event(&row, device.id)?;
            budget.take(event.payload.bytes().len())?;
            events.push(event);
        }
        Ok(events)
    }

    /// Finds the events of a page that can be taken, and expired ones before them.
    async fn find_queued(&self, device: DeviceRef, query: &QueueQuery) -> Result<QueueFinds> {
        let queue = sqlx::query(QUEUE).bind(self.key(device.key)?).bind(query.element.as_deref().map(str::as_bytes));
        let (mut rows, mut found) = (queue.fetch(&self.reads.get()), QueueFinds::default());
        let (mut skip, mut budget) = (query.page.offset(), PageBudget::of_queue());
        while found.events.len() < query.page.limit as usize
            && let Some(row) = rows.try_next().await.map_err(failed)?
        {
            if row.column::<Option<i64>>(4)?.is_some_and(|expires| expires <= query.now.millis()) {
                found.numbers.push(row.count(0)?);
                continue;
            }
            if skip > 0 {
                skip -= 1;
                continue;
            }
            let event = read_queued_event(&row, device.id)?;
            if budget.take(event.payload.bytes().len()).is_err() {
                // The others stay for the next reader.
                break;
            }
            found.numbers.push(row.count(0)?);
            found.events.push(event);
        }
        Ok(found)
    }

    /// Takes events; expired ones that are passed are removed too. `None` if `may` returns false.
    pub async fn take_queued(
        &self,
        permit: &CanWrite<DeviceRef>,
        query: QueueQuery,
        may: Box<dyn Fn(usize) -> bool + Send>,
    ) -> Result<Option<Vec<Event>>> {
        for _ in 0..TURNS_MAX {
            let mut turn = self.turn(permit).await?;
            if !may(0) {
                return Ok(None);
            }
            let taken = self.find_queued(*permit.target(), &query).await?;
            if taken.numbers.is_empty() {
                return Ok(Some(Vec::new()));
            }
            if !may(taken.events.iter().map(written_bytes).sum()) {
                return Ok(None);
            }
            match self.remove_queued(&mut turn, &taken.numbers).await {
                Err(StoreError::Conflict) => {}
                removed => return removed.map(|()| Some(taken.events)),
            }
        }
        Err(StoreError::Busy)
    }

    async fn remove_queued(&self, turn: &mut PostgresTurn, numbers: &[u64]) -> Result<()> {
        let mut committed = turn.change(|memory, writes| memory.take(numbers, writes))?;
        committed.durable.wait().await
    }

    /// Removes one event.
    pub async fn delete_queued(&self, permit: &CanWrite<DeviceRef>, id: EventId) -> Result<bool> {
        for _ in 0..TURNS_MAX {
            let mut turn = self.turn(permit).await?;
            let query = sqlx::query("SELECT n FROM telemetry.queue WHERE device = $1 AND id = $2 ORDER BY n LIMIT 1");
            let query = query.bind(self.key(permit.target().key)?).bind(&id.bytes()[..]);
            let Some(row) = query.fetch_optional(&self.reads.get()).await.map_err(failed)? else { return Ok(false) };
            match self.remove_queued(&mut turn, &[row.count(0)?]).await {
                Err(StoreError::Conflict) => {}
                removed => return removed.map(|()| true),
            }
        }
        Err(StoreError::Busy)
    }
}
