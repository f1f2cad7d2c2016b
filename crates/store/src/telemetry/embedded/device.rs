//! What a device's next run needs, in memory: always current, ahead of the database by what waits to be written.

use std::sync::Arc;

use bytes::Bytes;
use isobar_model::event::LastValues;
use isobar_model::ids::EventId;
use isobar_model::json::{LastKept, RawJson};
use isobar_model::time::Timestamp;
use smallvec::SmallVec;

use super::keys::{self, Family, Order};
use super::live::Live;
use super::rows::{Parts, Rows};
use crate::error::Result;
use crate::telemetry::{Commit, Idempotency, Memory, NewValue, OutboxChange, Series};

/// A series record is written again after so many values; a cold start replays fewer than that.
pub const CHECKPOINT_EVERY: u64 = 32;
/// What a device costs beside its texts, in bytes: for the cache's budget.
const DEVICE_BYTES: usize = 320;
/// What a series costs beside its texts, in bytes.
const SERIES_BYTES: usize = 112;

/// A series of a device.
#[derive(Clone, Debug)]
pub struct SeriesState {
    /// The storage element.
    pub element: Arc<str>,
    /// Its number in the database.
    pub number: u64,
    /// When its first value came.
    pub created: Timestamp,
    /// Values in it: the next sequence.
    pub count: u64,
    /// Bytes of the payloads.
    pub bytes: u64,
    /// The newest value's place in time.
    pub order: Order,
    /// What is kept of the last values.
    pub last: Box<[u8]>,
}

impl SeriesState {
    /// Reads a record.
    pub fn read(element: Arc<str>, record: &[u8]) -> Result<Self> {
        let mut parts = Parts(record);
        Ok(Self {
            element,
            number: parts.u64()?,
            created: Timestamp::from_millis(parts.i64()?),
            count: parts.u64()?,
            bytes: parts.u64()?,
            order: parts.order()?,
            last: parts.0.into(),
        })
    }

    fn write(&self, device: u64, rows: &mut Rows) {
        rows.put(
            Family::State,
            &keys::state(device, keys::STATE_SERIES, &self.element),
            &[
                &self.number.to_be_bytes(),
                &self.created.millis().to_be_bytes(),
                &self.count.to_be_bytes(),
                &self.bytes.to_be_bytes(),
                &self.order.to_be_bytes(),
                &self.last,
            ],
        );
    }

    /// Takes in the next value.
    pub fn take(&mut self, order: Order, payload: &RawJson) {
        self.count += 1;
        self.bytes += payload.bytes().len() as u64;
        self.order = order;
        let older = std::str::from_utf8(&self.last).ok().filter(|text| !text.is_empty());
        let kept = LastKept::after(older, payload);
        // A copy of its own: the payload's bytes may be a small part of a large buffer.
        if self.last.len() == kept.bytes().len() {
            self.last.copy_from_slice(kept.bytes());
        } else {
            self.last = kept.bytes().into();
        }
    }

    /// The last values.
    pub fn last_values(&self) -> LastValues {
        LastValues { updated_at: keys::moment(self.order), values: LastKept::from_bytes(&self.last).values() }
    }

    /// The series as callers see it.
    pub fn series(&self) -> Series {
        Series {
            element: self.element.clone(),
            created_at: self.created,
            updated_at: keys::moment(self.order),
            count: self.count,
            bytes: self.bytes,
        }
    }
}

/// The end of a timeline.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timeline {
    /// The next sequence.
    pub next: u64,
    /// The newest event's place in time.
    pub order: Order,
}

/// The order of the next row: the id's own, or just after the row before it when ids do not grow.
fn next_order(before: Order, id: EventId) -> Order {
    keys::order_of(id).max(before.saturating_add(1))
}

/// An idempotency key that waits to become durable.
#[derive(Clone, Debug)]
pub struct WaitingKey {
    /// The ticket of its commit.
    pub ticket: u64,
    /// The key and its answer.
    pub key: Idempotency,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct DeviceState {
    /// Its series.
    pub series: Vec<SeriesState>,
    /// States of its elements.
    pub states: Vec<(Arc<str>, Bytes)>,
    /// The ends of its timelines: device events, cloud events.
    pub timelines: [Timeline; 2],
    /// Which sequences of its queue are taken up.
    pub queue: Live,
    /// Idempotency keys that wait to become durable.
    pub keys: Vec<WaitingKey>,
    /// The ticket of its newest commit.
    pub ticket: u64,
}

impl Memory for DeviceState {
    fn last(&self, element: &str) -> Option<LastKept> {
        self.find(element).map(|series| LastKept::from_bytes(&series.last))
    }

