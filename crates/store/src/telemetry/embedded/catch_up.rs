//! What became durable between two places: for those who follow events and were away for a while.
//!
//! An event that was not late stands at its id, and is found by time. A late one stands behind the newest event that was
//! durable before it, and is found among its device's late ones (see [`keys`]).

use std::ops::Range;

use isobar_model::ids::{DeviceRef, EventId};
use isobar_model::page::TimeRange;
use isobar_model::time::Timestamp;
use rocksdb::{DB, ReadOptions};
use rustc_hash::FxHashMap;

use super::history::{Part, shown, stands};
use super::keys::{self, Family, Order};
use super::load::{self, current};
use super::rows::{Parts, damaged, event_device, failed, read_event, read_timeline};
use super::seek::Track;
use super::{Cancel, Core, engine};
use crate::error::Result;
use crate::telemetry::{Place, Stretch};

/// Up to so many devices are asked one by one for what is not late; for more the whole history is read.
const TIMELINES_MAX: usize = 256;
/// Events between two looks at whether the caller is still there.
const STEP: usize = 1_024;

/// An event that was found: its place, the index of its device, its id.
type Found = (Place, usize, EventId);

/// Events found so far; they are all of them up to the place at which they end.
struct Finds {
    found: Vec<Found>,
    until: Place,
    limit: usize,
}

impl Finds {
    fn new(until: Place, limit: usize) -> Self {
        Self { found: Vec::new(), until, limit }
    }

    fn add(&mut self, found: Found) {
        if found.0 <= self.until {
            self.found.push(found);
        }
        if self.found.len() > self.limit.saturating_mul(4) {
            self.keep_first();
        }
    }

    /// Nothing was looked for beyond this place.
    fn end_at(&mut self, place: Place) {
        self.until = self.until.min(place);
    }

    /// Keeps the first of them, as many as were asked for.
    fn keep_first(&mut self) {
        self.found.sort_unstable();
        self.found.truncate(self.limit);
        if let Some(last) = self.found.last().filter(|_| self.found.len() == self.limit) {
            self.until = self.until.min(last.0);
        }
        self.found.retain(|found| found.0 <= self.until);
    }
}

/// The place that all events so far end at.
pub fn newest(db: &DB) -> Result<Place> {
    let meta = db.get_cf(engine::family(db, Family::Meta)?, keys::META_NEWEST).map_err(failed)?;
    if let Some(found) = meta {
        return read_place(&found);
    }
    // A store that no version which knows of places has written to.
    let mut history = db.raw_iterator_cf(engine::family(db, Family::History)?);
    history.seek_to_last();
    current(&history)?.map_or(Ok(Place::first()), |(key, _)| Ok(Place::of(Parts(key).id()?)))
}

/// The place of an event.
pub fn place(db: &DB, id: EventId) -> Result<Place> {
    Ok(late_place(db, id)?.unwrap_or(Place::of(id)))
}

fn late_place(db: &DB, id: EventId) -> Result<Option<Place>> {
    let found = db.get_pinned_cf(engine::family(db, Family::Meta)?, keys::late(id.bytes())).map_err(failed)?;
    found.map(|found| read_place(&found)).transpose()
}

fn read_place(value: &[u8]) -> Result<Place> {
    let mut parts = Parts(value);
    Ok(Place { newest: parts.id()?, late: parts.u64()? })
}

/// At most `limit` events of these devices after one place and up to another.
pub fn between(
    core: &Core,
    devices: &[DeviceRef],
    places: Range<Place>,
    limit: usize,
    cancel: &Cancel,
) -> Result<Stretch> {
    let mut finds = Finds::new(places.end, limit.max(1));
    if places.start < places.end {
        let shown = shown(core, TimeRange::default(), Timestamp::default());
        let from = shown.start.max(keys::order_of(places.start.newest).saturating_add(1));
        let range = from..keys::order_of(places.end.newest).saturating_add(1);
        if devices.len() > TIMELINES_MAX {
            from_history(core, devices, range, &mut finds, cancel)?;
        } else {
            from_timelines(core, devices, range, &mut finds, cancel)?;
        }
        for (index, device) in devices.iter().enumerate() {
            cancel.check()?;
            late_ones(core, index, *device, places.start, &mut finds)?;
        }
        finds.keep_first();
    }
    let history = engine::family(&core.db, Family::History)?;
    let mut events = Vec::with_capacity(finds.found.len());
    for (place, index, id) in finds.found {
        // None if retention or a deletion was faster.
        if let Some(value) = core.db.get_pinned_cf(history, id.bytes()).map_err(failed)? {
            events.push((place, read_event(devices[index].id, id, &value)?));
        }
    }
    Ok(Stretch { events, until: finds.until })
}

