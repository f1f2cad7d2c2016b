//! The cache of device entries: of each device at most one is installed, and runs go by that one alone.
//!
//! A run changes what its entry says of the device (status, meta, settings), so two entries of one device would each
//! miss what the other learns. An entry that leaves the cache is retired where it is, and lets go of what it says: whoever
//! still holds it, a long poll for instance, keeps next to nothing in memory.
//!
//! Entries are bounded in number and in bytes, and all tenants share both. Where there is no room for one more, or one has
//! grown, the tenant whose entries weigh most loses the one that it has not used for the longest, but none that a run goes
//! by: nobody pushes out what another tenant has of its equal part.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use isobar_model::ids::DeviceId;
use parking_lot::{Mutex, RwLock};
use quick_cache::DefaultHashBuilder;

use super::by_use::EntriesByUse;
use super::entries::DeviceEntry;
use super::single_flight::{self, SingleFlight};

/// Parts of the cache that are locked each for itself.
const PARTS: u128 = 64;

/// Installed entries by device. Clients choose what is looked for: names are hashed with a random key.
type EntryPart = HashMap<DeviceId, Arc<DeviceEntry>, DefaultHashBuilder>;

/// How many entries there may be, and how many bytes they may weigh.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryBounds {
    pub entries: usize,
    pub bytes: usize,
}

/// The entries of devices.
pub(crate) struct DeviceEntries {
    bounds: EntryBounds,
    parts: Box<[RwLock<EntryPart>]>,
    loads: SingleFlight<DeviceId>,
    /// Grows with every change: what was loaded before it is not installed.
    epoch: AtomicU64,
    /// What all installed entries weigh.
    weight: Arc<AtomicUsize>,
    /// Held by whoever installs or retires entries.
    by_use: Mutex<EntriesByUse>,
}

/// A load of a device's entry. There may be several at a time.
pub(crate) struct DeviceLoad<'a> {
    load: single_flight::Load<'a, DeviceId>,
    /// What had changed when it began: of all devices, and of this one.
    begun: (u64, u64),
}

impl DeviceEntries {
    pub(crate) fn new(bounds: EntryBounds) -> Self {
        Self {
            bounds,
            parts: (0..PARTS).map(|_| RwLock::default()).collect(),
            loads: SingleFlight::new(),
            epoch: AtomicU64::new(0),
            weight: Arc::default(),
            by_use: Mutex::default(),
        }
    }

    fn part(&self, id: DeviceId) -> &RwLock<EntryPart> {
        &self.parts[(id.0.as_u128() % PARTS) as usize]
    }

    /// The installed entry.
    pub(crate) fn get(&self, id: DeviceId) -> Option<Arc<DeviceEntry>> {
        self.peek(id).inspect(|entry| entry.note_use())
    }

    /// The installed entry, for whoever is no reason to keep it.
    pub(crate) fn peek(&self, id: DeviceId) -> Option<Arc<DeviceEntry>> {
        self.part(id).read().get(&id).filter(|entry| entry.is_current()).cloned()
    }

    /// A load begins: nothing of the device has been read for it yet.
    pub(crate) fn begin<'a>(&'a self, id: &'a DeviceId) -> DeviceLoad<'a> {
        let load = self.loads.concurrent(id);
        let begun = (self.epoch(), load.invalidations());
        DeviceLoad { load, begun }
    }

    /// Installs an entry that `load` has found, unless another load was faster: then that one's is answered. One that was
    /// loaded while the device changed shows its asker what it found, and is not installed. Neither is one that was loaded while
    /// another one was there that is gone again: the runs in between have changed what that one said, and not this.
    pub(crate) fn install(&self, loaded: Arc<DeviceEntry>, load: &DeviceLoad<'_>) -> Arc<DeviceEntry> {
        let mut by_use = self.by_use.lock();
        let id = loaded.device.id;
        if let Some(entry) = self.get(id) {
            return entry;
        }
        self.take_out(&mut by_use, id);
        if (self.epoch(), load.load.invalidations()) == load.begun {
            self.loads.invalidate(&id);
            self.make_room_for(&mut by_use, 1, loaded.weight());
            by_use.add(&loaded, &self.weight);
            self.part(id).write().insert(id, Arc::clone(&loaded));
        }
        loaded
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    fn take_out(&self, by_use: &mut EntriesByUse, id: DeviceId) {
        let entry = self.part(id).write().remove(&id);
        if let Some(entry) = entry {
            by_use.remove(&entry);
            entry.retire();
        }
    }

    /// The device changed.
    pub(crate) fn retire(&self, id: DeviceId) {
        let mut by_use = self.by_use.lock();
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.take_out(&mut by_use, id);
    }

    /// Something changed that all devices have in common for which `chosen` is true.
    pub(crate) fn retire_if(&self, chosen: impl Fn(&DeviceEntry) -> bool) {
        let mut by_use = self.by_use.lock();
        self.epoch.fetch_add(1, Ordering::SeqCst);
        for part in &self.parts {
            part.write().retain(|_, entry| {
                let goes = chosen(entry);
                if goes {
                    by_use.remove(entry);
                    entry.retire();
                }
                !goes
            });
        }
    }

    /// Something changed that loads under way may have read before.
    pub(crate) fn discard_loads(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// What all installed entries weigh, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.weight.load(Ordering::Relaxed)
    }

    /// What this entry says has changed: where it has grown, others may have to leave.
    pub(crate) fn changed(&self, entry: &DeviceEntry) {
        if self.weight() > self.bounds.bytes {
            let mut by_use = self.by_use.lock();
            by_use.notice(entry.lineage.top());
            self.make_room_for(&mut by_use, 0, 0);
        }
    }

    /// Has entries leave until there is room for so many more, of so many bytes. As many as runs go by at the moment may stay
    /// beyond that.
    fn make_room_for(&self, by_use: &mut EntriesByUse, entries: usize, bytes: usize) {
        let EntryBounds { entries: entries_max, bytes: bytes_max } = self.bounds;
        while by_use.count().saturating_add(entries) > entries_max || self.weight().saturating_add(bytes) > bytes_max {
            let Some(entry) = by_use.retire_next() else { return };
            let id = entry.device.id;
            // Loads under way may have read the device before runs by this entry changed it.
            self.loads.invalidate(&id);
            self.part(id).write().remove(&id);
        }
    }
}

#[cfg(test)]
impl DeviceEntries {
    /// All entries leave that no run goes by.
    pub(crate) fn push_all_out(&self) {
        self.make_room_for(&mut self.by_use.lock(), usize::MAX, 0);
    }

    /// Whether nobody loads anything.
    pub(crate) fn nobody_loads(&self) -> bool {
        self.loads.is_empty()
    }

    /// All installed entries.
    pub(crate) fn all(&self) -> Vec<Arc<DeviceEntry>> {
        let all: Vec<_> =
            self.parts.iter().flat_map(|part| part.read().values().cloned().collect::<Vec<_>>()).collect();
        assert_eq!(all.len(), self.by_use.lock().count());
        all
    }
}
