//! Reads all rows of a stopped store, device by device, in pieces: the source of a move to another store. Nothing in the
//! folder is changed.

use std::cell::Cell;
use std::fs::File;
use std::path::Path;

use isobar_model::time::Timestamp;
use rocksdb::DB;
use rustc_hash::FxHashMap;
use rustix::fs::{FlockOperation, fcntl_lock};
use uuid::Uuid;

use super::keys::{self, Family, TimeOrder};
use super::load::{self, RowIterator, current, each, rows};
use super::rows::{Parts, damaged, failed, read_queued, read_timeline, read_value, text, trailing};
use super::{Embedded, Options, catch_up, engine, numbers};
use crate::error::{Result, StoreError};
use crate::telemetry::StreamPosition;
use crate::telemetry::moved::{MovePlace, MovedEvent, MovedEventPlace, MovedPart, MovedRow, MovedRowSink};

/// File that a running platform locks.
const LOCK_FILE: &str = "LOCK";
/// File with the identity of the database.
const IDENTITY_FILE: &str = "IDENTITY";
/// Bytes of the block cache: blocks of history are read again for events of other devices.
const CACHE_BYTES: usize = 256 << 20;
/// Bits of an order in which events of the same moment and counter differ.
const LOW_BITS: u32 = 64;

/// The error for a store that another process uses.
#[derive(Debug, thiserror::Error)]
#[error("the telemetry store is in use by another isobar process: stop the platform first")]
struct StoreInUse;

/// The error for a store with data of devices that the registry has lost.
#[derive(Debug, thiserror::Error)]
#[error(
    "the registry is older than telemetry, and has lost devices whose data cannot be reached: bring the newer registry \
     back, or take them for deleted with isobar recover, and start the platform once before the move"
)]
struct DevicesLost;

/// A store that no platform uses, for reading.
pub struct StoppedStore {
    db: DB,
    identity: String,
    /// Order before which history is forgotten.
    cutoff: TimeOrder,
    /// Floors of the timelines of forgotten devices whose rows may still exist.
    floors: FxHashMap<u64, [u64; 2]>,
    newest: StreamPosition,
    /// The lock of a running platform, kept until the end; `None` if none has ever run on the folder.
    _lock: Option<File>,
}

/// Moments and numbers of a store as a whole.
#[derive(Clone, Copy, Debug)]
pub struct StoreMarks {
    /// Moment up to which the clock is trusted, if one is noted.
    pub seen: Option<Timestamp>,
    /// Moment before which history is forgotten, if there is one.
    pub cutoff: Option<Timestamp>,
    /// Position in time of the newest event that the store has ever had.
    pub newest: TimeOrder,
    /// Greatest number of a device that must not be given out again.
    pub greatest_device: u64,
    /// Identity of the store, unless an earlier version has served it last.
    pub identity: Option<Uuid>,
}

impl StoppedStore {
    /// Opens a store for reading.
    ///
    /// # Errors
    /// A platform uses it, it lacks acknowledged changes, or it has data of devices that the registry has lost.
    pub fn open(path: &Path) -> Result<Self> {
        let lock = lock(path)?;
        if let Some(loss) = Embedded::loss(path)? {
            return Err(StoreError::Damaged(loss.to_string()));
        }
        let options = Options { cache_bytes: CACHE_BYTES, ..Options::default() };
        let db = engine::open_to_read(path, &options)?;
        engine::must_be_known(engine::format(&db)?.unwrap_or(keys::FORMAT_WITHOUT_FLOORS))?;
        if !numbers::lost(&db)?.is_empty() {
            return Err(StoreError::unavailable(DevicesLost));
        }
        let identity = std::fs::read_to_string(path.join(IDENTITY_FILE)).map_err(StoreError::unavailable)?;
        let cutoff = engine::moment(&db, keys::META_CUTOFF)?.unwrap_or_default();
        let mut floors = FxHashMap::default();
        let (from, to) = (keys::about(keys::GARBAGE_DEVICE, 0), keys::about(keys::GARBAGE_DEVICE, u64::MAX));
        each(&db, Family::Meta, &from, &to, |key, value| {
            let mut parts = Parts(value);
            floors.insert(trailing(key)?, [parts.u64()?, parts.u64()?]);
            Ok(())
        })?;
        let newest = catch_up::newest(&db)?;
        let identity = identity.trim().to_owned();
        Ok(Self { db, identity, cutoff: keys::order_at(cutoff), floors, newest, _lock: lock })
    }

    /// Returns the identity of the store, and the number of its last change.
    pub fn identity(&self) -> (&str, u64) {
        (&self.identity, self.db.latest_sequence_number())
    }

