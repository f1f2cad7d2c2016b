//! The byte layout of the embedded store. All integers are big-endian, so that byte order is number order.
//!
//! | family   | key                                      | value                                                     |
//! |----------|------------------------------------------|-----------------------------------------------------------|
//! | default  | `format`                                 | version u32                                               |
//! |          | `series`                                 | the next free series number: u64                          |
//! |          | `cutoff`                                 | history before this millisecond is forgotten: i64         |
//! |          | `newest`                                 | the newest event's id 16, the number of the last late u64 |
//! |          | `l` event id 16                          | a late event: the newest before it 16, its number u64     |
//! |          | `seen`                                   | up to when the clock is believed, in milliseconds: i64    |
//! |          | `gs` series u64                          | a deleted series, to be reclaimed: its bytes u64          |
//! |          | `gd` device u64                          | a forgotten device: its timelines' floors, 2 x u64        |
//! |          | `gv` series u64, sequence u64            | values below it are dropped, to be reclaimed: their bytes |
//! |          | `op` number u64                          | a parked entry of the outbox: why                         |
//! |          | `nd` device u64                          | the registry lost devices after it, up to this one: u64   |
//! |          | `devices`                                | the greatest device number known when log was lost: u64   |
//! | history  | event id 16                              | kind u8, device u64, element u16+n, errors u32+n, payload |
//! | timeline | device u64, kind u8, sequence u64        | event id 16 [order 16]                                    |
//! |          | device u64, 2, number u64                | a late event: its id 16, the newest before it 16          |
//! | values   | series u64, sequence u64                 | value id 16 [0x00, order 16] payload                      |
//! | state    | device u64, 1, element                   | a series record                                           |
//! |          | device u64, 2, element                   | the element's state                                       |
//! |          | device u64, 3, idempotency key           | the answer's id 16, expiry i64                            |
//! |          | device u64, 4, element                   | its series u64, its floor u64: see below                  |
//! | queue    | device u64, sequence u64                 | event id 16, expiry i64, element u16+n, payload           |
//! | outbox   | number u64                               | device u64, work                                          |
//!
//! A series record: series u64, created i64, count u64, bytes u64, order 16, last values (JSON): true for the first
//! `count` values; the rows after them are replayed over it.
//!
//! Sequences of a timeline and of a series are dense, so counting is subtracting. Timelines lose their oldest rows to
//! retention, one by one and in any order; a series goes as a whole, and its number never comes again. What of it is no
//! longer kept lies below its *floor*: nobody is shown that, whether its rows are there still or not.
//!
//! A *late* event became durable after one with a larger id: runs overtake each other. Events are followed in the order in
//! which they became durable, and a late one is looked for behind the newest event that was there before it. Late events
//! are numbered through; the order of those rows grows with their numbers, but not strictly, and numbers have gaps.
//!
//! The *order* of a row is its place in time: its id, or the order before it plus one where ids did not grow (former versions,
//! when the clock had stepped back across a restart). It strictly grows along a timeline and a series, so time is found by
//! bisection, and a row is shown at the moment of its order. It is only written where it differs from the id; no JSON text
//! begins with a zero byte, which marks it in a value.

use isobar_model::event::EventType;
use isobar_model::ids::EventId;
use isobar_model::time::Timestamp;
use uuid::Uuid;

/// The version of this layout.
pub const FORMAT: u32 = 2;
/// That of a store in which no series has a floor. It can be read by versions of the program that know of none.
pub const FORMAT_WITHOUT_FLOORS: u32 = 1;

/// A column family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Family {
    /// Counters, the format's version, what is to be reclaimed.
    Meta = 0,
    /// Events by id: by time.
    History = 1,
    /// Events of a device, in order.
    Timeline = 2,
    /// Values of a series, in order.
    Values = 3,
    /// Small rows of a device.
    State = 4,
    /// Queued cloud events of a device.
    Queue = 5,
    /// Work for afterwards.
    Outbox = 6,
}

impl Family {
    /// Every family.
    pub const ALL: [Family; 7] =
        [Family::Meta, Family::History, Family::Timeline, Family::Values, Family::State, Family::Queue, Family::Outbox];

    /// Its name in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Meta => "default",
            Family::History => "history",
            Family::Timeline => "timeline",
            Family::Values => "values",
            Family::State => "state",
            Family::Queue => "queue",
            Family::Outbox => "outbox",
        }
    }
}

/// Key of the format's version.
pub const META_FORMAT: &[u8] = b"format";
/// Key of the next free series number.
pub const META_SERIES: &[u8] = b"series";
/// Key of the moment before which history is forgotten.
pub const META_CUTOFF: &[u8] = b"cutoff";
/// Key of the newest event and of the number of the last late one.
pub const META_NEWEST: &[u8] = b"newest";
/// Prefix of late events.
pub const LATE: u8 = b'l';
/// The kind under which a device's late events stand in its timeline once more, by their numbers.
pub const KIND_LATE: u8 = 2;
/// Key of the moment up to which the clock is believed.
pub const META_SEEN: &[u8] = b"seen";
/// Prefix of deleted series.
pub const GARBAGE_SERIES: [u8; 2] = *b"gs";
/// Prefix of dropped values.
pub const GARBAGE_VALUES: [u8; 2] = *b"gv";
/// Prefix of forgotten devices.
pub const GARBAGE_DEVICE: [u8; 2] = *b"gd";
/// Prefix of parked entries of the outbox.
pub const PARKED: [u8; 2] = *b"op";
/// Prefix of devices that the registry has lost.
pub const LOST_DEVICES: [u8; 2] = *b"nd";
/// Key of the greatest number of a device that was known when a part of the log was lost.
pub const META_DEVICES: &[u8] = b"devices";

