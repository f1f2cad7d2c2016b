//! The places of a batch's events in the order in which events are followed, found when the batch is written: see
//! [`Place`] for what they are, [`keys`] for what is noted of those that are late.

use isobar_model::ids::EventId;
use rocksdb::{ColumnFamily, WriteBatch};
use smallvec::SmallVec;

use super::keys::{self, Family};
use super::rows::{Parts, Row, event_device};
use crate::error::Result;
use crate::telemetry::Place;

/// The events of one batch, as far as their places go.
#[derive(Debug)]
pub struct Placed {
    /// The place that the events before them end at.
    before: Place,
    /// The place that they end at.
    pub end: Place,
    /// Those that were late, by id, with their numbers.
    late: SmallVec<[(EventId, u64); 2]>,
}

impl Placed {
    /// Nothing yet, behind what ends at that place.
    pub fn after(before: Place) -> Self {
        Self { before, end: before, late: SmallVec::new() }
    }

    /// Finds the places of events, which come in the order of their ids, and notes those that are late.
    pub fn take<'r>(
        &mut self,
        events: impl Iterator<Item = &'r Row<'r>>,
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
            let place = keys::timeline(event_device(row.value)?, keys::KIND_LATE, number);
            batch.put_cf(families[Family::Timeline as usize], place, [row.key, newest].concat());
            let value = [newest, &number.to_be_bytes()].concat();
            batch.put_cf(families[Family::Meta as usize], keys::late(id.bytes()), value);
            self.late.push((id, number));
        }
        Ok(())
    }

    /// All events of the batch have their places.
    pub fn finish(&mut self, families: &[&ColumnFamily], batch: &mut WriteBatch) {
        if self.end != self.before {
            let Place { newest, late } = self.end;
            let value = [newest.bytes().as_slice(), &late.to_be_bytes()].concat();
            batch.put_cf(families[Family::Meta as usize], keys::META_NEWEST, value);
        }
        self.late.sort_unstable();
    }

    /// The place of the last of those that were late.
    pub fn newest_late(&self) -> Option<Place> {
        (self.end.late > self.before.late).then_some(Place { newest: self.before.newest, late: self.end.late })
    }

    /// The place of one of the events.
    pub fn place(&self, id: EventId) -> Place {
        match self.late.binary_search_by_key(&id, |late| late.0) {
            Ok(at) => Place { newest: self.before.newest, late: self.late[at].1 },
            Err(_) => Place::of(id),
        }
    }
}
