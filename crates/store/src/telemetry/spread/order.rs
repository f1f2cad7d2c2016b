//! Positions in the order of events over several databases: by mark, then by database, then by place.

use isobar_model::ids::EventId;

use crate::error::Result;
use crate::telemetry::StreamPosition;
use crate::telemetry::marks::{MarkedPlaces, StreamMark, StreamMarks};
use crate::telemetry::postgres::EventPlace;

/// Bits of a position's mark that name the database.
const MARKED_DATABASE_BITS: u32 = 6;
/// The database behind all others.
const LAST_DATABASE: u16 = (1 << MARKED_DATABASE_BITS) - 1;
/// Number of a mark that will never be made.
pub const NO_MARK: u64 = u64::MAX >> MARKED_DATABASE_BITS;

/// Returns the position of a place in a database that a mark is the first to reach.
pub fn marked(mark: u64, database: u16, place: EventPlace) -> StreamPosition {
    StreamPosition { mark: mark << MARKED_DATABASE_BITS | u64::from(database), ..place.position() }
}

/// Returns the position behind all events that a mark reaches.
pub fn end_of(mark: u64) -> StreamPosition {
    let newest = EventId::from_bytes([u8::MAX; 16]);
    StreamPosition { mark: mark << MARKED_DATABASE_BITS | u64::from(LAST_DATABASE), newest, late: u64::MAX }
}

/// Returns the number of a position's mark.
pub fn mark_of(position: StreamPosition) -> u64 {
    position.mark >> MARKED_DATABASE_BITS
}

/// Returns the position in the order of its database alone.
pub fn within(position: StreamPosition) -> StreamPosition {
    StreamPosition { mark: 0, ..position }
}

/// Places of the databases at a position: before it come exactly the events up to these.
pub struct Bounds {
    position: StreamPosition,
    reached: MarkedPlaces,
    before: MarkedPlaces,
}

impl Bounds {
    /// Reads the marks of a position.
    pub async fn of(marks: &dyn StreamMarks, position: StreamPosition) -> Result<Self> {
        let number = mark_of(position);
        let reached = marks.mark_at(number).await?;
        let before = match number.checked_sub(1) {
            Some(before) => marks.mark_at(before).await?,
            None => StreamMark::default(),
        };
        Ok(Self { position, reached: reached.places, before: before.places })
    }

    /// Returns the place of a database, as a position in its own order.
    pub fn at(&self, database: u16) -> StreamPosition {
        let own = (self.position.mark & u64::from(LAST_DATABASE)) as u16;
        let places = if database <= own { &self.reached } else { &self.before };
        let reached = places.get(&database).map_or_else(StreamPosition::first, |place| place.position());
        if database == own { reached.min(within(self.position)) } else { reached }
    }
}