    /// Returns the moments and numbers of the store as a whole.
    pub fn marks(&self) -> Result<StoreMarks> {
        Ok(StoreMarks {
            seen: engine::moment(&self.db, keys::META_SEEN)?,
            cutoff: engine::moment(&self.db, keys::META_CUTOFF)?,
            newest: keys::order_of(self.newest.newest),
            greatest_device: numbers::greatest_device(&self.db)?,
            identity: numbers::identity(&self.db)?,
        })
    }

    /// Returns the first device from this number on that has any rows.
    pub fn device_from(&self, number: u64) -> Result<Option<u64>> {
        let mut least = None;
        for family in [Family::Timeline, Family::State, Family::Queue] {
            let mut found = rows(&self.db, family, &number.to_be_bytes(), &keys::AFTER_ALL)?;
            found.seek_to_first();
            if let Some((key, _)) = current(&found)? {
                let device = Parts(key).u64()?;
                least = Some(least.map_or(device, |least: u64| least.min(device)));
            }
        }
        Ok(least)
    }

    /// Counts the devices with any rows from this number on.
    pub fn devices_from(&self, mut number: u64) -> Result<u64> {
        let mut count = 0;
        while let Some(device) = self.device_from(number)? {
            count += 1;
            let Some(next) = device.checked_add(1) else { break };
            number = next;
        }
        Ok(count)
    }

    /// Returns the greatest number of a series or of an entry of the outbox.
    pub fn greatest_number(&self) -> Result<u64> {
        let series = engine::meta(&self.db, keys::META_SERIES)?.unwrap_or_default();
        let mut outbox = rows(&self.db, Family::Outbox, &[], &keys::AFTER_ALL)?;
        outbox.seek_to_last();
        let entry = current(&outbox)?.map_or(Ok(0), |(key, _)| trailing(key))?;
        Ok(series.max(entry))
    }

    /// Reads rows from a place on until the sink is full. Returns the place from which to continue.
    pub fn read(&self, mut place: MovePlace, sink: &mut dyn MovedRowSink) -> Result<MovePlace> {
        while place.part != MovedPart::End && !sink.is_full() {
            place = self.read_device(place, sink)?;
        }
        Ok(place)
    }

    /// Reads the rows of a device, or those of the outbox, from a place on until the sink is full. Returns the place from
    /// which to continue.
    pub fn read_device(&self, mut place: MovePlace, sink: &mut dyn MovedRowSink) -> Result<MovePlace> {
        loop {
            place = match place.part {
                MovedPart::DeviceEvents | MovedPart::CloudEvents => self.events(&place, sink)?,
                MovedPart::State => self.state(&place, sink)?,
                MovedPart::Values => self.values(&place, sink)?,
                MovedPart::Queue => self.queue(&place, sink)?,
                MovedPart::Keys => self.keys(&place, sink)?,
                MovedPart::Outbox => self.outbox(&place, sink)?,
                MovedPart::End => place,
            };
            if sink.is_full() || place.is_between_devices() {
                return Ok(place);
            }
        }
    }

    /// Returns the place of the first row from a device on.
    pub fn place_from(&self, device: u64) -> Result<MovePlace> {
        Ok(match self.device_from(device)? {
            Some(device) => MovePlace::begin(device, MovedPart::DeviceEvents),
            None => MovePlace::begin(0, MovedPart::Outbox),
        })
    }

    fn floors(&self, device: u64) -> [u64; 2] {
        self.floors.get(&device).copied().unwrap_or_default()
    }

    fn events(&self, place: &MovePlace, sink: &mut dyn MovedRowSink) -> Result<MovePlace> {
        let kind = place.part as u8;
        let from = place.next.max(self.floors(place.device)[usize::from(kind)]);
        let (from, to) = (keys::timeline(place.device, kind, from), keys::timeline(place.device, kind + 1, 0));
        let mut timeline = rows(&self.db, Family::Timeline, &from, &to)?;
        let mut history = EventFinder::new(self)?;
        timeline.seek_to_first();
        while let Some((key, value)) = current(&timeline)? {
            let number = trailing(key)?;
            let (id, order) = read_timeline(value)?;
            // Rows before the cutoff are removed one by one, and nobody sees them.
            if order >= self.cutoff {
                match history.find(order, keys::order_of(id))? {
                    Some((row, place_in_streams)) => {
                        let event = read_moved(row, (kind, number, order), place_in_streams)?;
                        sink.take(place.device, &MovedRow::Event(MovedEvent { id, ..event }));
                    }
                    None => sink.lacks_event(place.device),
                }
            }
            if sink.is_full() {
                return Ok(MovePlace { next: number.saturating_add(1), ..place.clone() });
            }
            timeline.next();
        }
        let next = if kind == 0 { MovedPart::CloudEvents } else { MovedPart::State };
        Ok(MovePlace::begin(place.device, next))
    }

