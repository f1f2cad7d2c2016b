//! The state of a device for its next run, as the database has it, and the rows of a run's commit.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use isobar_model::event::{EventType, STATE_BYTES_BESIDE};
use isobar_model::ids::EventId;
use isobar_model::json::{LastKept, RawJson};
use isobar_model::time::Timestamp;

use super::super::bounds::last_after;
use super::super::commit::value_ids;
use super::super::time_order::{TimeOrder, id_of, moment, next_order};
use super::super::{Commit, Idempotency, Memory, NewEvent, NewValue, OutboxChange, SERIES_MAX, StreamedEvents};

/// Bytes that a device takes in addition to its texts, for the cache's budget, and (next constant) a series.
const MEMORY_BYTES: usize = 400;
const MEMORY_SERIES_BYTES: usize = 160;
/// Bytes of a row in a group, in addition to its texts.
const ROW_BYTES: usize = 96;

/// A series of a device.
#[derive(Clone, Debug)]
pub struct SeriesMemory {
    pub element: Arc<str>,
    /// Its number, which no other series ever has.
    pub number: i64,
    /// Time of its first value.
    pub created: Timestamp,
    /// Values that were ever stored in it: the number of the next one.
    pub count: u64,
    /// Number below which values were dropped.
    pub floor: u64,
    /// Bytes of the payloads.
    pub bytes: u64,
    /// The newest value's position in time.
    pub order: TimeOrder,
    /// The last values, as far as they are stored.
    pub last: Bytes,
}

/// The end of a device's history of one kind of event.
#[derive(Clone, Copy, Debug, Default)]
pub struct HistoryEnd {
    /// The next number.
    pub next: u64,
    /// The newest event's position in time.
    pub order: TimeOrder,
}

/// The row that the commits of a device lock.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// Identifies the last commit; 0 if there was none.
    pub last_commit: i64,
    /// Device events, cloud events.
    pub ends: [HistoryEnd; 2],
    /// The next number in the queue.
    pub queued: u64,
    /// Number of the changes of what its runs see outside of telemetry.
    pub revision: u64,
}

/// The whole state of a device.
#[derive(Clone, Debug, Default)]
pub struct DeviceMemory {
    pub head: Head,
    /// Its series, by name.
    pub series: Vec<SeriesMemory>,
    /// States of its elements, by name.
    pub states: Vec<(Arc<str>, Bytes)>,
    /// Numbers of the events in its queue, oldest first.
    pub queue: VecDeque<u64>,
}

/// A new event of the history.
#[derive(Debug)]
pub struct EventRow {
    pub kind: i16,
    pub number: u64,
    pub order: TimeOrder,
    pub id: EventId,
    pub element: Arc<str>,
    pub payload: Bytes,
    pub errors: Option<String>,
}

/// A new value of a series.
#[derive(Debug)]
pub struct NewValueRow {
    pub series: i64,
    pub number: u64,
    pub order: TimeOrder,
    pub id: EventId,
    pub payload: Bytes,
}

/// A new event of the queue.
#[derive(Debug)]
pub struct QueuedRow {
    pub number: u64,
    pub id: EventId,
    pub element: Arc<str>,
    pub payload: Bytes,
    pub expires: Option<i64>,
}

/// The rows that a commit writes.
#[derive(Debug, Default)]
pub struct DeviceWrites {
    pub device: i64,
    /// The commit that must be the last one of the device.
    pub expected: i64,
    pub head: Head,
    pub events: Vec<EventRow>,
    pub values: Vec<NewValueRow>,
    /// Series that were changed.
    pub series: Vec<SeriesMemory>,
    /// Series that are removed.
    pub series_gone: Vec<Arc<str>>,
    /// Series whose values below a number are deleted later.
    pub garbage: Vec<(i64, u64)>,
    /// New states; an empty one is removed.
    pub states: BTreeMap<Arc<str>, Bytes>,
    pub queued: Vec<QueuedRow>,
    /// Numbers that leave the queue.
    pub taken: Vec<u64>,
    /// Entries of the outbox; `None` removes one.
    pub outbox: BTreeMap<u64, Option<Bytes>>,
    pub key: Option<Idempotency>,
    /// The events for followers; `None` if they were not prepared.
    pub streamed: Option<Arc<StreamedEvents>>,
}

impl DeviceWrites {
    /// Returns the approximate number of its bytes.
    pub fn bytes(&self) -> usize {
        let events = self.events.iter().map(|row| row.payload.len());
        let values = self.values.iter().map(|row| row.payload.len());
        let series = self.series.iter().map(|series| series.last.len());
        let states = self.states.values().map(Bytes::len);
        let queued = self.queued.iter().map(|row| row.payload.len());
        let outbox = self.outbox.values().map(|work| work.as_ref().map_or(0, Bytes::len));
        let all = events.chain(values).chain(series).chain(states).chain(queued).chain(outbox);
        ROW_BYTES + all.map(|bytes| ROW_BYTES + bytes).sum::<usize>()
    }
}

