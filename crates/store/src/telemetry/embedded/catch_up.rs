//! What became durable between two places: for those who follow events and were away for a while.
//!
//! An event that was not late stands at its id, and is found by time. A late one stands behind the newest event that was
//! durable before it, and is found among its device's late ones (see [`keys`]). First they are found, then read: what is
//! found is short, however large the events are.

use std::ops::Range;

use isobar_model::event::Event;
use isobar_model::ids::EventId;
use isobar_model::page::TimeRange;
use isobar_model::time::Timestamp;
use rocksdb::{DB, ReadOptions};

use super::history::{Part, shown, stands};
use super::keys::{self, Family, Order};
use super::load::{self, Rows, current};
use super::rows::{Parts, damaged, event_device, failed, read_event, read_timeline};
use super::seek::Track;
use super::slices::{Sliced, Watch};
use super::{Core, engine};
use crate::error::Result;
use crate::telemetry::follow::Found;
use crate::telemetry::{Followed, Place, Stretch};

/// So many devices are asked at once; of more the history of all is read first, and it is seen whether that is enough.
const ASKED_AT_ONCE: usize = 64;
/// Of more than these no device is asked: history is read, however long it is.
const ASKED_MAX: usize = 10_000;
/// Rows of history, and bytes of them, that are read in about the time that it takes to ask one device.
const ROWS_A_DEVICE: u64 = 8;
const BYTES_A_DEVICE: u64 = 4 << 10;

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

/// A search for the first events of some devices after one place and up to another.
///
/// Of few devices each is asked. Of more, the history of all is read as long as that is less work than asking each; whoever
/// listens to very many is told of most of it anyway.
pub struct Search {
    devices: Followed,
    places: Range<Place>,
    limit: usize,
    course: Course,
    finds: Finds,
}

/// How far a search is.
enum Course {
    Begins,
    /// Through history from there on; and how much of it is still less than to ask each device.
    History {
        from: Order,
        rows: u64,
        bytes: u64,
    },
    /// From one device to the next.
    Devices {
        next: usize,
    },
    /// What is late, from one device to the next.
    Late {
        next: usize,
    },
}

impl Search {
    /// Nothing is read yet.
    pub fn new(devices: Followed, places: Range<Place>, limit: usize) -> Self {
        let limit = limit.max(1);
        let finds = Finds::new(places.end, limit);
        Self { devices, places, limit, course: Course::Begins, finds }
    }

    /// The range of time in which those are that are not late.
    fn range(&self, core: &Core) -> Range<Order> {
        let shown = shown(core, TimeRange::default(), Timestamp::default());
        let from = shown.start.max(keys::order_of(self.places.start.newest).saturating_add(1));
        from..keys::order_of(self.places.end.newest).saturating_add(1)
    }

    fn begins(&self, core: &Core) -> Course {
        let count = self.devices.count() as u64;
        match self.devices.count() {
            0..=ASKED_AT_ONCE => Course::Devices { next: 0 },
            _ => Course::History {
                from: self.range(core).start,
                rows: count * ROWS_A_DEVICE,
                bytes: count * BYTES_A_DEVICE,
            },
        }
    }

    /// Nothing was late since the search's place. Asked when rows have been read: what is late is known before its rows are.
    fn is_none_late(&self, core: &Core) -> bool {
        core.shared.followers.newest_late() <= self.places.start
    }

    /// All that are not late are found; none of these is.
    fn without_late(&mut self, core: &Core) -> Result<Course> {
        self.finds.keep_first();
        if self.is_none_late(core) {
            return Ok(Course::Late { next: self.devices.count() });
        }
        let mut found = Vec::with_capacity(self.finds.found.len());
        for find in self.finds.found.drain(..) {
            if late_place(&core.db, find.2)?.is_none() {
                found.push(find);
            }
        }
        self.finds.found = found;
        Ok(Course::Late { next: 0 })
    }
}

impl Sliced for Search {
    type Done = Stretch;

    fn go_on(&mut self, core: &Core, watch: &mut Watch<'_>) -> Result<Option<Stretch>> {
        if self.places.start < self.places.end && self.devices.count() > 0 {
            if matches!(self.course, Course::Begins) {
                self.course = self.begins(core);
            }
            if matches!(self.course, Course::History { .. }) && !self.through_history(core, watch)? {
                return Ok(None);
            }
            if let Course::Devices { next } = self.course
                && !self.each_device(core, next, watch)?
            {
                return Ok(None);
            }
            if let Course::Late { next } = self.course
                && !self.late_ones(core, next, watch)?
            {
                return Ok(None);
            }
            self.finds.keep_first();
        }
        let (found, until) = (std::mem::take(&mut self.finds.found), self.finds.until);
        Ok(Some(Stretch { devices: self.devices.clone(), found: found.into(), until }))
    }
}

