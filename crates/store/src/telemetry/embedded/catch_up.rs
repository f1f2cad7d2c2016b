//! Finds the events that became durable between two positions, for followers that were disconnected for a while.
//!
//! An event that was not late is at the position of its id, and is found by time. A late one is behind the newest event
//! that was durable before it, and is found among its device's late ones (see [`keys`]). Events are found first and
//! read later: a find is short, regardless of the size of the event.

use std::ops::Range;

use isobar_model::ids::EventId;
use isobar_model::page::TimeRange;
use isobar_model::time::Timestamp;
use rocksdb::{DB, ReadOptions};

use super::history::{Part, stands, visible};
use super::keys::{self, Family, TimeOrder};
use super::load::{self, RowIterator, current};
use super::rows::{Parts, event_device, failed, read_event, read_timeline, trailing};
use super::seek::Track;
use super::slices::{Sliced, Watch};
use super::{Core, engine};
use crate::error::Result;
use crate::telemetry::follow::FoundEvent;
use crate::telemetry::{EventWriter, Followed, PieceEvent, StreamCursor, StreamPiece, StreamPosition};

/// Number of devices up to which each is searched by itself; with more, the history of all is read first, to see if
/// that is enough.
const ASKED_AT_ONCE: usize = 64;
/// Number of devices above which none is searched by itself: history is read, at any length.
const ASKED_MAX: usize = 10_000;
/// Rows of history, and (next constant) bytes of them, that take about as long to read as the search of one device.
const ROWS_A_DEVICE: u64 = 8;
const BYTES_A_DEVICE: u64 = 4 << 10;

/// Events found so far: all of them up to the position `until`.
struct Finds {
    found: Vec<FoundEvent>,
    until: StreamPosition,
    limit: usize,
}

impl Finds {
    fn new(until: StreamPosition, limit: usize) -> Self {
        Self { found: Vec::new(), until, limit }
    }

    fn add(&mut self, found: FoundEvent) {
        if found.0 <= self.until {
            self.found.push(found);
        }
        if self.found.len() > self.limit.saturating_mul(4) {
            self.keep_first();
        }
    }

    /// Records that nothing was searched beyond this position.
    fn end_at(&mut self, position: StreamPosition) {
        self.until = self.until.min(position);
    }

    /// Keeps the first events, up to the limit.
    fn keep_first(&mut self) {
        self.found.sort_unstable();
        self.found.truncate(self.limit);
        if let Some(last) = self.found.last().filter(|_| self.found.len() == self.limit) {
            self.until = self.until.min(last.0);
        }
        self.found.retain(|found| found.0 <= self.until);
    }
}

/// Returns the position of the newest event.
pub fn newest(db: &DB) -> Result<StreamPosition> {
    let meta = db.get_cf(engine::family(db, Family::Meta)?, keys::META_NEWEST).map_err(failed)?;
    if let Some(found) = meta {
        return read_position(&found);
    }
    // A store that was written only by versions without positions.
    let mut history = db.raw_iterator_cf(engine::family(db, Family::History)?);
    history.seek_to_last();
    current(&history)?.map_or(Ok(StreamPosition::first()), |(key, _)| Ok(StreamPosition::of(Parts(key).id()?)))
}

/// Returns the position of an event.
pub fn position(db: &DB, id: EventId) -> Result<StreamPosition> {
    Ok(late_position(db, id)?.unwrap_or(StreamPosition::of(id)))
}

fn late_position(db: &DB, id: EventId) -> Result<Option<StreamPosition>> {
    let found = db.get_pinned_cf(engine::family(db, Family::Meta)?, keys::late(id.bytes())).map_err(failed)?;
    found.map(|found| read_position(&found)).transpose()
}

fn read_position(value: &[u8]) -> Result<StreamPosition> {
    let mut parts = Parts(value);
    Ok(StreamPosition { mark: 0, newest: parts.id()?, late: parts.u64()? })
}

/// Search for the first events of some devices after one position and up to another.
///
/// Searches each of few devices by itself. For more, it reads the history of all as long as that is less work than
/// searching each; followers of very many devices receive most of it anyway.
pub struct Search {
    devices: Followed,
    positions: Range<StreamPosition>,
    limit: usize,
    course: SearchPath,
    finds: Finds,
}

/// Progress of a search.
enum SearchPath {
    Begins,
    /// Reads history from `from` on; `rows` and `bytes` are what may still be read before searching each device is less
    /// work.
    History {
        from: TimeOrder,
        rows: u64,
        bytes: u64,
    },
    /// Searches one device after the other.
    Devices {
        next: usize,
    },
    /// Searches the late events, one device after the other.
    Late {
        next: usize,
    },
}

