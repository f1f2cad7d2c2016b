//! Events on their way to those who follow them: in one order, in which each event has its place for good.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use isobar_model::access::{CanRead, Lineage};
use isobar_model::event::Event;
use isobar_model::ids::{DeviceId, DeviceRef, EventId};
use tokio::sync::broadcast;

/// The place of an event in the order in which events become durable, which is the order in which they are shown.
///
/// Ids grow with the moments at which runs begin, and runs overtake each other. An event that is the newest of all when it
/// becomes durable stands at its own id; one that is late, because a newer one was durable before it, behind that newer
/// one. So a place tells which events were shown before it and which were not, across restarts too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The newest event that was shown by then.
    pub newest: EventId,
    /// Which of the late ones it is; they are numbered through. 0: it is the newest itself.
    pub late: u64,
}

impl Place {
    /// The place before all others.
    pub fn first() -> Self {
        Self { newest: EventId::from_bytes([0; 16]), late: 0 }
    }

    /// The place of an event that was the newest when it became durable.
    pub const fn of(id: EventId) -> Self {
        Self { newest: id, late: 0 }
    }
}

/// What those who follow are shown of a commit.
#[derive(Debug)]
pub struct Shown {
    /// Where the device belongs.
    pub lineage: Arc<Lineage>,
    /// The events.
    pub events: Vec<Arc<Event>>,
}

/// What those who follow are told.
#[derive(Clone, Debug)]
pub enum Told {
    /// An event is durable. Places only grow from one to the next.
    Event {
        /// Its place.
        place: Place,
        /// Its device.
        device: DeviceId,
        /// Where that belongs.
        lineage: Arc<Lineage>,
        /// The event itself, if it is still kept for those who have not heard of it: what they all leave waiting is bounded
        /// in bytes. One that has gone is in history.
        event: Weak<Event>,
    },
    /// Events are durable that nobody has prepared to be shown, for they began before anybody followed: they are found
    /// in history. Who hears this follows anew.
    Gap,
}

/// Whoever follows.
#[derive(Debug)]
pub struct Following {
    /// What came up to here is in history; what comes later is told.
    pub from: Place,
    /// What is told.
    pub told: broadcast::Receiver<Told>,
}

/// Devices whose events somebody catches up with, each once.
#[derive(Clone, Debug, Default)]
pub struct Followed(Arc<[DeviceRef]>);

impl Followed {
    /// Those whom the passes are for.
    pub fn of(passes: impl IntoIterator<Item = CanRead<DeviceRef>>) -> Self {
        let mut devices: Vec<DeviceRef> = passes.into_iter().map(|pass| *pass.target()).collect();
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

    /// The place of the one with this number.
    pub(crate) fn find(&self, key: u64) -> Option<usize> {
        self.0.binary_search_by_key(&key, |device| device.key.0).ok()
    }
}

/// An event that was found: its place, the place of its device among those that are followed, its id.
pub(crate) type Found = (Place, u32, EventId);

/// Which events became durable between two places. They are not read yet.
#[derive(Debug)]
pub struct Stretch {
    pub(crate) devices: Followed,
    /// In the order of their places.
    pub(crate) found: VecDeque<Found>,
    pub(crate) until: Place,
}

impl Stretch {
    /// Up to here they are all.
    pub fn until(&self) -> Place {
        self.until
    }

    /// How many of them are still to be read.
    pub fn left(&self) -> usize {
        self.found.len()
    }
}
