//! Events on their way to those who follow them: in one order, in which each event has its place for good.

use std::sync::Arc;

use isobar_model::access::Lineage;
use isobar_model::event::Event;
use isobar_model::ids::EventId;
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
    pub lineage: Lineage,
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
        /// The event.
        event: Arc<Event>,
        /// The commit that it is of.
        of: Arc<Shown>,
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

/// A part of what became durable between two places.
#[derive(Debug)]
pub struct Stretch {
    /// The events in the order of their places.
    pub events: Vec<(Place, Event)>,
    /// Up to here they are all.
    pub until: Place,
}
