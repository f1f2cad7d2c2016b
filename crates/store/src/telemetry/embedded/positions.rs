//! Assigns positions to the events of a batch, in the order in which followers receive them, when the batch is written:
//! see [`StreamPosition`] for their meaning, [`keys`] for the rows about late events.

use isobar_model::ids::EventId;
use rocksdb::{ColumnFamily, WriteBatch};
use smallvec::SmallVec;

use super::keys::{self, Family};
use super::rows::{BatchRow, Parts, event_device};
use crate::error::Result;
use crate::telemetry::StreamPosition;

/// Positions of the events of one batch.
#[derive(Debug)]
pub struct BatchPositions {
    /// Position of the last event before the batch.
    before: StreamPosition,
    /// Position of the last event of the batch.
    pub end: StreamPosition,
    /// Late events, by id, with their numbers.
    late: SmallVec<[(EventId, u64); 2]>,
}

impl BatchPositions {
    /// Creates positions of an empty batch after this position.
    pub fn after(before: StreamPosition) -> Self {
        Self { before, end: before, late: SmallVec::new() }
    }

    /// Assigns positions to events, which arrive in the order of their ids, and records the late ones.
    pub fn take<'r>(
        &mut self,
        events: impl Iterator<Item = &'r BatchRow<'r>>,
        families: &[&ColumnFamily],
        batch: &mut WriteBatch,
    ) -> Result<()> {
        let before = self.before.newest;
        for row in events {
            let id = Parts(row.key).id()?;
            if id > before {
                self.end.newest = self.end.newest.max(id);
                continue;
            }
            self.end.late += 1;
            let (number, newest) = (self.end.late, before.bytes().as_slice());
            let key = keys::timeline(event_device(row.value)?, keys::KIND_LATE, number);
            batch.put_cf(families[Family::Timeline as usize], key, [row.key, newest].concat());
            let value = [newest, &number.to_be_bytes()].concat();
            batch.put_cf(families[Family::Meta as usize], keys::late(id.bytes()), value);
            self.late.push((id, number));
        }
        Ok(())
    }

    /// Ends the batch: all its events have positions.
    pub fn finish(&mut self, families: &[&ColumnFamily], batch: &mut WriteBatch) {
        if self.end != self.before {
            let StreamPosition { newest, late, .. } = self.end;
            let value = [newest.bytes().as_slice(), &late.to_be_bytes()].concat();
            batch.put_cf(families[Family::Meta as usize], keys::META_NEWEST, value);
        }
        self.late.sort_unstable();
    }

    /// Returns the position of the last late event of the batch.
    pub fn newest_late(&self) -> Option<StreamPosition> {
        (self.end.late > self.before.late).then_some(StreamPosition { late: self.end.late, ..self.before })
    }

    /// Returns the position of one of the events.
    pub fn position(&self, id: EventId) -> StreamPosition {
        match self.late.binary_search_by_key(&id, |late| late.0) {
            Ok(at) => StreamPosition { late: self.late[at].1, ..self.before },
            Err(_) => StreamPosition::of(id),
        }
    }
}
