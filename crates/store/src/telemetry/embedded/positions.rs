//! The positions of a batch's events in the order in which events are followed, found when the batch is written: see
//! [`StreamPosition`] for what they are, [`keys`] for what is noted of those that are late.

use isobar_model::ids::EventId;
use rocksdb::{ColumnFamily, WriteBatch};
use smallvec::SmallVec;

use super::keys::{self, Family};
use super::rows::{BatchRow, Parts, event_device};
use crate::error::Result;
use crate::telemetry::StreamPosition;

/// The events of one batch, as far as their positions go.
#[derive(Debug)]
pub struct BatchPositions {
    /// The position that the events before them end at.
    before: StreamPosition,
    /// The position that they end at.
    pub end: StreamPosition,
    /// Those that were late, by id, with their numbers.
    late: SmallVec<[(EventId, u64); 2]>,
}

impl BatchPositions {
    /// Nothing yet, behind what ends at that position.
    pub fn after(before: StreamPosition) -> Self {
        Self { before, end: before, late: SmallVec::new() }
    }

    /// Finds the positions of events, which come in the order of their ids, and notes those that are late.
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

    /// All events of the batch have their positions.
    pub fn finish(&mut self, families: &[&ColumnFamily], batch: &mut WriteBatch) {
        if self.end != self.before {
            let StreamPosition { newest, late } = self.end;
            let value = [newest.bytes().as_slice(), &late.to_be_bytes()].concat();
            batch.put_cf(families[Family::Meta as usize], keys::META_NEWEST, value);
        }
        self.late.sort_unstable();
    }

    /// The position of the last of those that were late.
    pub fn newest_late(&self) -> Option<StreamPosition> {
        (self.end.late > self.before.late).then_some(StreamPosition { newest: self.before.newest, late: self.end.late })
    }

    /// The position of one of the events.
    pub fn position(&self, id: EventId) -> StreamPosition {
        match self.late.binary_search_by_key(&id, |late| late.0) {
            Ok(at) => StreamPosition { newest: self.before.newest, late: self.late[at].1 },
            Err(_) => StreamPosition::of(id),
        }
    }
}
