//! Finds the events between two places, for followers that were disconnected for a while.

use std::time::Duration;

use futures::TryStreamExt as _;
use isobar_model::event::Event;
use isobar_model::ids::EventId;
use isobar_model::page::TimeRange;
use isobar_model::time::{Clock, Timestamp};

use super::PgCore;
use super::connections::{ReadColumn as _, failed};
use super::history::read_event;
use super::live_events::EventPlace;
use crate::error::{Result, StoreError};
use crate::telemetry::follow::FoundEvent;
use crate::telemetry::time_order::{id_of, moment, order_of};
use crate::telemetry::{EventWriter, Followed, PieceEvent, StreamCursor, StreamPiece, StreamPosition};

/// Events that are looked at by one statement.
const LOOKED_AT: i64 = 20_000;
/// Time that a reader waits until the transactions before a place have ended, and (next constant) the pause between looks.
const COMPLETE_WITHIN: Duration = Duration::from_secs(10);
const COMPLETE_LOOK_EVERY: Duration = Duration::from_millis(5);

/// Looks at the events behind a place and up to another, in their order: those of some devices, and the last one.
const BETWEEN: &str = "WITH piece AS MATERIALIZED (SELECT xact, item, ord, device FROM telemetry.event \
        WHERE (xact, item) > ($1, $2) AND (xact, item) <= ($3, $4) AND ord >= $5 ORDER BY xact, item LIMIT $6), \
    wanted AS (SELECT g.device, g.place FROM unnest($7::bigint[]) WITH ORDINALITY AS g(device, place)) \
    (SELECT p.xact, p.item, p.ord, w.place FROM piece p JOIN wanted w USING (device) ORDER BY p.xact, p.item LIMIT $8) \
    UNION ALL \
    (SELECT xact, item, ord, NULL FROM piece ORDER BY xact DESC, item DESC LIMIT (SELECT (count(*) = $6)::int FROM piece))";
const PLACE: &str = "SELECT xact, item, ord FROM telemetry.event WHERE ord = $1 AND id IS NULL LIMIT 1";
const PLACE_BY_ID: &str = "SELECT xact, item, ord FROM telemetry.event WHERE id = $1 AND ord > $1 LIMIT 1";
/// Reads events by their places.
const AT_PLACES: &str = "SELECT e.kind, e.ord, e.id, e.element, e.payload, e.errors, g.place \
    FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::int[]) WITH ORDINALITY AS g(device, ord, xact, item, place) \
    JOIN telemetry.event e ON e.device = g.device AND e.kind IN (0, 1) AND e.ord = g.ord AND e.xact = g.xact \
        AND e.item = g.item ORDER BY g.place";

impl PgCore {
    /// Returns the position of an event, or else one behind all events if its identifier is greater than all, or that of
    /// the newest event before it.
    pub async fn position_of(&self, id: EventId) -> Result<StreamPosition> {
        if let Some(place) = self.place_of(id).await? {
            return Ok(place.position());
        }
        if !self.is_anything_from(id).await? {
            return Ok(EventPlace::end_of(i64::MAX, moment(order_of(id))).position());
        }
        let before =
            sqlx::query("SELECT xact FROM telemetry.event WHERE ord <= $1 AND ord >= $2 ORDER BY ord DESC LIMIT 1");
        let look_from = EventPlace { transaction: 0, item: 0, at: moment(order_of(id)) }.look_from();
        let row =
            before.bind(&id.bytes()[..]).bind(look_from).fetch_optional(&self.reads.get()).await.map_err(failed)?;
        let transaction = row.map_or(Ok(i64::MIN), |row| row.column(0))?;
        Ok(EventPlace::end_of(transaction, moment(order_of(id))).position())
    }

    /// Returns the place of an event, if it is there.
    pub async fn place_of(&self, id: EventId) -> Result<Option<EventPlace>> {
        for query in [PLACE, PLACE_BY_ID] {
            let row =
                sqlx::query(query).bind(&id.bytes()[..]).fetch_optional(&self.reads.get()).await.map_err(failed)?;
            if let Some(row) = row {
                let at = moment(row.order(2)?);
                return Ok(Some(EventPlace { transaction: row.column(0)?, item: row.column(1)?, at }));
            }
        }
        Ok(None)
    }

    /// Returns true if there has been an event with this identifier or a greater one.
    pub async fn is_anything_from(&self, id: EventId) -> Result<bool> {
        if id <= self.live.newest() {
            return Ok(true);
        }
        let query = sqlx::query("SELECT EXISTS (SELECT FROM telemetry.event WHERE ord >= $1)").bind(&id.bytes()[..]);
        query.fetch_one(&self.reads.get()).await.map_err(failed)?.column(0)
    }

