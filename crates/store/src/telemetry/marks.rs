//! The port for marks: the order of events over several databases.
//!
//! Each database has an order of its events, and those of two say nothing of each other. A mark notes a place in each of
//! them, up to which its events are complete. Marks are numbered, and no place of one is before that of an earlier one. So
//! all processes agree on one order: by the mark that first reaches an event, then by database, then by place.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use isobar_model::time::Timestamp;

use super::postgres::EventPlace;
use crate::error::Result;

/// Places of databases, by their numbers.
pub type MarkedPlaces = BTreeMap<u16, EventPlace>;

/// A mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamMark {
    /// Its number; 0 before the first.
    pub number: u64,
    /// Places of databases.
    pub places: MarkedPlaces,
}

/// A store of marks, which all processes of a platform share.
#[async_trait]
pub trait StreamMarks: Send + Sync + 'static {
    /// Returns the mark with this number or the newest before it, with the places of all databases as of it.
    async fn mark_at(&self, number: u64) -> Result<StreamMark>;
    /// Returns the marks behind a number, at most `limit`, with the places that each has moved.
    async fn marks_after(&self, number: u64, limit: u32) -> Result<Vec<StreamMark>>;
    /// Returns the number of the first mark that reaches each of these places, in their order; `None` where none does.
    async fn marks_of(&self, places: &[(u16, EventPlace)]) -> Result<Vec<Option<u64>>>;
    /// Returns the number of a mark that reaches no event from this position in time on.
    async fn mark_before(&self, at: Timestamp) -> Result<u64>;
    /// Adds a mark, with the places that it moves, behind that of the number before. Durable when this returns true; false
    /// if the number is taken.
    async fn mark_add(&self, mark: &StreamMark) -> Result<bool>;
    /// Forgets the marks before the newest one that was made so long ago, by the clock of the store of marks.
    async fn marks_forget(&self, kept: Duration) -> Result<()>;
}
