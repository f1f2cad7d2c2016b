//! Defines the byte layout of the embedded store. All integers are big-endian, so that byte order is number order.
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
//! A series record: series u64, created i64, count u64, bytes u64, order 16, last values (JSON). It covers the first
//! `count` values; later rows are replayed over it.
//!
//! Sequences of a timeline and of a series are dense, so counting is subtracting. Timelines lose their oldest rows to
//! retention, one by one and in any order; a series is removed as a whole, and its number is never reused. Values of it
//! past retention lie below its *floor*: readers never see them, even if their rows still exist.
//!
//! A *late* event became durable after one with a larger id: runs overtake each other. Followers receive events in the
//! order in which they became durable, and a late one is searched behind the newest event that was durable before it.
//! Late events are numbered; the order of those rows increases with their numbers, but not strictly, and numbers have
//! gaps.
//!
//! The *order* of a row is its position in time: its id, or the previous order plus one if ids did not increase (former
//! versions, when the clock had stepped back across a restart). It strictly increases along a timeline and a series, so
//! time is found by bisection, and a row is shown at the moment of its order. It is only written if it differs from the
//! id; no JSON text begins with a zero byte, which marks it in a value.

use isobar_model::event::EventType;

pub use crate::telemetry::time_order::{TimeOrder, id_of, moment, order_at, order_of};

/// Version of this layout.
pub const FORMAT: u32 = 2;
/// Version of the layout of a store in which no series has a floor. Versions of the program without floors can read it.
pub const FORMAT_WITHOUT_FLOORS: u32 = 1;

/// Column family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Family {
    /// Counters, the version of the format, and rows to be reclaimed.
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
    /// Deferred work.
    Outbox = 6,
}

impl Family {
    /// All families.
    pub const ALL: [Family; 7] =
        [Family::Meta, Family::History, Family::Timeline, Family::Values, Family::State, Family::Queue, Family::Outbox];

    /// Returns the name in the database.
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

/// Key of the version of the format.
pub const META_FORMAT: &[u8] = b"format";
/// Key of the identity of the store, which its copies share.
pub const META_IDENTITY: &[u8] = b"identity";
/// Key of the next free series number.
pub const META_SERIES: &[u8] = b"series";
/// Key of the moment before which history is forgotten.
pub const META_CUTOFF: &[u8] = b"cutoff";
/// Key of the newest event and of the number of the last late one.
pub const META_NEWEST: &[u8] = b"newest";
/// Prefix of late events.
pub const LATE: u8 = b'l';
/// Kind of the rows that list a device's late events in its timeline once more, by their numbers.
pub const KIND_LATE: u8 = 2;
/// Key of the moment up to which the clock is trusted.
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
/// Key of the greatest device number that was known when a part of the log was lost.
pub const META_DEVICES: &[u8] = b"devices";

/// Tag of a series record.
pub const STATE_SERIES: u8 = 1;
/// Tag of an element's state.
pub const STATE_ELEMENT: u8 = 2;
/// Tag of an idempotency key.
pub const STATE_KEY: u8 = 3;
/// Tag of a series' floor.
pub const STATE_FLOOR: u8 = 4;

/// Encodes a kind of event as a byte.
pub const fn kind_byte(kind: EventType) -> u8 {
    match kind {
        EventType::DeviceEvent => 0,
        EventType::CloudEvent => 1,
    }
}

/// Decodes a kind of event from its byte.
pub const fn kind_of(byte: u8) -> EventType {
    if byte == 0 { EventType::DeviceEvent } else { EventType::CloudEvent }
}

/// Builds a key of two integers: a series or a device, and a sequence.
pub fn pair(first: u64, second: u64) -> [u8; 16] {
    (u128::from(first) << 64 | u128::from(second)).to_be_bytes()
}

/// Length to which the end of a range of keys is padded: no key is longer.
const END_BYTES: usize = 512;

/// Returns a bound for the keys before this one: all of them are at or before it, except those of which this key is a
/// prefix. Returns `None` if there are none.
pub fn before(key: &[u8]) -> Option<Vec<u8>> {
    let at = key.iter().rposition(|byte| *byte > 0)?;
    let mut before = key[..=at].to_vec();
    before[at] -= 1;
    before.resize(END_BYTES, u8::MAX);
    Some(before)
}

/// Length of the prefix of a timeline row's key, before its sequence: device and kind.
pub const TIMELINE_PREFIX_BYTES: usize = 9;
/// Length of the prefix of a value row's key, before its sequence: the series.
pub const VALUES_PREFIX_BYTES: usize = 8;

/// Builds the key of a timeline row.
pub fn timeline(device: u64, kind: u8, sequence: u64) -> [u8; 17] {
    let mut key = [kind; 17];
    key[..8].copy_from_slice(&device.to_be_bytes());
    key[TIMELINE_PREFIX_BYTES..].copy_from_slice(&sequence.to_be_bytes());
    key
}

/// Builds the key of a row of a device's state.
pub fn state(device: u64, tag: u8, name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(9 + name.len());
    key.extend_from_slice(&device.to_be_bytes());
    key.push(tag);
    key.extend_from_slice(name.as_bytes());
    key
}

/// Key beyond every key of a family.
pub const AFTER_ALL: [u8; 17] = [u8::MAX; 17];

/// Builds the key of a row about a numbered item: garbage, or a parked entry.
pub fn about(prefix: [u8; 2], number: u64) -> [u8; 10] {
    let mut key = [0; 10];
    key[..2].copy_from_slice(&prefix);
    key[2..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Builds the key of a row about the values of a series below a sequence.
pub fn dropped(series: u64, below: u64) -> [u8; 18] {
    let mut key = [0; 18];
    key[..2].copy_from_slice(&GARBAGE_VALUES);
    key[2..].copy_from_slice(&pair(series, below));
    key
}

/// Builds the key of a row that marks an event as late; with the first bytes of an id, the start of the rows of such
/// ids.
pub fn late(id: &[u8; 16]) -> [u8; 17] {
    let mut key = [LATE; 17];
    key[1..].copy_from_slice(id);
    key
}

/// Returns the integer at the end of a key.
pub fn trailing(key: &[u8]) -> Option<u64> {
    key.last_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes))
}

/// Returns the end of the keys that begin with this number.
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
        fn end_before_a_key_orders_like_the_key(
            key in prop::collection::vec(0..3_u8, 1..6),
            other in prop::collection::vec(prop_oneof![0..3_u8, Just(u8::MAX)], 1..6),
        ) {
            prop_assume!(!key.starts_with(&other));
            let end = before(&key);
            prop_assert_eq!(end.is_some_and(|end| other <= end), other < key);
        }
    }
}
