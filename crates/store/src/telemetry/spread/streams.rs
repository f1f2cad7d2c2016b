//! Streams of events over several databases.
//!
//! Each database has an order of its events, and positions of one mean nothing in another. Here only the events of the
//! first database are followed, and only devices of one database are caught up with: this file is the seam for an order over
//! all of them.

use isobar_model::ids::EventId;
use isobar_quota::Claim;

use super::SpreadTelemetry;
use super::member::Member;
use crate::error::{Result, StoreError};
use crate::telemetry::{EventWriter, Followed, Following, StreamCursor, StreamPiece, StreamPosition, Telemetry as _};

/// Error of a store without databases, which cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("a store over several databases has none")]
struct NoDatabases;

impl SpreadTelemetry {
    fn followed(&self) -> &Member {
        // Two databases at least.
        &self.members[0]
    }

    fn of_followed(&self, devices: &Followed) -> Result<&Member> {
        match devices.devices().first() {
            Some(device) => self.of(device.key),
            None => self.members.first().ok_or_else(|| StoreError::unavailable(NoDatabases)),
        }
    }

    /// Returns the position of an event in the order of its database.
    pub(super) async fn position(&self, id: EventId) -> Result<StreamPosition> {
        let member = self.followed();
        member.ask(member.store().history_position(id)).await
    }

    /// Finds events of devices of one database.
    pub(super) async fn between(
        &self,
        devices: &Followed,
        (after, until): (StreamPosition, StreamPosition),
        limit: usize,
        claim: Claim,
    ) -> Result<StreamCursor> {
        let member = self.of_followed(devices)?;
        member.ask(member.store().history_between(devices, after, until, limit, claim)).await
    }

    /// Reads the next events of a cursor.
    pub(super) async fn next(
        &self,
        cursor: &mut StreamCursor,
        written: (usize, EventWriter),
        claim: Claim,
    ) -> Result<StreamPiece> {
        let member = self.of_followed(&cursor.devices)?;
        member.ask(member.store().history_next(cursor, written, claim)).await
    }

    /// Returns true if events of any database are followed.
    pub(super) fn is_any_followed(&self) -> bool {
        self.members.iter().any(|member| member.store().is_followed())
    }

    /// Follows the events of the first database.
    pub(super) fn follow_one(&self) -> Following {
        self.followed().store().follow()
    }

    /// Follows the events of the first database from a position on.
    pub(super) async fn follow_one_from(&self, position: StreamPosition) -> Result<Following> {
        let member = self.followed();
        member.ask(member.store().follow_from(position)).await
    }

    /// Returns the newest identifier that any database knows.
    pub(super) fn newest(&self) -> EventId {
        let newest = self.members.iter().map(|member| member.store().newest_event());
        newest.max().unwrap_or(StreamPosition::first().newest)
    }
}
