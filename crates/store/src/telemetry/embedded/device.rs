//! The state of a device for its next run, in memory: always current, and ahead of the database by the rows that are
//! not written yet.

use std::sync::Arc;

use bytes::Bytes;
use isobar_model::event::{LastValues, STATE_BYTES_BESIDE};
use isobar_model::ids::EventId;
use isobar_model::json::{LastKept, RawJson};
use isobar_model::time::Timestamp;
use smallvec::SmallVec;

use super::keys::{self, Family, TimeOrder};
use super::live::Live;
use super::rows::{Parts, Rows};
use crate::error::Result;
use crate::telemetry::bounds::last_after;
use crate::telemetry::commit::value_ids;
use crate::telemetry::time_order::next_order;
use crate::telemetry::{Commit, Idempotency, Memory, NewValue, OutboxChange, SERIES_MAX, Series};

/// Values after which a series record is written again; a cold start replays fewer than that.
pub const CHECKPOINT_EVERY: u64 = 32;
/// Bytes that a device takes in addition to its texts, including its places in the cache, for the cache's budget.
const DEVICE_BYTES: usize = 400;
/// Bytes that a series takes in addition to its texts.
const SERIES_BYTES: usize = 112;

/// A series of a device.
#[derive(Clone, Debug)]
pub struct SeriesState {
    /// The storage element.
    pub element: Arc<str>,
    /// Its number in the database.
    pub number: u64,
    /// Time of its first value.
    pub created: Timestamp,
    /// Values in it: the next sequence.
    pub count: u64,
    /// Bytes of the payloads.
    pub bytes: u64,
    /// The newest value's position in time.
    pub order: TimeOrder,
    /// The last values, as far as they are stored.
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

    /// Writes its record: a checkpoint.
    pub fn write(&self, device: u64, rows: &mut Rows) {
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

    /// Counts the next value, without the last values.
    fn count(&mut self, order: TimeOrder, payload: &RawJson) {
        self.count += 1;
        self.bytes += payload.bytes().len() as u64;
        self.order = order;
    }

    /// Counts the next value and merges it into the last values. `others` are the bytes of the last values of the
    /// device's other series.
    pub fn take(&mut self, order: TimeOrder, payload: &RawJson, others: usize) {
        self.count(order, payload);
        self.merge([payload], others);
    }

    /// Merges payloads into the last values, oldest first.
    fn merge<'p>(&mut self, payloads: impl IntoIterator<Item = &'p RawJson>, others: usize) {
        let kept = last_after(&self.last, payloads, others);
        // The payload is copied, because its bytes may be a small part of a large buffer.
        if self.last.len() == kept.bytes().len() {
            self.last.copy_from_slice(kept.bytes());
        } else {
            self.last = kept.bytes().into();
        }
    }

    /// Stores values after the existing ones. The first of an event has its identifier, the others get identifiers of
    /// their own.
    fn append<'v>(&mut self, values: impl Iterator<Item = &'v NewValue> + Clone, others: usize, rows: &mut Rows) {
        for (id, value) in value_ids(values.clone()) {
            let order = next_order(self.order, id);
            rows.value(self.number, self.count, id, order, value.payload.bytes());
            self.count(order, &value.payload);
        }
        self.merge(values.map(|value| &value.payload), others);
    }

    /// Returns the last values.
    pub fn last_values(&self) -> LastValues {
        LastValues { updated_at: keys::moment(self.order), values: LastKept::from_bytes(&self.last).values() }
    }

    /// Returns the series as callers see it.
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
    /// The newest event's position in time.
    pub order: TimeOrder,
}

/// An idempotency key that is not durable yet.
#[derive(Clone, Debug)]
pub struct WaitingKey {
    /// The ticket of its commit.
    pub ticket: u64,
    /// The key and its answer.
    pub key: Idempotency,
}

/// Sizes that grow with a device's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    last: usize,
    states: usize,
}

/// Returns the bytes of an element's state, including its name.
fn state_bytes(element: &str, state: &Bytes) -> usize {
    element.len() + state.len() + STATE_BYTES_BESIDE
}

/// The whole state of a device.
#[derive(Clone, Debug, Default)]
pub struct DeviceState {
    /// Its series, by name.
    pub series: Vec<SeriesState>,
    /// States of its elements, by name.
    pub states: Vec<(Arc<str>, Bytes)>,
    /// Bytes of the last values of all series, and of the states, kept up to date.
    pub texts: Texts,
    /// The ends of its timelines: device events, cloud events.
    pub timelines: [Timeline; 2],
    /// The last position in time that its timelines and series have reached.
    pub newest: TimeOrder,
    /// Sequences of its queue that are in use.
    pub queue: Live,
    /// Idempotency keys that are not durable yet.
    pub keys: Vec<WaitingKey>,
    /// The ticket of its newest commit.
    pub ticket: u64,
}

impl Memory for DeviceState {
    fn last(&self, element: &str) -> Option<LastKept> {
        self.find(element).map(|series| LastKept::from_bytes(&series.last))
    }

    fn last_bytes(&self, element: &str) -> usize {
        self.find(element).map_or(0, |series| series.last.len())
    }

    fn all_last_bytes(&self) -> (usize, usize) {
        (self.texts.last, self.series.len())
    }

    fn state(&self, element: &str) -> Option<Bytes> {
        let at = self.state_at(element).ok()?;
        self.states.get(at).map(|(_, state)| state.clone())
    }

    fn states(&self) -> Vec<(Arc<str>, usize)> {
        self.states.iter().map(|(element, state)| (Arc::clone(element), state.len())).collect()
    }

