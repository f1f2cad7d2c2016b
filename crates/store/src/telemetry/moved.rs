//! Defines the rows of a store that is moved to another one: what a device has, in a fixed order, from any place on.

use isobar_model::ids::EventId;

use super::time_order::TimeOrder;

/// Place among all rows of a store, from which a move continues. All rows before it are moved.
///
/// Rows come device by device, in the order of their numbers; those of a device part by part; those of the outbox are last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovePlace {
    /// Number of the device.
    pub device: u64,
    /// Part of the device's rows.
    pub part: MovedPart,
    /// Name within the part, from which it continues.
    pub name: Vec<u8>,
    /// Number within the part, from which it continues.
    pub next: u64,
}

/// Part of a device's rows, in the order in which they are moved; or the outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum MovedPart {
    /// Device events of the history.
    #[default]
    DeviceEvents = 0,
    /// Cloud events of the history.
    CloudEvents = 1,
    /// The head, the series and the elements' states.
    State = 2,
    /// Values, series by series.
    Values = 3,
    /// Queued cloud events.
    Queue = 4,
    /// Idempotency keys.
    Keys = 5,
    /// Entries of the outbox, of all devices.
    Outbox = 6,
    /// Nothing: all rows are moved.
    End = 7,
}

impl MovedPart {
    /// Returns the part with this number, if there is one.
    pub fn of(number: i16) -> Option<Self> {
        use MovedPart::{CloudEvents, DeviceEvents, End, Keys, Outbox, Queue, State, Values};
        [DeviceEvents, CloudEvents, State, Values, Queue, Keys, Outbox, End]
            .into_iter()
            .find(|part| *part as i16 == number)
    }
}

impl MovePlace {
    /// Returns the place of the first row of a part.
    pub fn begin(device: u64, part: MovedPart) -> Self {
        Self { device, part, ..Self::default() }
    }

    /// Returns true if no row of the device is before this place, and all rows of earlier devices are.
    pub fn is_between_devices(&self) -> bool {
        match self.part {
            MovedPart::DeviceEvents => self.next == 0,
            MovedPart::Outbox => self.next == 0,
            MovedPart::End => true,
            _ => false,
        }
    }
}

/// A row of a device.
#[derive(Clone, Copy, Debug)]
pub enum MovedRow<'a> {
    /// The ends of the device's history, and of its queue.
    Head {
        /// Numbers of the next events: device events, cloud events.
        next: [u64; 2],
        /// Positions in time of the newest events.
        orders: [TimeOrder; 2],
        /// Number of the next queued event.
        queued: u64,
    },
    /// An event of the history.
    Event(MovedEvent<'a>),
    /// A series with its last values.
    Series {
        /// Name of the element.
        element: &'a str,
        /// Number of the series.
        series: u64,
        /// Time of its first value, in milliseconds.
        created: i64,
        /// Values that were ever stored.
        count: u64,
        /// Number below which values were dropped.
        floor: u64,
        /// Bytes of the payloads.
        bytes: u64,
        /// Position in time of the newest value.
        order: TimeOrder,
        /// The last values.
        last: &'a [u8],
    },
    /// The state of an element.
    State {
        /// Name of the element.
        element: &'a str,
        /// The state.
        state: &'a [u8],
    },
    /// A stored value.
    Value {
        /// Number of the series.
        series: u64,
        /// Number within the series.
        number: u64,
        /// Position in time.
        order: TimeOrder,
        /// Identifier.
        id: EventId,
        /// Payload.
        payload: &'a [u8],
    },
    /// A queued cloud event.
    Queued {
        /// Number within the queue.
        number: u64,
        /// Identifier.
        id: EventId,
        /// Name of the element.
        element: &'a str,
        /// Payload.
        payload: &'a [u8],
        /// Time at which it expires, in milliseconds.
        expires: Option<i64>,
    },
    /// An idempotency key.
    Key {
        /// The key.
        key: &'a str,
        /// The identifier that it answers.
        answer: EventId,
        /// Time at which it expires, in milliseconds.
        expires: i64,
    },
    /// An entry of the outbox.
    Outbox {
        /// Number of the entry.
        number: u64,
        /// The work.
        work: &'a [u8],
        /// The reason for which it is parked.
        parked: Option<&'a str>,
    },
}