impl Search {
    /// Creates a search that has read nothing.
    pub fn new(devices: Followed, positions: Range<StreamPosition>, limit: usize) -> Self {
        let limit = limit.max(1);
        let finds = Finds::new(positions.end, limit);
        Self { devices, positions, limit, course: SearchPath::Begins, finds }
    }

    /// Returns the range of time of the events that are not late.
    fn range(&self, core: &Core) -> Range<TimeOrder> {
        let visible = visible(core, TimeRange::default(), Timestamp::default());
        let from = visible.start.max(keys::order_of(self.positions.start.newest).saturating_add(1));
        from..keys::order_of(self.positions.end.newest).saturating_add(1)
    }

    fn begins(&self, core: &Core) -> SearchPath {
        let count = self.devices.count() as u64;
        match self.devices.count() {
            0..=ASKED_AT_ONCE => SearchPath::Devices { next: 0 },
            _ => SearchPath::History {
                from: self.range(core).start,
                rows: count * ROWS_A_DEVICE,
                bytes: count * BYTES_A_DEVICE,
            },
        }
    }

    /// Returns true if no event was late since the search's position. Call it after rows were read: late events are
    /// registered before their rows are readable.
    fn is_none_late(&self, core: &Core) -> bool {
        core.shared.followers.newest_late() <= self.positions.start
    }

    /// Ends the search for events that are not late, and removes late ones from the finds.
    fn without_late(&mut self, core: &Core) -> Result<SearchPath> {
        self.finds.keep_first();
        if self.is_none_late(core) {
            return Ok(SearchPath::Late { next: self.devices.count() });
        }
        let mut found = Vec::with_capacity(self.finds.found.len());
        for find in self.finds.found.drain(..) {
            if late_position(&core.db, find.2)?.is_none() {
                found.push(find);
            }
        }
        self.finds.found = found;
        Ok(SearchPath::Late { next: 0 })
    }
}

impl Sliced for Search {
    type Done = StreamCursor;

    fn go_on(&mut self, core: &Core, watch: &mut Watch<'_>) -> Result<Option<StreamCursor>> {
        if self.positions.start < self.positions.end && self.devices.count() > 0 {
            if matches!(self.course, SearchPath::Begins) {
                self.course = self.begins(core);
            }
            if matches!(self.course, SearchPath::History { .. }) && !self.through_history(core, watch)? {
                return Ok(None);
            }
            if let SearchPath::Devices { next } = self.course
                && !self.each_device(core, next, watch)?
            {
                return Ok(None);
            }
            if let SearchPath::Late { next } = self.course
                && !self.late_ones(core, next, watch)?
            {
                return Ok(None);
            }
            self.finds.keep_first();
        }
        let (found, until) = (std::mem::take(&mut self.finds.found), self.finds.until);
        Ok(Some(StreamCursor { devices: self.devices.clone(), found: found.into(), until }))
    }
}

impl Search {
    /// Reads the history of all devices; returns false if the slice is over. Switches to searching each device if
    /// history turns out to be long.
    fn through_history(&mut self, core: &Core, watch: &mut Watch<'_>) -> Result<bool> {
        let SearchPath::History { from, rows, bytes } = &mut self.course else { return Ok(true) };
        let may_ask = self.devices.count() <= ASKED_MAX;
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        let end = keys::order_of(self.positions.end.newest).saturating_add(1);
        let mut history = load::rows_with(&core.db, Family::History, &from.to_be_bytes(), &end.to_be_bytes(), options)?;
        history.seek_to_first();
        while self.finds.found.len() < self.limit
            && let Some((key, value)) = current(&history)?
        {
            let (id, device) = (Parts(key).id()?, event_device(value)?);
            if let Some(index) = self.devices.find(device) {
                let is_forgotten = core.reclaim.floors(device) != [0, 0] && !stands(core, device, value, id)?;
                if !is_forgotten {
                    self.finds.add((StreamPosition::of(id), index as u32, id));
                }
            }
            *from = keys::order_of(id).saturating_add(1);
            (*rows, *bytes) = (rows.saturating_sub(1), bytes.saturating_sub(value.len() as u64));
            if may_ask && (*rows == 0 || *bytes == 0) {
                self.finds = Finds::new(self.positions.end, self.limit);
                self.course = SearchPath::Devices { next: 0 };
                return Ok(true);
            }
            if !watch.goes_on(value.len())? {
                return Ok(false);
            }
            history.next();
        }
        if let Some((position, ..)) = self.finds.found.last().copied().filter(|_| self.finds.found.len() >= self.limit)
        {
            self.finds.end_at(position);
        }
        self.course = self.without_late(core)?;
        Ok(true)
    }

