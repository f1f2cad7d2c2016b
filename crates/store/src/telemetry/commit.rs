//! The commit of a run.

use std::sync::Arc;

use bytes::Bytes;
use isobar_model::event::{EventError, EventType};
use isobar_model::ids::EventId;
use isobar_model::json::RawJson;
use isobar_model::time::Timestamp;
use smallvec::SmallVec;

use super::StreamedEvents;
use super::time_order::id_of;

/// The writes of one run, applied together or not at all.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// The device event, and the cloud events that the run sent, oldest first. All ids are of this device's run.
    pub history: SmallVec<[NewEvent; 1]>,
    /// Values to store: their id is that of the event (a second value in the same element gets one derived from it).
    pub values: SmallVec<[NewValue; 1]>,
    /// Cloud events to queue; they also stand in `history`.
    pub queue: Vec<NewCloudEvent>,
    /// New states of elements; an empty one is forgotten.
    pub states: Vec<(Arc<str>, Bytes)>,
    /// Changes of the outbox, in this order.
    pub outbox: Vec<OutboxChange>,
    /// Remember the event's id under this key, so that a repetition does nothing (until `expires_at`).
    pub idempotency: Option<Idempotency>,
    /// The events of the history for followers, when [`Telemetry::is_followed`](super::Telemetry::is_followed) says that
    /// there are any.
    pub streamed: Option<Arc<StreamedEvents>>,
    /// True if something that the device's runs see has changed outside of telemetry: runs by what was read before, in any
    /// process, are made again. Work for the outbox implies it.
    pub touches: bool,
}

/// A change of what waits for afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboxChange {
    /// An entry of the device: a new one under a number of [`Telemetry::outbox_number`](super::Telemetry::outbox_number), or
    /// other work in the place of what an entry held.
    Put {
        /// Its number.
        number: u64,
        /// The work, opaque to the store.
        work: Bytes,
    },
    /// An entry is no longer needed.
    Done(u64),
}

/// An event for the history.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// Its id; its first bits say when.
    pub id: EventId,
    /// The direction.
    pub kind: EventType,
    /// The element it was posted to, or sent by.
    pub element: Arc<str>,
    /// The payload.
    pub payload: RawJson,
    /// Errors of the run.
    pub errors: Vec<EventError>,
}

/// A value for a storage element. The element's series is made when its first value comes, unless the device has
/// [`SERIES_MAX`](super::SERIES_MAX): then the value is not stored.
#[derive(Clone, Debug)]
pub struct NewValue {
    /// The id of its event.
    pub event: EventId,
    /// The storage element.
    pub element: Arc<str>,
    /// The payload.
    pub payload: RawJson,
}

/// A cloud event for the device's queue.
#[derive(Clone, Debug)]
pub struct NewCloudEvent {
    /// Its id.
    pub id: EventId,
    /// The element that sent it.
    pub element: Arc<str>,
    /// The payload.
    pub payload: RawJson,
    /// Time at which it expires.
    pub expires_at: Option<Timestamp>,
}

/// A client's own name for a request, so that its repetition does nothing.
#[derive(Clone, Debug)]
pub struct Idempotency {
    /// The client's key.
    pub key: String,
    /// The id to answer to a repetition.
    pub answer: EventId,
    /// Until when the key is remembered.
    pub expires_at: Timestamp,
}

/// Pairs the values that a run stores in one series with their identifiers: the first value of an event has the event's,
/// the others get those behind it.
pub(crate) fn value_ids<'v>(
    values: impl Iterator<Item = &'v NewValue>,
) -> impl Iterator<Item = (EventId, &'v NewValue)> {
    let mut newest: Option<(EventId, u128)> = None;
    values.map(move |value| {
        let nth = newest.filter(|(event, _)| *event == value.event).map_or(0, |(_, nth)| nth + 1);
        newest = Some((value.event, nth));
        (id_of(value.event.0.as_u128().wrapping_add(nth)), value)
    })
}
