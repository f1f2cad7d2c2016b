//! Positions of events and values in time.
//!
//! The *order* of a row is its position in time: its id, or the previous order plus one if ids did not increase. It
//! strictly increases along a timeline and a series, and a row is shown at the moment of its order.

use isobar_model::ids::EventId;
use isobar_model::time::Timestamp;
use uuid::Uuid;

/// Position of an event or value in time.
pub type TimeOrder = u128;

/// Returns the order of an id that increases.
pub fn order_of(id: EventId) -> TimeOrder {
    id.0.as_u128()
}

/// Returns the id with these 128 bits.
pub fn id_of(bits: u128) -> EventId {
    EventId(Uuid::from_u128(bits))
}

/// Returns the moment of an order.
pub fn moment(order: TimeOrder) -> Timestamp {
    Timestamp::from_millis(i64::try_from(order >> 80).unwrap_or(i64::MAX))
}

/// Returns the smallest order at a moment.
pub fn order_at(moment: Timestamp) -> TimeOrder {
    let millis = u128::from(moment.millis().max(0).unsigned_abs());
    if millis >= 1 << 48 { TimeOrder::MAX } else { millis << 80 }
}

/// Returns the order of the next row: that of its identifier, or just after the previous row if identifiers do not
/// increase.
pub(crate) fn next_order(before: TimeOrder, id: EventId) -> TimeOrder {
    order_of(id).max(before.saturating_add(1))
}
