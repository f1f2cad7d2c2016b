//! Streams events to followers: in one order, in which each event keeps its position.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use isobar_model::access::{CanRead, Lineage};
use isobar_model::event::Event;
use isobar_model::ids::{DeviceId, DeviceRef, EventId};
use tokio::sync::broadcast;

/// Position of an event in the order in which events become durable, which is the order in which followers receive
/// them.
///
/// Ids increase with the moments at which runs begin, and runs overtake each other. An event that is the newest of all
/// when it becomes durable is at its own id; one that is late, because a newer one was durable before it, is behind
/// that newer one. A position therefore decides which events were sent before it and which were not, even across
/// restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamPosition {
    /// Number of the mark that reaches the event, and of its database, in a store of several databases; else 0.
    pub mark: u64,
    /// Newest event that was sent by then.
    pub newest: EventId,
    /// Number of the late event, or 0 for the newest event itself.
    pub late: u64,
}

impl StreamPosition {
    /// Returns the position before all others.
    pub fn first() -> Self {
        Self { mark: 0, newest: EventId::from_bytes([0; 16]), late: 0 }
    }

    /// Returns the position of an event that was the newest when it became durable.
    pub const fn of(id: EventId) -> Self {
        Self { mark: 0, newest: id, late: 0 }
    }
}

/// Order to which positions belong. Those of different orders cannot be compared: a store may have been moved, or have got
/// a second database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionOrder {
    /// That of a folder.
    Embedded = 1,
    /// That of one database.
    Postgres = 2,
    /// That of several databases.
    Spread = 3,
}

impl TryFrom<u8> for PositionOrder {
    type Error = ();

    fn try_from(number: u8) -> Result<Self, ()> {
        [Self::Embedded, Self::Postgres, Self::Spread].into_iter().find(|order| *order as u8 == number).ok_or(())
    }
}

/// Events of a commit, for followers.
#[derive(Debug)]
pub struct StreamedEvents {
    /// Lineage of the device's organization.
    pub lineage: Arc<Lineage>,
    /// Events.
    pub events: Vec<Arc<Event>>,
}

/// Message to a follower.
#[derive(Clone, Debug)]
pub enum StreamMessage {
    /// An event is durable. Positions increase from one message to the next.
    Event {
        /// Position of the event.
        position: StreamPosition,
        /// Device of the event.
        device: DeviceId,
        /// Lineage of the device's organization.
        lineage: Arc<Lineage>,
        /// Event, if it is still in memory for followers that have not received it: the bytes of events in memory are
        /// bounded. A dropped one is in history.
        event: Weak<Event>,
    },
    /// Durable events are missing because they were committed before there were followers: they are in history. The
    /// receiver must follow again.
    Gap,
}

/// Subscription of a follower.
#[derive(Debug)]
pub struct Following {
    /// Position up to which events are in history; later ones are received.
    pub from: StreamPosition,
    /// Receiver of the events as they become durable.
    pub messages: broadcast::Receiver<StreamMessage>,
}

/// Devices whose events a follower catches up with, each once.
#[derive(Clone, Debug, Default)]
pub struct Followed(Arc<[DeviceRef]>);

impl Followed {
    /// Collects the devices of permits.
    pub fn of(permits: impl IntoIterator<Item = CanRead<DeviceRef>>) -> Self {
        let mut devices: Vec<DeviceRef> = permits.into_iter().map(|permit| *permit.target()).collect();
        devices.sort_unstable_by_key(|device| device.key);
        devices.dedup_by_key(|device| device.key);
        Self(devices.into())
    }

    /// Returns the number of devices.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns some of the devices, by their places.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> Self {
        Self(self.0.get(range).unwrap_or_default().into())
    }

    /// Returns the devices, by ascending number.
    pub(crate) fn devices(&self) -> &[DeviceRef] {
        &self.0
    }

    /// Finds the index of the device with this number.
    pub(crate) fn find(&self, key: u64) -> Option<usize> {
        self.0.binary_search_by_key(&key, |device| device.key.0).ok()
    }
}

/// Function that writes an event as followers of a stream receive it.
pub type EventWriter = fn(&Event, &mut Vec<u8>);

/// Piece of a stream: serialized events, one after the other.
#[derive(Debug)]
pub struct StreamPiece {
    /// Text of all events.
    pub text: Bytes,
    /// Positions and ends of the events, in the order of their positions.
    pub events: Vec<PieceEvent>,
}

/// Event in a [`StreamPiece`].
#[derive(Clone, Copy, Debug)]
pub struct PieceEvent {
    /// Position in the order of streams.
    pub position: StreamPosition,
    /// Device of the event.
    pub device: DeviceId,
    /// End of its text in the piece; the text begins at the end of the previous one.
    pub end: usize,
}

/// Event that was found: its position, the index of its device among the followed ones, its id.
pub(crate) type FoundEvent = (StreamPosition, u32, EventId);

/// Events that became durable between two positions. They are not read yet.
#[derive(Debug)]
pub struct StreamCursor {
    pub(crate) devices: Followed,
    /// Events in the order of their positions.
    pub(crate) found: VecDeque<FoundEvent>,
    pub(crate) until: StreamPosition,
}

impl StreamCursor {
    /// Returns the position up to which the events are complete.
    pub fn until(&self) -> StreamPosition {
        self.until
    }

    /// Returns how many of them are not read yet.
    pub fn left(&self) -> usize {
        self.found.len()
    }
}