/// An event of the history, as it is moved.
#[derive(Clone, Copy, Debug)]
pub struct MovedEvent<'a> {
    /// 0 for a device event, 1 for a cloud event.
    pub kind: u8,
    /// Number within the device's events of this kind.
    pub number: u64,
    /// Position in time.
    pub order: TimeOrder,
    /// Identifier.
    pub id: EventId,
    /// Name of the element.
    pub element: &'a str,
    /// Payload.
    pub payload: &'a [u8],
    /// Errors of the run, as JSON.
    pub errors: Option<&'a str>,
    /// Place in the order of streams, before those of all later events.
    pub place: MovedEventPlace,
}

/// Place of a moved event in the order of streams: that of its anchor, and its number among those that are late.
///
/// The anchor is the event itself, or for a late one (see [`StreamPosition`](super::StreamPosition)) the newest event
/// before it. Numbers of the anchors of two events compare as the anchors do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MovedEventPlace {
    /// Number of the anchor; negative.
    pub anchor: i64,
    /// Number among the late events, or 0.
    pub late: i32,
}

/// Bits of an anchor's number that tell anchors of the same moment and counter apart.
const ANCHOR_PLACE_BITS: u32 = 6;
/// Bits of an anchor's number for its moment, in milliseconds, and (next constant) for the counter within it.
const ANCHOR_MILLIS_BITS: u32 = 44;
const ANCHOR_COUNTER_BITS: u32 = 12;

impl MovedEventPlace {
    /// Returns the place of an event. `rank` is the number of events before the anchor that share the upper half of its bits,
    /// and `is_there` is false if the anchor itself was removed.
    pub fn new(anchor: TimeOrder, (rank, is_there): (u64, bool), late: u64) -> Self {
        let millis = (anchor >> 80).min((1 << ANCHOR_MILLIS_BITS) - 1);
        let counter = anchor >> 64 & ((1 << ANCHOR_COUNTER_BITS) - 1);
        let place = (u128::from(rank) * 2 + u128::from(is_there)).min((1 << ANCHOR_PLACE_BITS) - 1);
        let number = (millis << ANCHOR_COUNTER_BITS | counter) << ANCHOR_PLACE_BITS | place;
        let bits = ANCHOR_MILLIS_BITS + ANCHOR_COUNTER_BITS + ANCHOR_PLACE_BITS;
        let anchor = i64::try_from(number).unwrap_or(i64::MAX).saturating_sub(1 << bits);
        Self { anchor, late: i32::try_from(late).unwrap_or(i32::MAX) }
    }
}

/// Takes the rows of a store that is moved.
pub trait MovedRowSink {
    /// Takes a row.
    fn take(&mut self, device: u64, row: &MovedRow<'_>);
    /// Counts an event that a device's timeline names and history lacks: it cannot be read, before and after a move.
    fn lacks_event(&mut self, device: u64);
    /// Returns true if no more rows should be read for now.
    fn is_full(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_moved_events_order_like_positions_of_streams() {
        let anchor = |millis: u128, counter: u128, low: u128| millis << 80 | 7 << 76 | counter << 64 | low;
        let places = [
            MovedEventPlace::new(anchor(5, 0, 9), (0, true), 0),
            MovedEventPlace::new(anchor(5, 0, 9), (0, true), 4),
            MovedEventPlace::new(anchor(5, 0, 11), (1, false), 5),
            MovedEventPlace::new(anchor(5, 0, 12), (1, true), 0),
            MovedEventPlace::new(anchor(5, 3, 0), (0, true), 0),
            MovedEventPlace::new(anchor(5, 3, 0), (0, true), 6),
            MovedEventPlace::new(anchor(1_800_000_000_000, 0xfff, 1), (0, true), 0),
            MovedEventPlace::new(u128::MAX, (9_999, true), u64::MAX),
        ];
        assert!(places.is_sorted_by(|one, next| one < next), "{places:?}");
        assert!(places.iter().all(|place| place.anchor < 0));
    }
}