    /// Searches each device for events that are not late; returns false if the slice is over.
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
                self.course = SearchPath::Devices { next: index + 1 };
                return Ok(false);
            }
        }
        self.course = self.without_late(core)?;
        Ok(true)
    }

    /// Searches each device for late events; returns false if the slice is over.
    fn late_ones(&mut self, core: &Core, from: usize, watch: &mut Watch<'_>) -> Result<bool> {
        let mut newest = Newest::new(core)?;
        for index in from..self.devices.count() {
            let device = self.devices.devices()[index].key.0;
            if newest.of(device, keys::KIND_LATE)?.is_some() {
                late_of(core, (index, device), self.positions.start, &mut self.finds)?;
            }
            if !watch.goes_on(0)? {
                self.course = SearchPath::Late { next: index + 1 };
                return Ok(false);
            }
        }
        self.course = SearchPath::Late { next: self.devices.count() };
        Ok(true)
    }
}

/// Reader of the newest row of each timeline, with one iterator for all: most have nothing new.
struct Newest<'a>(RowIterator<'a>);

impl<'a> Newest<'a> {
    fn new(core: &'a Core) -> Result<Self> {
        load::rows(&core.db, Family::Timeline, &[], &[0xff; 18]).map(Self)
    }

    /// Returns the time order of the newest row, or `None` if the timeline is empty.
    fn of(&mut self, device: u64, kind: u8) -> Result<Option<TimeOrder>> {
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

/// Finds the events of a timeline within a range, up to the limit.
fn of_timeline(
    core: &Core,
    (index, device, kind): (usize, u64, u8),
    range: Range<TimeOrder>,
    finds: &mut Finds,
) -> Result<()> {
    let mut part = Part::of(core, device, kind, range)?;
    let within = part.within.start..part.within.end.min(part.within.start.saturating_add(finds.limit as u64));
    let (is_cut, mut last) = (within.end < part.within.end, None);
    part.track.read(within, |_, value| {
        let (id, order) = read_timeline(value)?;
        let position = StreamPosition::of(keys::id_of(order));
        last = Some(position);
        finds.add((position, index as u32, id));
        Ok(position <= finds.until)
    })?;
    if let Some(last) = last.filter(|_| is_cut) {
        finds.end_at(last);
    }
    Ok(())
}

/// Finds late events of a device after a position.
fn late_of(core: &Core, (index, device): (usize, u64), after: StreamPosition, finds: &mut Finds) -> Result<()> {
    let kind = keys::KIND_LATE;
    let (from, to) = (keys::timeline(device, kind, 0), keys::timeline(device, kind + 1, 0));
    let mut rows = load::rows(&core.db, Family::Timeline, &from, &to)?;
    let number = |row: Option<(&[u8], &[u8])>| row.map(|(key, _)| trailing(key)).transpose();
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
        let position = StreamPosition { mark: 0, newest: keys::id_of(newest), late };
        if position > after {
            finds.add((position, index as u32, id));
            read += 1;
        }
        // The limit is reached with one device: later events belong to the next search.
        if read == finds.limit {
            finds.end_at(position);
        }
        Ok(position < finds.until)
    })
}

/// Reads the first of these events, of about this many payload bytes; also returns how many finds were read.
pub fn next(
    core: &Core,
    devices: &Followed,
    found: &[FoundEvent],
    (bytes, write): (usize, EventWriter),
) -> Result<(StreamPiece, usize)> {
    let history = engine::family(&core.db, Family::History)?;
    let (mut events, mut text, mut count) = (Vec::new(), Vec::new(), 0);
    for (position, index, id) in found {
        // The event is missing if retention or a deletion was faster.
        if let Some(value) = core.db.get_pinned_cf(history, id.bytes()).map_err(failed)? {
            if !text.is_empty() && text.len() + value.len() > bytes {
                break;
            }
            if let Some(device) = devices.devices().get(*index as usize) {
                write(&read_event(device.id, *id, &value)?, &mut text);
                events.push(PieceEvent { position: *position, device: device.id, end: text.len() });
            }
        }
        count += 1;
    }
    Ok((StreamPiece { text: text.into(), events }, count))
}
