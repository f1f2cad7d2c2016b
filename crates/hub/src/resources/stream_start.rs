//! Decides where a stream begins: now, after an event, or at a place of which the client has an identifier.

use isobar_model::error::{Error, Result};
use isobar_model::ids::EventId;
use isobar_model::time::Timestamp;
use isobar_store::telemetry::{Following, StreamPosition};

use crate::Hub;
use crate::identity::resume_ids::StreamPlace;

/// The header by which a client names what it received last.
const LAST_EVENT_ID: &str = "header.Last-Event-ID";
/// Oldest place at which a stream can resume, in seconds: a week.
const PAST_SECONDS: i64 = 7 * 24 * 3600;
/// Age at which the identifier of a live stream's place is replaced, in seconds: an hour. A client whose stream has
/// carried nothing for more than a week can still resume.
const PLACE_RENEWED_SECONDS: i64 = 3600;

/// An identifier by which a client resumes.
#[derive(Debug)]
pub struct ResumeAfter(Resumed);

#[derive(Debug)]
enum Resumed {
    Event(EventId),
    Place(StreamPlace),
}

/// The begin of a stream.
pub(super) struct StreamStart {
    pub following: Following,
    /// The position after which events are sent.
    pub after: StreamPosition,
    pub identified: IdentifiedPlace,
}

/// The time of the place that the client can name.
pub(super) struct IdentifiedPlace {
    at: Timestamp,
    is_sent: bool,
}

impl IdentifiedPlace {
    /// Returns the time of the place whose identifier is due, and counts it as sent. `is_live` is true if all events
    /// until now were sent.
    pub fn take_due(&mut self, now: Timestamp, is_live: bool) -> Option<Timestamp> {
        let is_old = is_live && self.at < now.plus_seconds(-PLACE_RENEWED_SECONDS);
        if self.is_sent && !is_old {
            return None;
        }
        self.is_sent = true;
        if is_live {
            self.at = now;
        }
        Some(self.at)
    }
}

impl Hub {
    /// Reads the identifier of an event, or of a place in a stream.
    ///
    /// # Errors
    /// `Invalid`: it is neither.
    pub fn resume_after(&self, id: &str) -> Result<ResumeAfter> {
        if let Ok(event) = id.parse() {
            return Ok(ResumeAfter(Resumed::Event(event)));
        }
        let place = self.0.identity.resume_ids().open(id);
        place
            .map(|place| ResumeAfter(Resumed::Place(place)))
            .ok_or_else(|| unresumable("is no identifier of this server"))
    }

    /// Follows the events that become durable from now on. A gap that reaches too far back is refused, and so is a place
    /// in the future, which belongs to another platform or to one that was set back.
    pub(super) async fn follow_after(&self, after: Option<ResumeAfter>) -> Result<StreamStart> {
        let Some(ResumeAfter(resumed)) = after else {
            let following = self.telemetry().follow_from(StreamPosition::first()).await?;
            let (after, at) = (following.from, self.now());
            return Ok(StreamStart { following, after, identified: IdentifiedPlace { at, is_sent: false } });
        };
        let (at, after) = match resumed {
            Resumed::Event(event) => (event.minted_at(), None),
            Resumed::Place(StreamPlace { at, order, position }) => {
                (at, Some(position).filter(|_| order == self.telemetry().position_order()))
            }
        };
        self.allow_past(at)?;
        let position = match (resumed, after) {
            (_, Some(position)) => position,
            (Resumed::Event(event), None) => self.telemetry().history_position(event).await?,
            // The store was moved: the place is that of its time.
            (Resumed::Place(_), None) => self.telemetry().history_position(first_event_at(at)).await?,
        };
        let following = self.telemetry().follow_from(position).await?;
        if position > following.from {
            return Err(unresumable("is newer than all events of this server"));
        }
        Ok(StreamStart { following, after: position, identified: IdentifiedPlace { at, is_sent: false } })
    }

    /// Refuses a place that is too old.
    fn allow_past(&self, at: Timestamp) -> Result<()> {
        let begins = self.0.jobs.history_begins();
        if at < begins {
            return Err(unresumable(format!("is older than history, which begins at {begins}")));
        }
        let reaches = self.now().plus_seconds(-PAST_SECONDS);
        if at < reaches {
            let why = format!("is too old: a stream goes back to {reaches}. What is older is in history");
            return Err(unresumable(why));
        }
        Ok(())
    }

    /// Returns an identifier of a place.
    pub(super) fn resume_id(&self, at: Timestamp, position: StreamPosition) -> Result<String> {
        let place = StreamPlace { at, order: self.telemetry().position_order(), position };
        self.0.identity.resume_ids().seal(place, self.0.env.chance())
    }
}

/// Returns the least identifier of an event of this time.
fn first_event_at(at: Timestamp) -> EventId {
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&at.millis().to_be_bytes()[2..]);
    EventId::from_bytes(bytes)
}

fn unresumable(why: impl Into<String>) -> Error {
    Error::invalid(LAST_EVENT_ID, why)
}