    fn state(&self, element: &str) -> Option<Bytes> {
        self.states.iter().find(|(name, _)| **name == *element).map(|(_, state)| state.clone())
    }
}

impl DeviceState {
    /// The series of an element.
    pub fn find(&self, element: &str) -> Option<&SeriesState> {
        self.series.iter().find(|series| *series.element == *element)
    }

    /// About how many bytes it takes.
    pub fn weight(&self) -> usize {
        let series: usize = self.series.iter().map(|series| SERIES_BYTES + series.last.len()).sum();
        let states: usize = self.states.iter().map(|(_, state)| 64 + state.len()).sum();
        DEVICE_BYTES + series + states + self.queue.weight() + self.keys.len() * 128
    }

    /// Takes in what a run returned and writes its rows. Answers how many queued events were dropped.
    pub fn apply(&mut self, device: u64, commit: &Commit, limits: &Limits<'_>, rows: &mut Rows) -> u32 {
        rows.has_events = !commit.history.is_empty();
        rows.shown.clone_from(&commit.shown);
        for event in &commit.history {
            let timeline = &mut self.timelines[usize::from(keys::kind_byte(event.kind))];
            timeline.order = next_order(timeline.order, event.id);
            rows.event(device, event, timeline.next, timeline.order);
            timeline.next += 1;
        }
        self.store(device, &commit.values, limits, rows);
        for (element, state) in &commit.states {
            rows.put(Family::State, &keys::state(device, keys::STATE_ELEMENT, element), &[state]);
            let state = Bytes::copy_from_slice(state);
            match self.states.iter_mut().find(|(name, _)| name == element) {
                Some((_, old)) => *old = state,
                None => self.states.push((element.clone(), state)),
            }
        }
        let dropped = self.enqueue(device, commit, limits.queue_max, rows);
        for change in &commit.outbox {
            match change {
                OutboxChange::Put { number, work } => rows.outbox(device, *number, work),
                OutboxChange::Done(number) => rows.delete(Family::Outbox, &number.to_be_bytes()),
            }
        }
        if let Some(key) = &commit.idempotency {
            rows.put(
                Family::State,
                &keys::state(device, keys::STATE_KEY, &key.key),
                &[key.answer.bytes(), &key.expires_at.millis().to_be_bytes()],
            );
        }
        dropped
    }

    fn store(&mut self, device: u64, values: &[NewValue], limits: &Limits<'_>, rows: &mut Rows) {
        // Which series got how many values of which event: the second and later ones get ids of their own.
        let mut stored: SmallVec<[(usize, EventId, u128, bool); 4]> = SmallVec::new();
        for value in values {
            let (at, created) = self.series_of(&value.element, value.event, limits, rows);
            let series = &mut self.series[at];
            let nth = match stored.iter_mut().find(|(index, event, ..)| (*index, *event) == (at, value.event)) {
                Some((_, _, nth, _)) => {
                    *nth += 1;
                    *nth
                }
                None => {
                    stored.push((at, value.event, 0, created));
                    0
                }
            };
            let id = keys::id_of(value.event.0.as_u128().wrapping_add(nth));
            let order = next_order(series.order, id);
            rows.value(series.number, series.count, id, order, value.payload.bytes());
            series.take(order, &value.payload);
            if series.count.is_multiple_of(CHECKPOINT_EVERY) {
                series.write(device, rows);
            }
        }
        for (at, ..) in stored.iter().filter(|(.., created)| *created) {
            self.series[*at].write(device, rows);
        }
    }

    /// The series of an element, made if there is none.
    fn series_of(&mut self, element: &Arc<str>, event: EventId, limits: &Limits<'_>, rows: &mut Rows) -> (usize, bool) {
        if let Some(at) = self.series.iter().position(|series| series.element == *element) {
            return (at, false);
        }
        rows.creates = true;
        self.series.push(SeriesState {
            element: element.clone(),
            number: (limits.new_series)(),
            created: event.minted_at(),
            count: 0,
            bytes: 0,
            order: 0,
            last: Box::default(),
        });
        (self.series.len() - 1, true)
    }

    fn enqueue(&mut self, device: u64, commit: &Commit, max: u64, rows: &mut Rows) -> u32 {
        let mut dropped = 0;
        for event in &commit.queue {
            rows.queued(device, self.queue.push(), event);
        }
        while self.queue.len() > max
            && let Some(oldest) = self.queue.pop()
        {
            rows.delete(Family::Queue, &keys::pair(device, oldest));
            dropped += 1;
        }
        dropped
    }
}

/// What a device's runs are held to.
pub struct Limits<'a> {
    /// Events that its queue holds.
    pub queue_max: u64,
    /// A number for a new series.
    pub new_series: &'a dyn Fn() -> u64,
}