    fn states_bytes(&self) -> usize {
        self.texts.states
    }

    fn newest(&self) -> EventId {
        keys::id_of(self.newest)
    }
}

impl DeviceState {
    /// Returns the series of an element.
    pub fn find(&self, element: &str) -> Option<&SeriesState> {
        self.series_at(element).ok().and_then(|at| self.series.get(at))
    }

    /// Returns the position of an element's series, or else the position at which it would be inserted.
    pub fn series_at(&self, element: &str) -> std::result::Result<usize, usize> {
        self.series.binary_search_by(|series| (*series.element).cmp(element))
    }

    /// Returns the position of an element's state, or else the position at which it would be inserted.
    fn state_at(&self, element: &str) -> std::result::Result<usize, usize> {
        self.states.binary_search_by(|(name, _)| (**name).cmp(element))
    }

    /// Counts the bytes of its texts again, after many series or states were added or removed.
    pub fn count_texts(&mut self) {
        self.texts = Texts {
            last: self.series.iter().map(|series| series.last.len()).sum(),
            states: self.states.iter().map(|(element, state)| state_bytes(element, state)).sum(),
        };
    }

    /// Finds the last position in time of its timelines and series.
    pub fn find_newest(&mut self) {
        let series = self.series.iter().map(|series| series.order);
        let reached = series.chain(self.timelines.iter().map(|timeline| timeline.order));
        self.newest = reached.fold(self.newest, TimeOrder::max);
    }

    /// Returns the approximate number of its bytes.
    pub fn weight(&self) -> usize {
        let Texts { last, states } = self.texts;
        DEVICE_BYTES + SERIES_BYTES * self.series.len() + last + states + self.queue.weight() + self.keys.len() * 128
    }

    /// Applies the commit of a run and writes its rows. Returns the number of queued events that were dropped.
    pub fn apply(&mut self, device: u64, commit: &Commit, limits: &Limits<'_>, rows: &mut Rows) -> u32 {
        rows.has_events = !commit.history.is_empty();
        rows.streamed.clone_from(&commit.streamed);
        for event in &commit.history {
            let timeline = &mut self.timelines[usize::from(keys::kind_byte(event.kind))];
            timeline.order = next_order(timeline.order, event.id);
            rows.event(device, event, timeline.next, timeline.order);
            timeline.next += 1;
            self.newest = self.newest.max(timeline.order);
        }
        self.store(device, &commit.values, limits, rows);
        for (element, state) in &commit.states {
            self.remember(device, element, state, rows);
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

    /// Sets an element's state; an empty state is removed.
    fn remember(&mut self, device: u64, element: &Arc<str>, state: &Bytes, rows: &mut Rows) {
        let (key, found) = (keys::state(device, keys::STATE_ELEMENT, element), self.state_at(element));
        let old = found.ok().and_then(|at| self.states.get(at));
        self.texts.states -= old.map_or(0, |(name, old)| state_bytes(name, old));
        if state.is_empty() {
            found.ok().map(|at| self.states.remove(at));
            return rows.delete(Family::State, &key);
        }
        rows.put(Family::State, &key, &[state]);
        self.texts.states += state_bytes(element, state);
        let kept = Bytes::copy_from_slice(state);
        match found {
            Ok(at) => self.states[at].1 = kept,
            Err(at) => self.states.insert(at, (Arc::clone(element), kept)),
        }
    }

    /// Stores values: those of each series in their order, and its last values are merged once.
    fn store(&mut self, device: u64, values: &[NewValue], limits: &Limits<'_>, rows: &mut Rows) {
        let created = self.make_series(values, limits, rows);
        let place = |value: &NewValue| self.series_at(&value.element).ok();
        let mut sorted: SmallVec<[(usize, &NewValue); 4]> =
            values.iter().filter_map(|value| Some((place(value)?, value))).collect();
        sorted.sort_by_key(|(at, _)| *at);
        for stored in sorted.chunk_by(|left, right| left.0 == right.0) {
            let Some(series) = stored.first().and_then(|(at, _)| self.series.get_mut(*at)) else { continue };
            let (before, last_bytes) = (series.count, series.last.len());
            let others = self.texts.last - last_bytes;
            series.append(stored.iter().map(|(_, value)| *value), others, rows);
            self.texts.last = others + series.last.len();
            self.newest = self.newest.max(series.order);
            let is_due = before / CHECKPOINT_EVERY != series.count / CHECKPOINT_EVERY;
            if is_due || (before == 0 && created) {
                series.write(device, rows);
            }
        }
    }

    /// Creates the series that the values need and the device does not have, up to the limit. Returns true if it
    /// created any.
    fn make_series(&mut self, values: &[NewValue], limits: &Limits<'_>, rows: &mut Rows) -> bool {
        let before = self.series.len();
        for value in values {
            if let Err(at) = self.series_at(&value.element)
                && self.series.len() < SERIES_MAX
            {
                rows.creates = true;
                let series = SeriesState {
                    element: Arc::clone(&value.element),
                    number: (limits.new_series)(),
                    created: value.event.minted_at(),
                    count: 0,
                    bytes: 0,
                    order: 0,
                    last: Box::default(),
                };
                self.series.insert(at, series);
            }
        }
        self.series.len() > before
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

/// Limits for a device's runs.
pub struct Limits<'a> {
    /// Events that its queue may contain.
    pub queue_max: u64,
    /// Returns a number for a new series.
    pub new_series: &'a dyn Fn() -> u64,
}