impl Memory for DeviceMemory {
    fn last(&self, element: &str) -> Option<LastKept> {
        self.find(element).map(|series| LastKept::from_bytes(&series.last))
    }

    fn last_bytes(&self, element: &str) -> usize {
        self.find(element).map_or(0, |series| series.last.len())
    }

    fn all_last_bytes(&self) -> (usize, usize) {
        (self.last_bytes_of_all(), self.series.len())
    }

    fn state(&self, element: &str) -> Option<Bytes> {
        let at = self.state_at(element).ok()?;
        self.states.get(at).map(|(_, state)| state.clone())
    }

    fn states(&self) -> Vec<(Arc<str>, usize)> {
        self.states.iter().map(|(element, state)| (Arc::clone(element), state.len())).collect()
    }

    fn states_bytes(&self) -> usize {
        self.states.iter().map(|(element, state)| element.len() + state.len() + STATE_BYTES_BESIDE).sum()
    }

    fn newest(&self) -> EventId {
        let series = self.series.iter().map(|series| series.order);
        let ends = self.head.ends.iter().map(|end| end.order);
        id_of(series.chain(ends).max().unwrap_or_default())
    }

    fn revision(&self) -> u64 {
        self.head.revision
    }

    fn heard(&self) -> Option<Timestamp> {
        let [device_events, _] = self.head.ends;
        (device_events.next > 0).then(|| moment(device_events.order))
    }
}

impl DeviceMemory {
    /// Returns the series of an element.
    pub fn find(&self, element: &str) -> Option<&SeriesMemory> {
        self.series_at(element).ok().and_then(|at| self.series.get(at))
    }

    /// Returns the approximate number of its bytes.
    pub fn weight(&self) -> usize {
        MEMORY_BYTES
            + MEMORY_SERIES_BYTES * self.series.len()
            + self.last_bytes_of_all()
            + self.states_bytes()
            + self.queue.len() * size_of::<u64>()
    }

    fn last_bytes_of_all(&self) -> usize {
        self.series.iter().map(|series| series.last.len()).sum()
    }

    fn series_at(&self, element: &str) -> Result<usize, usize> {
        self.series.binary_search_by(|series| (*series.element).cmp(element))
    }

    fn state_at(&self, element: &str) -> Result<usize, usize> {
        self.states.binary_search_by(|(name, _)| (**name).cmp(element))
    }

    /// Begins a commit with this number, and makes it the last one.
    pub fn begin_commit(&mut self, device: i64, number: i64) -> DeviceWrites {
        let expected = std::mem::replace(&mut self.head.last_commit, number);
        DeviceWrites { device, expected, ..DeviceWrites::default() }
    }

    /// Applies the commit of a run, and adds its rows. Returns the number of queued events that were dropped.
    pub fn apply(&mut self, commit: Commit, limits: &RunLimits<'_>, writes: &mut DeviceWrites) -> u32 {
        for event in commit.history {
            writes.events.push(self.add_event(event));
        }
        self.store(&commit.values, limits, writes);
        for (element, state) in commit.states {
            self.remember(&element, &state);
            writes.states.insert(element, state);
        }
        for event in commit.queue {
            let number = self.head.queued;
            self.head.queued += 1;
            self.queue.push_back(number);
            writes.queued.push(QueuedRow {
                number,
                id: event.id,
                element: event.element,
                payload: event.payload.shared(),
                expires: event.expires_at.map(Timestamp::millis),
            });
        }
        let dropped = self.drop_oldest(limits.queue_max, writes);
        self.head.revision += u64::from(commit.touches || !commit.outbox.is_empty());
        for change in commit.outbox {
            match change {
                OutboxChange::Put { number, work } => writes.outbox.insert(number, Some(work)),
                OutboxChange::Done(number) => writes.outbox.insert(number, None),
            };
        }
        writes.key = commit.idempotency;
        writes.streamed = commit.streamed;
        dropped
    }

    fn add_event(&mut self, event: NewEvent) -> EventRow {
        let kind = kind_number(event.kind);
        let end = &mut self.head.ends[usize::from(kind != 0)];
        end.order = next_order(end.order, event.id);
        let number = end.next;
        end.next += 1;
        let errors = (!event.errors.is_empty()).then(|| serde_json::to_string(&event.errors).unwrap_or_default());
        let payload = event.payload.shared();
        EventRow { kind, number, order: end.order, id: event.id, element: event.element, payload, errors }
    }

