//! Reads the history of devices.

use std::ops::Range;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::TryStreamExt as _;
use isobar_model::event::{Event, EventError};
use isobar_model::ids::{DeviceId, DeviceRef, EventId};
use isobar_model::json::RawJson;
use isobar_model::page::{Page, TimeRange};
use isobar_model::time::Timestamp;
use sqlx::postgres::PgRow;

use super::PgCore;
use super::connections::{ReadColumn as _, failed};
use super::memory::kind_of_number;
use crate::error::{Result, StoreError};
use crate::telemetry::HistoryQuery;
use crate::telemetry::page_budget::PageBudget;
use crate::telemetry::ready_query::orders;
use crate::telemetry::time_order::{TimeOrder, moment, order_at, order_of};

/// Counts the events of a range, from the numbers of its first and its last event of each kind.
const COUNTED: &str = "SELECT coalesce(sum(b.n - a.n + 1), 0)::bigint FROM unnest($2::smallint[]) AS k(kind) \
    CROSS JOIN LATERAL (SELECT n FROM telemetry.event WHERE device = $1 AND kind = k.kind AND ord >= $3 AND ord < $4 \
        ORDER BY ord LIMIT 1) a \
    CROSS JOIN LATERAL (SELECT n FROM telemetry.event WHERE device = $1 AND kind = k.kind AND ord >= $3 AND ord < $4 \
        ORDER BY ord DESC LIMIT 1) b";
/// Reads a page of a range, newest first.
const HISTORY_PAGE: &str = "WITH page AS MATERIALIZED (SELECT u.kind, u.ord FROM unnest($2::smallint[]) AS k(kind) \
    CROSS JOIN LATERAL (SELECT e.kind, e.ord FROM telemetry.event e WHERE e.device = $1 AND e.kind = k.kind \
        AND e.ord >= $3 AND e.ord < $4 ORDER BY e.ord DESC LIMIT $5::bigint + $6::bigint) u \
    ORDER BY u.ord DESC, u.kind DESC OFFSET $5 LIMIT $6) \
    SELECT e.kind, e.ord, e.id, e.element, e.payload, e.errors FROM page p \
    JOIN telemetry.event e ON e.device = $1 AND e.kind = p.kind AND e.ord = p.ord ORDER BY p.ord DESC, p.kind DESC";
/// Finds an event by its identifier, first where it is its position in time.
const AT_ITS_ID: &str = "SELECT kind, ord, id, element, payload, errors FROM telemetry.event \
    WHERE device = $1 AND kind IN (0, 1) AND ord = $2 AND id IS NULL";
const BY_ID: &str = "SELECT kind, ord, id, element, payload, errors FROM telemetry.event WHERE device = $1 AND id = $2";

/// Reads an event from the columns kind, ord, id, element, payload, errors.
pub fn read_event(row: &PgRow, device: DeviceId) -> Result<Event> {
    let order = row.order(1)?;
    let errors = match row.column::<Option<&str>>(5)? {
        None => Vec::new(),
        Some(errors) => serde_json::from_str::<Vec<EventError>>(errors)
            .map_err(|_| StoreError::Damaged("errors of an event cannot be read".to_owned()))?,
    };
    Ok(Event {
        id: row.id(2, order)?,
        received_at: moment(order),
        kind: kind_of_number(row.column(0)?),
        device,
        element: row.name(3)?,
        payload: RawJson::trusted(Bytes::copy_from_slice(row.column(4)?)),
        errors,
    })
}

impl PgCore {
    /// Returns the range of time that readers may see.
    pub fn visible(&self, range: TimeRange, not_before: Timestamp) -> Range<TimeOrder> {
        let cutoff = Timestamp::from_millis(self.cutoff.load(Ordering::Acquire));
        let range = orders(range);
        range.start.max(order_at(not_before)).max(order_at(cutoff))..range.end
    }

    /// Reads a page of a device's history, newest first.
    pub async fn history_page(&self, device: DeviceRef, query: &HistoryQuery) -> Result<Page<Event>> {
        let range = self.visible(query.range, query.not_before);
        let kinds = [(0_i16, query.device_events), (1, query.cloud_events)];
        let kinds: Vec<i16> = kinds.into_iter().filter(|(_, wanted)| *wanted).map(|(kind, _)| kind).collect();
        let (from, to) = (range.start.to_be_bytes(), range.end.to_be_bytes());
        let key = self.key(device.key)?;
        let counted = sqlx::query(COUNTED).bind(key).bind(&kinds).bind(from).bind(to);
        let total = counted.fetch_one(&self.reads.get()).await.map_err(failed)?.count(0)?;
        let (mut events, mut budget) = (Vec::new(), PageBudget::default());
        let offset = query.page.offset();
        if offset < total {
            let page = sqlx::query(HISTORY_PAGE).bind(key).bind(&kinds).bind(from).bind(to);
            let mut rows = page.bind(offset as i64).bind(i64::from(query.page.limit)).fetch(&self.reads.get());
            while let Some(row) = rows.try_next().await.map_err(failed)? {
                let event = read_event(&row, device.id)?;
                budget.take(event.payload.bytes().len())?;
                events.push(event);
            }
        }
        Ok(Page::new(events, total, query.page))
    }

    /// Reads one event of a device.
    pub async fn event(&self, device: DeviceRef, id: EventId) -> Result<Option<Event>> {
        if order_of(id) < self.visible(TimeRange::default(), Timestamp::default()).start {
            return Ok(None);
        }
        for query in [AT_ITS_ID, BY_ID] {
            let query = sqlx::query(query).bind(self.key(device.key)?).bind(&id.bytes()[..]);
            if let Some(row) = query.fetch_optional(&self.reads.get()).await.map_err(failed)? {
                return read_event(&row, device.id).map(Some);
            }
        }
        Ok(None)
    }
}