impl Search {
    /// Reads the history of all devices. False: the slice is over. Where it turns out to be long each device is asked after all.
    fn through_history(&mut self, core: &Core, watch: &mut Watch<'_>) -> Result<bool> {
        let Course::History { from, rows, bytes } = &mut self.course else { return Ok(true) };
        let may_ask = self.devices.count() <= ASKED_MAX;
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        let end = keys::order_of(self.places.end.newest).saturating_add(1);
        let mut history = load::rows_with(&core.db, Family::History, &from.to_be_bytes(), &end.to_be_bytes(), options)?;
        history.seek_to_first();
        while self.finds.found.len() < self.limit
            && let Some((key, value)) = current(&history)?
        {
            let (id, device) = (Parts(key).id()?, event_device(value)?);
            if let Some(index) = self.devices.find(device) {
                let is_forgotten = core.reclaim.floors(device) != [0, 0] && !stands(core, device, value, id)?;
                if !is_forgotten {
                    self.finds.add((Place::of(id), index as u32, id));
                }
            }
            *from = keys::order_of(id).saturating_add(1);
            (*rows, *bytes) = (rows.saturating_sub(1), bytes.saturating_sub(value.len() as u64));
            if may_ask && (*rows == 0 || *bytes == 0) {
                self.finds = Finds::new(self.places.end, self.limit);
                self.course = Course::Devices { next: 0 };
                return Ok(true);
            }
            if !watch.goes_on(value.len())? {
                return Ok(false);
            }
            history.next();
        }
        if let Some((place, ..)) = self.finds.found.last().copied().filter(|_| self.finds.found.len() >= self.limit) {
            self.finds.end_at(place);
        }
        self.course = self.without_late(core)?;
        Ok(true)
    }

    /// Asks each device for those that are not late. False: the slice is over.
    fn each_device(&mut self, core: &Core, from: usize, watch: &mut Watch<'_>) -> Result<bool> {
        let range = self.range(core);
        let mut newest = Newest::new(core)?;
        for index in from..self.devices.count() {
            let device = self.devices.devices()[index].key.0;
            for kind in 0..2 {
                if newest.of(device, kind)?.is_some_and(|newest| newest >= range.start) {
                    of_timeline(core, (index, device, kind), range.clone(), &mut self.finds)?;
                }
            }
            if !watch.goes_on(0)? {
                self.course = Course::Devices { next: index + 1 };
                return Ok(false);
            }
        }
        self.course = self.without_late(core)?;
        Ok(true)
    }

    /// Asks each device for those that are late. False: the slice is over.
    fn late_ones(&mut self, core: &Core, from: usize, watch: &mut Watch<'_>) -> Result<bool> {
        let mut newest = Newest::new(core)?;
        for index in from..self.devices.count() {
            let device = self.devices.devices()[index].key.0;
            if newest.of(device, keys::KIND_LATE)?.is_some() {
                late_of(core, (index, device), self.places.start, &mut self.finds)?;
            }
            if !watch.goes_on(0)? {
                self.course = Course::Late { next: index + 1 };
                return Ok(false);
            }
        }
        self.course = Course::Late { next: self.devices.count() };
        Ok(true)
    }
}

/// The newest row of each timeline, with one iterator for all: most have nothing that is new.
struct Newest<'a>(Rows<'a>);

impl<'a> Newest<'a> {
    fn new(core: &'a Core) -> Result<Self> {
        load::rows(&core.db, Family::Timeline, &[], &[0xff; 18]).map(Self)
    }

    /// Its place in time; none where the timeline is empty.
    fn of(&mut self, device: u64, kind: u8) -> Result<Option<Order>> {
        let last = keys::timeline(device, kind, u64::MAX);
        self.0.seek_for_prev(last);
        match current(&self.0)? {
            Some((key, value)) if key.starts_with(&last[..keys::TIMELINE_PREFIX_BYTES]) => {
                read_timeline(value).map(|(_, order)| Some(order))
            }
            _ => Ok(None),
        }
    }
}

/// The events of a timeline within a range, as many as are of any use.
fn of_timeline(
    core: &Core,
    (index, device, kind): (usize, u64, u8),
    range: Range<Order>,
    finds: &mut Finds,
) -> Result<()> {
    let mut part = Part::of(core, device, kind, range)?;
    let within = part.within.start..part.within.end.min(part.within.start.saturating_add(finds.limit as u64));
    let (is_cut, mut last) = (within.end < part.within.end, None);
    part.track.read(within, |_, value| {
        let (id, order) = read_timeline(value)?;
        let place = Place::of(keys::id_of(order));
        last = Some(place);
        finds.add((place, index as u32, id));
        Ok(place <= finds.until)
    })?;
    if let Some(last) = last.filter(|_| is_cut) {
        finds.end_at(last);
    }
    Ok(())
}

/// Late events of a device that came after a place.
fn late_of(core: &Core, (index, device): (usize, u64), after: Place, finds: &mut Finds) -> Result<()> {
    let kind = keys::KIND_LATE;
    let (from, to) = (keys::timeline(device, kind, 0), keys::timeline(device, kind + 1, 0));
    let mut rows = load::rows(&core.db, Family::Timeline, &from, &to)?;
    let number = |row: Option<(&[u8], &[u8])>| {
        let number = row.map(|(key, _)| keys::trailing(key).ok_or_else(|| damaged("a key is too short")));
        number.transpose()
    };
    rows.seek_to_last();
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
            finds.add((place, index as u32, id));
            read += 1;
        }
        // So many of one device are enough: what comes after them is of another stretch.
        if read == finds.limit {
            finds.end_at(place);
        }
        Ok(place < finds.until)
    })
}

/// The first of these events, of about so many bytes of payload, and how many were looked for.
pub fn next(core: &Core, devices: &Followed, found: &[Found], bytes: usize) -> Result<(Vec<(Place, Event)>, usize)> {
    let history = engine::family(&core.db, Family::History)?;
    let (mut events, mut count, mut read) = (Vec::new(), 0, 0);
    for (place, index, id) in found {
        // None if retention or a deletion was faster.
        if let Some(value) = core.db.get_pinned_cf(history, id.bytes()).map_err(failed)? {
            if read > 0 && read + value.len() > bytes {
                break;
            }
            read += value.len();
            if let Some(device) = devices.devices().get(*index as usize) {
                events.push((*place, read_event(device.id, *id, &value)?));
            }
        }
        count += 1;
    }
    Ok((events, count))
}