    fn state(&self, place: &MovePlace, sink: &mut dyn MovedRowSink) -> Result<MovePlace> {
        let device = place.device;
        let state = load::device(&self.db, device, self.floors(device))?;
        sink.take(
            device,
            &MovedRow::Head {
                next: state.timelines.map(|timeline| timeline.next),
                orders: state.timelines.map(|timeline| timeline.order),
                queued: state.queue.span().map_or(0, |(_, end)| end),
            },
        );
        for series in &state.series {
            let floor = load::floor(&self.db, device, &series.element, series.number)?;
            sink.take(
                device,
                &MovedRow::Series {
                    element: &series.element,
                    series: series.number,
                    created: series.created.millis(),
                    // Dropped values may be beyond the last ones that a lost log has left.
                    count: series.count.max(floor),
                    floor,
                    bytes: series.bytes,
                    order: series.order,
                    last: &series.last,
                },
            );
        }
        for (element, state) in &state.states {
            sink.take(device, &MovedRow::State { element, state });
        }
        Ok(MovePlace::begin(device, MovedPart::Values))
    }

    fn values(&self, place: &MovePlace, sink: &mut dyn MovedRowSink) -> Result<MovePlace> {
        let device = place.device;
        let mut from = keys::state(device, keys::STATE_SERIES, "");
        from.extend_from_slice(&place.name);
        let mut series = rows(&self.db, Family::State, &from, &keys::state(device, keys::STATE_SERIES + 1, ""))?;
        series.seek_to_first();
        while let Some((key, record)) = current(&series)? {
            let (name, number) = (key.get(9..).unwrap_or_default(), Parts(record).u64()?);
            let next = if name == place.name { place.next } else { 0 };
            let from = next.max(load::floor(&self.db, device, text(name)?, number)?);
            let mut values = rows(&self.db, Family::Values, &keys::pair(number, from), &keys::after(number))?;
            values.seek_to_first();
            while let Some((key, value)) = current(&values)? {
                let sequence = trailing(key)?;
                let (id, order, payload) = read_value(value)?;
                sink.take(device, &MovedRow::Value { series: number, number: sequence, order, id, payload });
                if sink.is_full() {
                    let next = sequence.saturating_add(1);
                    return Ok(MovePlace { device, part: MovedPart::Values, name: name.to_vec(), next });
                }
                values.next();
            }
            series.next();
        }
        Ok(MovePlace::begin(device, MovedPart::Queue))
    }

    fn queue(&self, place: &MovePlace, sink: &mut dyn MovedRowSink) -> Result<MovePlace> {
        let from = keys::pair(place.device, place.next);
        let mut queue = rows(&self.db, Family::Queue, &from, &keys::after(place.device))?;
        queue.seek_to_first();
        while let Some((key, value)) = current(&queue)? {
            let (number, event) = (trailing(key)?, read_queued(value)?);
            let expires = (event.expires != i64::MAX).then_some(event.expires);
            let (id, element, payload) = (event.id, event.element, event.payload);
            sink.take(place.device, &MovedRow::Queued { number, id, element, payload, expires });
            if sink.is_full() {
                return Ok(MovePlace { next: number.saturating_add(1), ..place.clone() });
            }
            queue.next();
        }
        Ok(MovePlace::begin(place.device, MovedPart::Keys))
    }

    fn keys(&self, place: &MovePlace, sink: &mut dyn MovedRowSink) -> Result<MovePlace> {
        let mut from = keys::state(place.device, keys::STATE_KEY, "");
        from.extend_from_slice(&place.name);
        let mut found = rows(&self.db, Family::State, &from, &keys::state(place.device, keys::STATE_KEY + 1, ""))?;
        found.seek_to_first();
        while let Some((key, value)) = current(&found)? {
            let (name, mut parts) = (key.get(9..).unwrap_or_default(), Parts(value));
            let (answer, expires) = (parts.id()?, parts.i64()?);
            sink.take(place.device, &MovedRow::Key { key: text(name)?, answer, expires });
            if sink.is_full() {
                // The first name behind this one.
                return Ok(MovePlace { name: [name, &[0]].concat(), ..place.clone() });
            }
            found.next();
        }
        match place.device.checked_add(1) {
            Some(next) => self.place_from(next),
            None => Ok(MovePlace::begin(0, MovedPart::Outbox)),
        }
    }