/// Those that are not late, device by device.
fn from_timelines(
    core: &Core,
    devices: &[DeviceRef],
    range: Range<Order>,
    finds: &mut Finds,
    cancel: &Cancel,
) -> Result<()> {
    let mut all = Finds::new(finds.until, finds.limit);
    for (index, device) in devices.iter().enumerate() {
        cancel.check()?;
        for kind in 0..2 {
            let mut part = Part::of(core, device.key.0, kind, range.clone())?;
            let within = part.within.start..part.within.end.min(part.within.start.saturating_add(all.limit as u64));
            let (is_cut, mut last) = (within.end < part.within.end, None);
            part.track.read(within, |_, value| {
                let (id, order) = read_timeline(value)?;
                let place = Place::of(keys::id_of(order));
                last = Some(place);
                all.add((place, index, id));
                Ok(place <= all.until)
            })?;
            if let Some(last) = last.filter(|_| is_cut) {
                all.end_at(last);
            }
        }
    }
    all.keep_first();
    finds.end_at(all.until);
    for found in all.found {
        if late_place(&core.db, found.2)?.is_none() {
            finds.add(found);
        }
    }
    Ok(())
}

/// The same from the history of all devices.
fn from_history(
    core: &Core,
    devices: &[DeviceRef],
    range: Range<Order>,
    finds: &mut Finds,
    cancel: &Cancel,
) -> Result<()> {
    let devices: FxHashMap<u64, usize> = devices.iter().enumerate().map(|(index, it)| (it.key.0, index)).collect();
    let mut options = ReadOptions::default();
    options.fill_cache(false);
    let (from, to) = (range.start.to_be_bytes(), range.end.to_be_bytes());
    let mut rows = load::rows_with(&core.db, Family::History, &from, &to, options)?;
    rows.seek_to_first();
    let mut seen = 0_usize;
    while finds.found.len() < finds.limit
        && let Some((key, value)) = current(&rows)?
    {
        seen += 1;
        if seen.is_multiple_of(STEP) {
            cancel.check()?;
        }
        let device = event_device(value)?;
        if let Some(index) = devices.get(&device) {
            let id = Parts(key).id()?;
            let forgotten = core.reclaim.floors(device) != [0, 0] && !stands(core, device, value, id)?;
            if !forgotten && late_place(&core.db, id)?.is_none() {
                finds.add((Place::of(id), *index, id));
            }
        }
        rows.next();
    }
    if let Some((place, ..)) = finds.found.last().copied().filter(|_| finds.found.len() == finds.limit) {
        finds.end_at(place);
    }
    Ok(())
}

/// Late events of a device that came after a place.
fn late_ones(core: &Core, index: usize, device: DeviceRef, after: Place, finds: &mut Finds) -> Result<()> {
    let (device, kind) = (device.key.0, keys::KIND_LATE);
    let (from, to) = (keys::timeline(device, kind, 0), keys::timeline(device, kind + 1, 0));
    let mut rows = load::rows(&core.db, Family::Timeline, &from, &to)?;
    let number = |row: Option<(&[u8], &[u8])>| {
        let number = row.map(|(key, _)| keys::trailing(key).ok_or_else(|| damaged("a key is too short")));
        number.transpose()
    };
    rows.seek_to_last();
    // Most devices have none, and most others none that is new.
    let Some(last) = number(current(&rows)?)? else { return Ok(()) };
    rows.seek_to_first();
    let first = number(current(&rows)?)?.unwrap_or(last).max(after.late.saturating_add(1));
    let order = |value: &[u8]| read_timeline(value).map(|(_, order)| order);
    let key = move |sequence| keys::timeline(device, kind, sequence);
    let mut track = Track { rows, key: Box::new(key), key_length: from.len(), order };
    let start = track.first_at(first..last.saturating_add(1), keys::order_of(after.newest))?;
    let mut read = 0;
    track.read(start..u64::MAX, |late, value| {
        let (id, newest) = read_timeline(value)?;
        let place = Place { newest: keys::id_of(newest), late };
        if place > after {
            finds.add((place, index, id));
            read += 1;
        }
        // So many of one device are enough: what comes after them is of another stretch.
        if read == finds.limit {
            finds.end_at(place);
        }
        Ok(place < finds.until)
    })
}
