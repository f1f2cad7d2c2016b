//! Streams of events over several databases: positions, and what lies between two of them.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use isobar_model::event::Event;
use isobar_model::ids::EventId;
use isobar_quota::Claim;

use super::SpreadTelemetry;
use super::live::SpreadEvents;
use super::member::Member;
use super::order::{Bounds, NO_MARK, end_of, marked, within};
use crate::error::{Result, StoreError};
use crate::telemetry::follow::FoundEvent;
use crate::telemetry::marks::StreamMarks;
use crate::telemetry::postgres::{EventPlace, encoded};
use crate::telemetry::{EventWriter, Followed, StreamCursor, StreamPiece, StreamPosition, Telemetry as _};

/// Events of a cursor that are read at a time.
const EVENTS_A_SPREAD_PIECE: usize = 500;

/// Events that a database has between two positions.
struct FoundThere {
    database: u16,
    /// Index of its first device among those that are followed.
    first: u32,
    events: VecDeque<FoundEvent>,
}

/// Events of a database that were asked for, and how many of them were read.
struct ReadThere {
    events: HashMap<StreamPosition, Event>,
    read: usize,
}

impl SpreadTelemetry {
    /// Returns the position of an event; that of an event that is in no database is before it, or behind all if it is newer
    /// than all.
    pub(super) async fn position(&self, events: &SpreadEvents, id: EventId) -> Result<StreamPosition> {
        let (found, outcome) = self.ask_all(|store| store.event_place(id)).await;
        if let Some((member, place)) = found.iter().find_map(|(member, place)| Some((member, (*place)?))) {
            return events.position(member.number(), place).await;
        }
        outcome?;
        let (newer, outcome) = self.ask_all(|store| store.is_anything_from(id)).await;
        outcome?;
        if newer.iter().all(|(_, is_any)| !is_any) {
            return Ok(end_of(NO_MARK));
        }
        events.marks.mark_before(id.minted_at()).await.map(end_of)
    }

    /// Finds the first events of these devices between two positions.
    pub(super) async fn between(
        &self,
        (events, devices): (&SpreadEvents, &Followed),
        (after, until): (StreamPosition, StreamPosition),
        limit: usize,
        claim: Claim,
    ) -> Result<StreamCursor> {
        let mut cursor = StreamCursor { devices: devices.clone(), found: VecDeque::new(), until };
        if after >= until || devices.count() == 0 {
            return Ok(cursor);
        }
        let marks = &*events.marks;
        let (from, to) = (Bounds::of(marks, after).await?, Bounds::of(marks, until).await?);
        let asked = self.parts_of(devices)?.into_iter().map(|(member, range)| {
            let (database, first, part) = (member.number(), range.start as u32, devices.part(range));
            let (after, until) = (from.at(database), to.at(database));
            async move {
                let found = member.store().history_between(&part, after, until, limit, claim);
                Ok::<_, StoreError>(FoundThere { database, first, events: member.ask(found).await?.found })
            }
        });
        let found = futures::future::try_join_all(asked).await?;
        let mut all = in_order(marks, found).await?;
        all.truncate(limit.max(1));
        if all.len() >= limit {
            cursor.until = all.last().map_or(until, |found| found.0);
        }
        cursor.found = all.into();
        Ok(cursor)
    }

    /// Returns the databases of devices, with the range of its devices among them: their numbers are sorted.
    fn parts_of(&self, devices: &Followed) -> Result<Vec<(&Member, Range<usize>)>> {
        let mut parts: Vec<(&Member, Range<usize>)> = Vec::new();
        for (index, device) in devices.devices().iter().enumerate() {
            let member = self.of(device.key)?;
            match parts.last_mut() {
                Some((last, range)) if last.number() == member.number() => range.end = index + 1,
                _ => parts.push((member, index..index + 1)),
            }
        }
        Ok(parts)
    }

    /// Reads the next events of a cursor.
    pub(super) async fn next(
        &self,
        cursor: &mut StreamCursor,
        (bytes, write): (usize, EventWriter),
        claim: Claim,
    ) -> Result<StreamPiece> {
        let _slot = self.parts.scans.take(claim).await?;
        let next: Vec<FoundEvent> = cursor.found.iter().take(EVENTS_A_SPREAD_PIECE).copied().collect();
        let asked = self.parts_of(&cursor.devices)?.into_iter().map(|(member, range)| {
            let devices = cursor.devices.part(range.clone());
            let own = next.iter().filter(|(_, index, _)| range.contains(&(*index as usize)));
            let own = own.map(|(position, index, id)| (within(*position), *index - range.start as u32, *id));
            let own: Vec<FoundEvent> = own.collect();
            async move {
                let read = member.store().read_found(&devices, &own, bytes);
                let (events, read) = if own.is_empty() { (Vec::new(), 0) } else { member.ask(read).await? };
                Ok::<_, StoreError>((member.number(), ReadThere { events: events.into_iter().collect(), read }))
            }
        });
        let mut there: HashMap<u16, ReadThere> = futures::future::try_join_all(asked).await?.into_iter().collect();
        let (mut events, mut taken, mut read) = (Vec::new(), 0, 0);
        for (position, index, _) in &next {
            let device = cursor.devices.devices().get(*index as usize);
            let Some(there) = device.and_then(|device| there.get_mut(&device.key.database())) else { break };
            if there.read == 0 || taken > bytes {
                break;
            }
            there.read -= 1;
            read += 1;
            if let Some(event) = there.events.remove(&within(*position)) {
                taken += event.payload.bytes().len();
                events.push((*position, event));
            }
        }
        // Thousands at a time would block the thread that serves calls.
        let piece = self.parts.scan_threads.spawn(move || encoded(events, write)).await;
        let piece = piece.map_err(StoreError::unavailable)?;
        cursor.found.drain(..read);
        Ok(piece)
    }

    /// Returns the newest identifier that any database knows.
    pub(super) fn newest(&self) -> EventId {
        let newest = self.members.iter().map(|member| member.store().newest_event());
        newest.max().unwrap_or(StreamPosition::first().newest)
    }
}

/// Brings what the databases have into the order of all.
async fn in_order(marks: &dyn StreamMarks, found: Vec<FoundThere>) -> Result<Vec<FoundEvent>> {
    let each = || found.iter().flat_map(|there| there.events.iter().map(move |event| (there, event)));
    let places: Vec<(u16, EventPlace)> =
        each().map(|(there, event)| (there.database, EventPlace::of(event.0))).collect();
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let marks = marks.marks_of(&places).await?;
    let mut all: Vec<FoundEvent> = Vec::with_capacity(places.len());
    for ((there, (position, index, id)), mark) in each().zip(marks) {
        // Each is before a position, and so a mark reaches it.
        let mark = mark.ok_or_else(|| StoreError::Damaged("an event between two marks has none".to_owned()))?;
        all.push((marked(mark, there.database, EventPlace::of(*position)), there.first + index, *id));
    }
    all.sort_unstable_by_key(|found| found.0);
    Ok(all)
}