    fn outbox(&self, place: &MovePlace, sink: &mut dyn MovedRowSink) -> Result<MovePlace> {
        let meta = engine::family(&self.db, Family::Meta)?;
        let mut outbox = rows(&self.db, Family::Outbox, &place.next.to_be_bytes(), &keys::AFTER_ALL)?;
        outbox.seek_to_first();
        while let Some((key, value)) = current(&outbox)? {
            let (number, mut parts) = (trailing(key)?, Parts(value));
            let device = parts.u64()?;
            let parked = self.db.get_pinned_cf(meta, keys::about(keys::PARKED, number)).map_err(failed)?;
            let parked = parked.as_ref().map(|why| text(why)).transpose()?;
            sink.take(device, &MovedRow::Outbox { number, work: parts.0, parked });
            if sink.is_full() {
                return Ok(MovePlace { next: number.saturating_add(1), ..place.clone() });
            }
            outbox.next();
        }
        Ok(MovePlace::begin(0, MovedPart::End))
    }
}

/// Takes the lock of a running platform. The file is not changed.
fn lock(path: &Path) -> Result<Option<File>> {
    let file = match File::options().read(true).write(true).open(path.join(LOCK_FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::unavailable(error)),
    };
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => Err(StoreError::unavailable(StoreInUse)),
        Err(error) => Err(StoreError::unavailable(error)),
    }
}

fn read_moved(
    row: &[u8],
    (kind, number, order): (u8, u64, TimeOrder),
    place: MovedEventPlace,
) -> Result<MovedEvent<'_>> {
    let mut parts = Parts(row);
    parts.take(1)?;
    parts.u64()?;
    let element = parts.name()?;
    let length = parts.u32()? as usize;
    let errors = parts.take(length)?;
    let errors = (!errors.is_empty()).then(|| text(errors)).transpose()?;
    let id = keys::id_of(order);
    Ok(MovedEvent { kind, number, order, id, element, payload: parts.0, errors, place })
}

/// Finds events in history, with their places in the order of streams.
struct EventFinder<'a> {
    store: &'a StoppedStore,
    history: RowIterator<'a>,
    /// The last anchor of a late event, with its rank: many share one.
    anchor: Cell<Option<(TimeOrder, (u64, bool))>>,
}

impl<'a> EventFinder<'a> {
    fn new(store: &'a StoppedStore) -> Result<Self> {
        let history = rows(&store.db, Family::History, &[], &keys::AFTER_ALL)?;
        Ok(Self { store, history, anchor: Cell::new(None) })
    }

    /// Goes to the first event at or behind an identifier. Returns the number of those before it with the same upper bits,
    /// and true if it is there.
    fn go_to(&mut self, bits: TimeOrder) -> Result<(u64, bool)> {
        let begin = bits >> LOW_BITS << LOW_BITS;
        self.history.seek(begin.to_be_bytes());
        let mut rank = 0;
        while let Some((key, _)) = current(&self.history)? {
            let found = TimeOrder::from_be_bytes(key.try_into().map_err(|_| damaged("a key is too short"))?);
            if found >= bits {
                return Ok((rank, found == bits));
            }
            rank += 1;
            self.history.next();
        }
        Ok((rank, false))
    }

    /// Returns the anchor of a late event and its number, if it is one.
    fn late(&self, id: TimeOrder) -> Result<Option<(TimeOrder, u64)>> {
        if self.store.newest.late == 0 {
            return Ok(None);
        }
        let meta = engine::family(&self.store.db, Family::Meta)?;
        let found = self.store.db.get_pinned_cf(meta, keys::late(&id.to_be_bytes())).map_err(failed)?;
        let Some(found) = found else { return Ok(None) };
        let mut parts = Parts(&found);
        Ok(Some((parts.order()?, parts.u64()?)))
    }

    /// Finds an event. Returns its row, or `None` if it is not there.
    fn find(&mut self, order: TimeOrder, id: TimeOrder) -> Result<Option<(&[u8], MovedEventPlace)>> {
        let place = match self.late(id)? {
            Some((anchor, late)) => {
                let rank = match self.anchor.get().filter(|known| known.0 == anchor) {
                    Some((_, rank)) => rank,
                    None => self.go_to(anchor)?,
                };
                self.anchor.set(Some((anchor, rank)));
                Some(MovedEventPlace::new(anchor, rank, late))
            }
            None if order != id => Some(MovedEventPlace::new(order, self.go_to(order)?, 0)),
            None => None,
        };
        let rank = self.go_to(id)?;
        if !rank.1 {
            return Ok(None);
        }
        let place = place.unwrap_or_else(|| MovedEventPlace::new(id, rank, 0));
        Ok(current(&self.history)?.map(|(_, row)| (row, place)))
    }
}
