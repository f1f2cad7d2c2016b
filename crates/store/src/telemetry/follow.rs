//! Events on their way to those who follow them: in one order, in which each event keeps its position.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use isobar_model::access::{CanRead, Lineage};
use isobar_model::event::Event;
use isobar_model::ids::{DeviceId, DeviceRef, EventId};
use tokio::sync::broadcast;

/// The position of an event in the order in which events become durable, which is the order in which followers receive
/// them.
///
/// Ids grow with the moments at which runs begin, and runs overtake each other. An event that is the newest of all when it
/// becomes durable stands at its own id; one that is late, because a newer one was durable before it, behind that newer
/// one. So a position tells which events were sent before it and which were not, across restarts too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamPosition {
    /// The newest event that was sent by then.
    pub newest: EventId,
    /// Which of the late ones it is; they are numbered through. 0: it is the newest itself.
    pub late: u64,
}

impl StreamPosition {
    /// The position before all others.
    pub fn first() -> Self {
        Self { newest: EventId::from_bytes([0; 16]), late: 0 }
    }

    /// The position of an event that was the newest when it became durable.
    pub const fn of(id: EventId) -> Self {
        Self { newest: id, late: 0 }
    }
}

/// The events of a commit, for followers.
#[derive(Debug)]
pub struct StreamedEvents {
    /// Where the device belongs.
    pub lineage: Arc<Lineage>,
    /// The events.
    pub events: Vec<Arc<Event>>,
}

/// What a follower receives.
#[derive(Clone, Debug)]
pub enum StreamMessage {
    /// An event is durable. Places only grow from one to the next.
    Event {
        /// Its position.
        position: StreamPosition,
        /// Its device.
        device: DeviceId,
        /// Where that belongs.
        lineage: Arc<Lineage>,
        /// The event itself, if it is still in memory for followers that have not received it: what they all leave
        /// waiting is bounded in bytes. One that has gone is in history.
        event: Weak<Event>,
    },
    /// Events are durable that nobody has prepared for followers, for they began before anybody followed: they are found
    /// in history. Who receives this follows anew.
    Gap,
}

/// Whoever follows.
#[derive(Debug)]
pub struct Following {
    /// What came up to here is in history; what comes later is received.
    pub from: StreamPosition,
    /// The events as they become durable.
    pub messages: broadcast::Receiver<StreamMessage>,
}

/// Devices whose events somebody catches up with, each once.
#[derive(Clone, Debug, Default)]
pub struct Followed(Arc<[DeviceRef]>);

impl Followed {
    /// Those whom the permits are for.
    pub fn of(permits: impl IntoIterator<Item = CanRead<DeviceRef>>) -> Self {
        let mut devices: Vec<DeviceRef> = permits.into_iter().map(|permit| *permit.target()).collect();
        devices.sort_unstable_by_key(|device| device.key);
        devices.dedup_by_key(|device| device.key);
        Self(devices.into())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// By their numbers, which grow.
    pub(crate) fn devices(&self) -> &[DeviceRef] {
        &self.0
    }

    /// The position of the one with this number.
    pub(crate) fn find(&self, key: u64) -> Option<usize> {
        self.0.binary_search_by_key(&key, |device| device.key.0).ok()
    }
}

/// Writes an event as it goes out to those who follow a stream.
pub type EventWriter = fn(&Event, &mut Vec<u8>);

/// Events that were read, one behind the other as they go out.
#[derive(Debug)]
pub struct StreamPiece {
    /// All of them.
    pub text: Bytes,
    /// Whose they are, in the order of their positions.
    pub events: Vec<PieceEvent>,
}

/// An event in a [`StreamPiece`].
#[derive(Clone, Copy, Debug)]
pub struct PieceEvent {
    /// Where it stands in the order of streams.
    pub position: StreamPosition,
    /// Whose event it is.
    pub device: DeviceId,
    /// Where its text ends in that of the piece; it begins where that of the one before ends.
    pub end: usize,
}

/// An event that was found: its position, the position of its device among those that are followed, its id.
pub(crate) type FoundEvent = (StreamPosition, u32, EventId);

/// Which events became durable between two positions. They are not read yet.
#[derive(Debug)]
pub struct StreamCursor {
    pub(crate) devices: Followed,
    /// In the order of their positions.
    pub(crate) found: VecDeque<FoundEvent>,
    pub(crate) until: StreamPosition,
}

impl StreamCursor {
    /// Up to here they are all.
    pub fn until(&self) -> StreamPosition {
        self.until
    }

    /// How many of them are still to be read.
    pub fn left(&self) -> usize {
        self.found.len()
    }
}