    /// Waits until every transaction up to a place has ended.
    async fn complete(&self, until: EventPlace) -> Result<()> {
        let begun = Clock::System.instant();
        while self.live.horizon().await? <= until.transaction {
            if Clock::System.elapsed(begun) > COMPLETE_WITHIN {
                return Err(StoreError::Busy);
            }
            Clock::System.sleep(COMPLETE_LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Finds the first events of these devices between two positions.
    pub async fn between(
        &self,
        devices: &Followed,
        after: StreamPosition,
        until: StreamPosition,
        limit: usize,
    ) -> Result<StreamCursor> {
        let mut cursor = StreamCursor { devices: devices.clone(), found: std::collections::VecDeque::new(), until };
        if after >= until || devices.count() == 0 {
            return Ok(cursor);
        }
        let (mut from, end, limit) = (EventPlace::of(after), EventPlace::of(until), limit.max(1));
        self.complete(end).await?;
        let keys = devices.devices().iter().map(|device| self.key(device.key)).collect::<Result<Vec<i64>>>()?;
        let visible = self.visible(TimeRange::default(), Timestamp::default()).start.to_be_bytes();
        loop {
            let query =
                sqlx::query(BETWEEN).bind(from.transaction).bind(from.item).bind(end.transaction).bind(end.item);
            let query = query.bind(from.look_from().max(visible)).bind(LOOKED_AT).bind(&keys);
            let rows = query
                .bind(limit as i64 - cursor.found.len() as i64)
                .fetch_all(&self.reads.get())
                .await
                .map_err(failed)?;
            let mut last = None;
            for row in rows {
                let order = row.order(2)?;
                let place = EventPlace { transaction: row.column(0)?, item: row.column(1)?, at: moment(order) };
                match row.column::<Option<i64>>(3)? {
                    Some(index) => {
                        let found: FoundEvent = (place.position(), (index - 1) as u32, id_of(order));
                        cursor.found.push_back(found);
                    }
                    None => last = Some(place),
                }
            }
            if cursor.found.len() >= limit {
                cursor.until = cursor.found.back().map_or(until, |found| found.0);
                return Ok(cursor);
            }
            let Some(last) = last else { return Ok(cursor) };
            from = last;
        }
    }

    /// Reads the first of these events, of about this many bytes; also returns how many were read.
    pub async fn next(
        &self,
        devices: &Followed,
        found: &[FoundEvent],
        bytes: usize,
    ) -> Result<(Vec<(StreamPosition, Event)>, usize)> {
        let places: Vec<EventPlace> = found.iter().map(|(position, ..)| EventPlace::of(*position)).collect();
        let device = |index: u32| devices.devices().get(index as usize);
        let key = |index: u32| device(index).map_or(Ok(0), |device| self.key(device.key));
        let keys = found.iter().map(|(_, index, _)| key(*index)).collect::<Result<Vec<i64>>>()?;
        let query = sqlx::query(AT_PLACES)
            .bind(keys)
            .bind(found.iter().map(|(.., id)| *id.bytes()).collect::<Vec<_>>())
            .bind(places.iter().map(|place| place.transaction).collect::<Vec<_>>())
            .bind(places.iter().map(|place| place.item).collect::<Vec<_>>());
        let (mut events, mut read) = (Vec::new(), 0);
        let mut rows = query.fetch(&self.reads.get());
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            let at = usize::try_from(row.column::<i64>(6)? - 1).unwrap_or_default();
            let Some((position, device)) = found.get(at).and_then(|found| Some((found.0, device(found.1)?))) else {
                continue;
            };
            let event = read_event(&row, device.id)?;
            read += event.payload.bytes().len();
            if !events.is_empty() && read > bytes {
                return Ok((events, at));
            }
            events.push((position, Event { received_at: event.id.minted_at(), ..event }));
        }
        Ok((events, found.len()))
    }
}

/// Encodes the events of a piece.
pub fn encoded(events: Vec<(StreamPosition, Event)>, write: EventWriter) -> StreamPiece {
    let (mut piece, mut text) = (Vec::with_capacity(events.len()), Vec::new());
    for (position, event) in events {
        write(&event, &mut text);
        piece.push(PieceEvent { position, device: event.device, end: text.len() });
    }
    StreamPiece { text: text.into(), events: piece }
}
