//! Encodes rows for the writer, one after the other for a commit, and reads and writes their values.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use isobar_model::event::{Event, EventError};
use isobar_model::ids::{DeviceId, EventId};
use isobar_model::json::RawJson;
use isobar_model::time::Timestamp;
use rocksdb_wal_check::CheckError;

use super::keys::{self, Family, TimeOrder};
use crate::error::{Result, StoreError};
use crate::telemetry::{NewCloudEvent, NewEvent, StreamedEvents};

/// Change of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Change {
    /// Writes the row.
    Put = 0,
    /// Removes the row.
    Delete = 1,
    /// Removes all rows from the key up to the value (as a key, exclusive).
    DeleteRange = 2,
}

/// Rows of one commit, one after the other in one buffer:
/// change and family in a byte, length of the key (u16), length of the value (u32), key, value.
#[derive(Debug, Default)]
pub struct Rows {
    bytes: Vec<u8>,
    /// True if a series is created: then the writer stores the counter.
    pub creates: bool,
    /// True if the rows have events of the history; the next field has the events for followers.
    pub has_events: bool,
    pub streamed: Option<Arc<StreamedEvents>>,
}

/// Bytes before the key of a row.
const ROW_HEADER_BYTES: usize = 7;

/// Bytes of the buffer that a thread keeps for the rows of its next commit.
const AT_HAND_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static AT_HAND: Cell<Rows> = Cell::default();
}

/// Row of a commit.
#[derive(Clone, Copy, Debug)]
pub struct BatchRow<'a> {
    /// Change of the row.
    pub change: Change,
    /// Index of the family.
    pub family: u8,
    /// Key.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

impl BatchRow<'_> {
    /// Returns true if the row writes an event of the history.
    pub fn is_event(&self) -> bool {
        self.family == Family::History as u8 && self.change == Change::Put
    }
}

impl Rows {
    /// Calls `write` with empty rows in this thread's reusable buffer; rows that `write` did not send are dropped.
    pub fn at_hand<T>(write: impl FnOnce(&mut Self) -> T) -> T {
        let mut rows = AT_HAND.take();
        let done = write(&mut rows);
        if rows.bytes.capacity() <= AT_HAND_BYTES_MAX {
            rows.bytes.clear();
            AT_HAND.set(Self { bytes: rows.bytes, ..Self::default() });
        }
        done
    }

    /// Returns the encoded rows, which [`read`] reads.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn add(&mut self, change: Change, family: Family, key: &[u8], parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.bytes.push((change as u8) << 4 | family as u8);
        self.bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.bytes.extend_from_slice(&(length as u32).to_le_bytes());
        self.bytes.extend_from_slice(key);
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
    }

    /// Adds the writing of a row, whose value is given in parts.
    pub fn put(&mut self, family: Family, key: &[u8], parts: &[&[u8]]) {
        self.add(Change::Put, family, key, parts);
    }

    /// Adds the removal of a row.
    pub fn delete(&mut self, family: Family, key: &[u8]) {
        self.add(Change::Delete, family, key, &[]);
    }

    /// Adds the removal of all rows from `from` up to `to`.
    pub fn delete_range(&mut self, family: Family, from: &[u8], to: &[u8]) {
        self.add(Change::DeleteRange, family, from, &[to]);
    }

    /// Adds an entry of deferred work.
    pub fn outbox(&mut self, device: u64, number: u64, work: &[u8]) {
        self.put(Family::Outbox, &number.to_be_bytes(), &[&device.to_be_bytes(), work]);
    }

    /// Adds an event of a device's history, at a sequence of its timeline.
    pub fn event(&mut self, device: u64, event: &NewEvent, sequence: u64, order: TimeOrder) {
        let kind = keys::kind_byte(event.kind);
        let element = event.element.as_bytes();
        let errors =
            if event.errors.is_empty() { Vec::new() } else { serde_json::to_vec(&event.errors).unwrap_or_default() };
        self.put(
            Family::History,
            event.id.bytes(),
            &[
                &[kind],
                &device.to_be_bytes(),
                &(element.len() as u16).to_be_bytes(),
                element,
                &(errors.len() as u32).to_be_bytes(),
                &errors,
                event.payload.bytes(),
            ],
        );
        let key = keys::timeline(device, kind, sequence);
        if order == keys::order_of(event.id) {
            self.put(Family::Timeline, &key, &[event.id.bytes()]);
        } else {
            self.put(Family::Timeline, &key, &[event.id.bytes(), &order.to_be_bytes()]);
        }
    }

    /// Adds a value at a sequence of its series.
    pub fn value(&mut self, series: u64, sequence: u64, id: EventId, order: TimeOrder, payload: &[u8]) {
        let key = keys::pair(series, sequence);
        if order == keys::order_of(id) {
            self.put(Family::Values, &key, &[id.bytes(), payload]);
        } else {
            self.put(Family::Values, &key, &[id.bytes(), &[0], &order.to_be_bytes(), payload]);
        }
    }

    /// Adds a cloud event at a sequence of the device's queue.
    pub fn queued(&mut self, device: u64, sequence: u64, event: &NewCloudEvent) {
        let expires = event.expires_at.map_or(i64::MAX, Timestamp::millis);
        let element = event.element.as_bytes();
        self.put(
            Family::Queue,
            &keys::pair(device, sequence),
            &[
                event.id.bytes(),
                &expires.to_be_bytes(),
                &(element.len() as u16).to_be_bytes(),
                element,
                event.payload.bytes(),
            ],
        );
    }
}