/// Tag of a series record.
pub const STATE_SERIES: u8 = 1;
/// Tag of an element's state.
pub const STATE_ELEMENT: u8 = 2;
/// Tag of an idempotency key.
pub const STATE_KEY: u8 = 3;
/// Tag of a series' floor.
pub const STATE_FLOOR: u8 = 4;

/// The place of an event or value in time: see the layout.
pub type TimeOrder = u128;

/// The order of an id that grows.
pub fn order_of(id: EventId) -> TimeOrder {
    id.0.as_u128()
}

/// The id with these 128 bits.
pub fn id_of(bits: u128) -> EventId {
    EventId(Uuid::from_u128(bits))
}

/// The moment of an order.
pub fn moment(order: TimeOrder) -> Timestamp {
    Timestamp::from_millis(i64::try_from(order >> 80).unwrap_or(i64::MAX))
}

/// The smallest order at that moment.
pub fn order_at(moment: Timestamp) -> TimeOrder {
    let millis = u128::from(moment.millis().max(0).unsigned_abs());
    if millis >= 1 << 48 { TimeOrder::MAX } else { millis << 80 }
}

/// A kind of event as a byte.
pub const fn kind_byte(kind: EventType) -> u8 {
    match kind {
        EventType::DeviceEvent => 0,
        EventType::CloudEvent => 1,
    }
}

/// A kind of event from its byte.
pub const fn kind_of(byte: u8) -> EventType {
    if byte == 0 { EventType::DeviceEvent } else { EventType::CloudEvent }
}

/// Two integers after each other: a series or a device, and a sequence.
pub fn pair(first: u64, second: u64) -> [u8; 16] {
    (u128::from(first) << 64 | u128::from(second)).to_be_bytes()
}

/// Bytes of where keys end: no key is longer.
const END_BYTES: usize = 512;

/// Where the keys before this one end: at or before it lie all of them, but those that this one begins with. None: there are none.
pub fn before(key: &[u8]) -> Option<Vec<u8>> {
    let at = key.iter().rposition(|byte| *byte > 0)?;
    let mut before = key[..=at].to_vec();
    before[at] -= 1;
    before.resize(END_BYTES, u8::MAX);
    Some(before)
}

/// How many bytes of a timeline's row say whose it is and of which kind, before its sequence.
pub const TIMELINE_PREFIX_BYTES: usize = 9;
/// How many bytes of a value's row say of which series it is, before its sequence.
pub const VALUES_PREFIX_BYTES: usize = 8;

/// A row of a timeline.
pub fn timeline(device: u64, kind: u8, sequence: u64) -> [u8; 17] {
    let mut key = [kind; 17];
    key[..8].copy_from_slice(&device.to_be_bytes());
    key[TIMELINE_PREFIX_BYTES..].copy_from_slice(&sequence.to_be_bytes());
    key
}

/// A row of a device's state.
pub fn state(device: u64, tag: u8, name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(9 + name.len());
    key.extend_from_slice(&device.to_be_bytes());
    key.push(tag);
    key.extend_from_slice(name.as_bytes());
    key
}

/// Beyond every key of a family.
pub const AFTER_ALL: [u8; 17] = [u8::MAX; 17];

/// A row about what has a number: garbage, a parked entry.
pub fn about(prefix: [u8; 2], number: u64) -> [u8; 10] {
    let mut key = [0; 10];
    key[..2].copy_from_slice(&prefix);
    key[2..].copy_from_slice(&number.to_be_bytes());
    key
}

/// A row about the values of a series below a sequence.
pub fn dropped(series: u64, below: u64) -> [u8; 18] {
    let mut key = [0; 18];
    key[..2].copy_from_slice(&GARBAGE_VALUES);
    key[2..].copy_from_slice(&pair(series, below));
    key
}

/// A row that says of an event that it is late; with the first bytes of an id, where those of such ids begin.
pub fn late(id: &[u8; 16]) -> [u8; 17] {
    let mut key = [LATE; 17];
    key[1..].copy_from_slice(id);
    key
}

/// The integer at the end of a key.
pub fn trailing(key: &[u8]) -> Option<u64> {
    key.last_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes))
}

/// What follows the keys that begin with this number.
pub fn after(number: u64) -> Vec<u8> {
    match number.checked_add(1) {
        Some(next) => next.to_be_bytes().to_vec(),
        None => vec![0xff; 9],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_lies_before_a_key_is_before_the_end_of_that(
            key in prop::collection::vec(0..3_u8, 1..6),
            other in prop::collection::vec(prop_oneof![0..3_u8, Just(u8::MAX)], 1..6),
        ) {
            prop_assume!(!key.starts_with(&other));
            let end = before(&key);
            prop_assert_eq!(end.is_some_and(|end| other <= end), other < key);
        }
    }
}