    /// Stores values: those of each series in their order, and its last values are merged once.
    fn store(&mut self, values: &[NewValue], limits: &RunLimits<'_>, writes: &mut DeviceWrites) {
        self.make_series(values, limits);
        let place = |value: &NewValue| self.series_at(&value.element).ok();
        let mut sorted: Vec<_> = values.iter().filter_map(|value| Some((place(value)?, value))).collect();
        sorted.sort_by_key(|(at, _)| *at);
        for stored in sorted.chunk_by(|left, right| left.0 == right.0) {
            let all = self.last_bytes_of_all();
            let Some(series) = stored.first().and_then(|(at, _)| self.series.get_mut(*at)) else { continue };
            let others = all - series.last.len();
            let values = stored.iter().map(|(_, value)| *value);
            series.append(values, others, &mut writes.values);
            writes.series.push(series.clone());
        }
    }

    /// Creates the series that the values need and the device does not have, up to the limit.
    fn make_series(&mut self, values: &[NewValue], limits: &RunLimits<'_>) {
        for value in values {
            if let Err(at) = self.series_at(&value.element)
                && self.series.len() < SERIES_MAX
            {
                let series = SeriesMemory {
                    element: Arc::clone(&value.element),
                    number: (limits.new_series)(),
                    created: value.event.minted_at(),
                    count: 0,
                    floor: 0,
                    bytes: 0,
                    order: 0,
                    last: Bytes::new(),
                };
                self.series.insert(at, series);
            }
        }
    }

    /// Sets an element's state; an empty state is removed.
    fn remember(&mut self, element: &Arc<str>, state: &Bytes) {
        match self.state_at(element) {
            Ok(at) if state.is_empty() => drop(self.states.remove(at)),
            Err(_) if state.is_empty() => {}
            // Copied: the state may be a small part of a large buffer.
            Ok(at) => self.states[at].1 = Bytes::copy_from_slice(state),
            Err(at) => self.states.insert(at, (Arc::clone(element), Bytes::copy_from_slice(state))),
        }
    }

    fn drop_oldest(&mut self, queue_max: u64, writes: &mut DeviceWrites) -> u32 {
        let mut dropped = 0;
        while self.queue.len() as u64 > queue_max
            && let Some(oldest) = self.queue.pop_front()
        {
            // One that was queued by the same commit is not written at all.
            match writes.queued.iter().position(|row| row.number == oldest) {
                Some(at) => drop(writes.queued.remove(at)),
                None => writes.taken.push(oldest),
            }
            dropped += 1;
        }
        dropped
    }

    /// Removes events from the queue.
    pub fn take(&mut self, numbers: &[u64], writes: &mut DeviceWrites) {
        self.queue.retain(|number| !numbers.contains(number));
        writes.taken.extend_from_slice(numbers);
    }

    /// Removes the series of an element, or all.
    pub fn remove_series(&mut self, element: Option<&str>, writes: &mut DeviceWrites) {
        for series in self.series.extract_if(.., |series| element.is_none_or(|element| *series.element == *element)) {
            writes.garbage.push((series.number, series.count));
            writes.series_gone.push(series.element);
        }
    }
}

impl SeriesMemory {
    /// Stores values after the existing ones. `others` are the bytes of the last values of the device's other series.
    fn append<'v>(
        &mut self,
        values: impl Iterator<Item = &'v NewValue> + Clone,
        others: usize,
        rows: &mut Vec<NewValueRow>,
    ) {
        for (id, value) in value_ids(values.clone()) {
            self.order = next_order(self.order, id);
            let payload = value.payload.shared();
            self.bytes += payload.len() as u64;
            rows.push(NewValueRow { series: self.number, number: self.count, order: self.order, id, payload });
            self.count += 1;
        }
        let payloads = values.map(|value| -> &RawJson { &value.payload });
        self.last = Bytes::copy_from_slice(last_after(&self.last, payloads, others).bytes());
    }
}

/// Returns the number of a kind of event in the database.
pub fn kind_number(kind: EventType) -> i16 {
    match kind {
        EventType::DeviceEvent => 0,
        EventType::CloudEvent => 1,
    }
}

/// Returns the kind of event with this number.
pub fn kind_of_number(number: i16) -> EventType {
    if number == 0 { EventType::DeviceEvent } else { EventType::CloudEvent }
}

/// Limits for a device's runs.
pub struct RunLimits<'a> {
    /// Events that its queue may contain.
    pub queue_max: u64,
    /// Returns a number for a new series.
    pub new_series: &'a dyn Fn() -> i64,
}