/// Reads encoded rows, in order.
pub fn read(mut rest: &[u8]) -> impl Iterator<Item = BatchRow<'_>> {
    std::iter::from_fn(move || {
        let (header, body) = rest.split_first_chunk::<ROW_HEADER_BYTES>()?;
        let key_length = usize::from(u16::from_le_bytes([header[1], header[2]]));
        let length = u32::from_le_bytes([header[3], header[4], header[5], header[6]]) as usize;
        let (key, body) = body.split_at_checked(key_length)?;
        let (value, body) = body.split_at_checked(length)?;
        rest = body;
        let change = match header[0] >> 4 {
            0 => Change::Put,
            1 => Change::Delete,
            _ => Change::DeleteRange,
        };
        Some(BatchRow { change, family: header[0] & 15, key, value })
    })
}

/// Reader of the parts of a value, in order.
pub struct Parts<'a>(pub &'a [u8]);

impl<'a> Parts<'a> {
    /// Reads the next `length` bytes.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (part, rest) = self.0.split_at_checked(length).ok_or_else(|| damaged("a row is too short"))?;
        self.0 = rest;
        Ok(part)
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (part, rest) = self.0.split_first_chunk::<N>().ok_or_else(|| damaged("a row is too short"))?;
        self.0 = rest;
        Ok(*part)
    }

    /// Reads the next short integer.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.chunk()?))
    }

    /// Reads the next integer.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.chunk()?))
    }

    /// Reads the next signed integer.
    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.chunk()?))
    }

    /// Reads the next id.
    pub fn id(&mut self) -> Result<EventId> {
        Ok(EventId::from_bytes(self.chunk()?))
    }

    /// Reads the next order.
    pub fn order(&mut self) -> Result<TimeOrder> {
        Ok(TimeOrder::from_be_bytes(self.chunk()?))
    }

    /// Reads a text with its length before it.
    pub fn name(&mut self) -> Result<&'a str> {
        let length = u16::from_be_bytes(self.chunk()?);
        text(self.take(usize::from(length))?)
    }
}

/// Decodes stored text.
pub fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| damaged("a name is no text"))
}

/// Returns the number at the end of a key.
pub fn trailing(key: &[u8]) -> Result<u64> {
    keys::trailing(key).ok_or_else(|| damaged("a key is too short"))
}

/// Builds the error for stored data that cannot be read.
pub fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(what.to_owned())
}

/// Converts an error of the database.
pub fn failed(error: rocksdb::Error) -> StoreError {
    match error.kind() {
        rocksdb::ErrorKind::Corruption => StoreError::Damaged(error.into_string()),
        _ => StoreError::unavailable(error),
    }
}

/// Copies a payload.
pub fn json(bytes: &[u8]) -> RawJson {
    RawJson::trusted(Bytes::copy_from_slice(bytes))
}

/// Reads the device of an event in the history.
pub fn event_device(value: &[u8]) -> Result<u64> {
    let mut parts = Parts(value);
    parts.take(1)?;
    parts.u64()
}

/// Reads an event of the history.
pub fn read_event(device: DeviceId, id: EventId, value: &[u8]) -> Result<Event> {
    let mut parts = Parts(value);
    let kind = keys::kind_of(parts.take(1)?[0]);
    parts.u64()?;
    let element: Arc<str> = parts.name()?.into();
    let length = parts.u32()? as usize;
    let errors = parts.take(length)?;
    let errors: Vec<EventError> = if errors.is_empty() {
        Vec::new()
    } else {
        serde_json::from_slice(errors).map_err(|_| damaged("errors of an event cannot be read"))?
    };
    Ok(Event { id, received_at: id.minted_at(), kind, device, element, payload: json(parts.0), errors })
}

/// Reads a row of a timeline: the event's id and its order.
pub fn read_timeline(value: &[u8]) -> Result<(EventId, TimeOrder)> {
    let mut parts = Parts(value);
    let id = parts.id()?;
    let order = if parts.0.is_empty() { keys::order_of(id) } else { parts.order()? };
    Ok((id, order))
}

/// Reads a row of a series: the value's id, its order, its payload.
pub fn read_value(value: &[u8]) -> Result<(EventId, TimeOrder, &[u8])> {
    let mut parts = Parts(value);
    let id = parts.id()?;
    if parts.0.first() != Some(&0) {
        return Ok((id, keys::order_of(id), parts.0));
    }
    parts.take(1)?;
    let order = parts.order()?;
    Ok((id, order, parts.0))
}

/// Row of a queue.
pub struct Queued<'a> {
    /// Id of the event.
    pub id: EventId,
    /// Moment at which the event expires, in milliseconds.
    pub expires: i64,
    /// Element that sent it.
    pub element: &'a str,
    /// Payload.
    pub payload: &'a [u8],
}

/// Reads a row of a queue.
pub fn read_queued(value: &[u8]) -> Result<Queued<'_>> {
    let mut parts = Parts(value);
    Ok(Queued { id: parts.id()?, expires: parts.i64()?, element: parts.name()?, payload: parts.0 })
}

/// Converts a failed check, with what an operator can do about it.
impl From<CheckError> for StoreError {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::Damaged(what) => Self::Damaged(what),
            CheckError::Lost(loss) => Self::Damaged(format!(
                "{loss}. Nothing was changed. Bring a backup back, or go on without them with isobar recover"
            )),
            CheckError::UnfinishedManifest(tail) => Self::unavailable(format!(
                "{tail}, as a power cut leaves it: no damage, and nothing of it was acknowledged. The next start of the \
                 platform cuts that end off; until then telemetry cannot be read without changing it"
            )),
            CheckError::Io(error) => Self::unavailable(error),
        }
    }
}
