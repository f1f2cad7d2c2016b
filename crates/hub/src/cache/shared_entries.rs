//! A cache of entries that all tenants share, used for devices and for compiled designs: each key has at most one
//! installed entry, and runs use only that one.
//!
//! A run changes the state in its entry (status, meta, settings), so two entries of one device would each miss the
//! other's changes. An entry that leaves the cache is retired in place and drops its state: a holder of the entry, a
//! long poll for instance, then keeps next to nothing in memory. An entry that was loaded but not installed is retired
//! too, so that the counted weight covers all state in memory.
//!
//! Entries are bounded in number and in bytes, shared by all tenants. When there is no room for a new or grown entry,
//! the tenant whose entries weigh most loses its least recently used one, except those in use by a run. No tenant can
//! evict entries of another one's equal share.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use isobar_model::ids::OrganizationId;
use isobar_store::by_use::EntriesByUse;
use parking_lot::{Mutex, RwLock};
use quick_cache::DefaultHashBuilder;
use uuid::Uuid;

use super::held::{Held, Weighed};
use super::single_flight::{self, SingleFlight};

/// Number of parts of the cache, each with its own lock.
const PARTS: u128 = 64;

/// An entry of a [`SharedEntries`] cache.
pub(crate) trait SharedEntry {
    /// The key that finds the entry.
    type Key: Copy + Eq + Hash;
    /// The state that the entry has until it is retired.
    type Says: Weighed;

    /// Returns the entry's key.
    fn key(&self) -> Self::Key;

    /// Returns the key's identifier as it was minted.
    fn minted(key: Self::Key) -> Uuid;

    /// Returns the tenant whose share of the cache the entry occupies.
    fn tenant(&self) -> OrganizationId;

    /// Returns the cell with the entry's state.
    fn held(&self) -> &Held<Self::Says>;

    /// Returns true if runs may use this entry.
    fn is_current(&self) -> bool {
        self.held().is_installed()
    }
}

/// Installed entries by key. Clients choose the keys that are looked for, so the hash function has a random seed.
type EntryPart<E> = HashMap<<E as SharedEntry>::Key, Arc<E>, DefaultHashBuilder>;

/// Limits on the number of entries and on the bytes that they weigh.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryBounds {
    pub entries: usize,
    pub bytes: usize,
}

/// A bounded cache of entries that all tenants share.
pub(crate) struct SharedEntries<E: SharedEntry> {
    bounds: EntryBounds,
    parts: Box<[RwLock<EntryPart<E>>]>,
    loads: SingleFlight<E::Key>,
    /// Grows with every change that may concern any key: entries loaded before the change are not installed.
    epoch: AtomicU64,
    /// The weight of all installed entries, in bytes.
    weight: Arc<AtomicUsize>,
    /// Entries in order of use; locked while entries are installed or retired.
    by_use: Mutex<EntriesByUse<Arc<E>>>,
}

/// A running load of an entry. A key may have several at a time.
pub(crate) struct EntryLoad<'a, K: Hash + Eq> {
    load: single_flight::Load<'a, K>,
    /// The versions of the whole cache and of this key when the load began.
    begun: (u64, u64),
}

impl<E: SharedEntry> SharedEntries<E> {
    pub(crate) fn new(bounds: EntryBounds) -> Self {
        let by_use = EntriesByUse::default();
        Self {
            bounds,
            parts: (0..PARTS).map(|_| RwLock::default()).collect(),
            loads: SingleFlight::new(),
            epoch: AtomicU64::new(0),
            weight: by_use.weight_of_all(),
            by_use: Mutex::new(by_use),
        }
    }

    fn part(&self, key: E::Key) -> &RwLock<EntryPart<E>> {
        &self.parts[(E::minted(key).as_u128() % PARTS) as usize]
    }

    /// Returns the installed entry and counts a use.
    pub(crate) fn get(&self, key: E::Key) -> Option<Arc<E>> {
        self.peek(key).inspect(|entry| entry.held().note_use())
    }

    /// Returns the installed entry without counting a use, so that the read does not delay its eviction.
    pub(crate) fn peek(&self, key: E::Key) -> Option<Arc<E>> {
        self.part(key).read().get(&key).filter(|entry| entry.is_current()).cloned()
    }

    /// Begins a load; the caller has read nothing for it yet.
    pub(crate) fn begin<'a>(&'a self, key: &'a E::Key) -> EntryLoad<'a, E::Key> {
        self.begun(self.loads.concurrent(key))
    }

    /// Begins a load once no other exclusive load of the key is running. A caller that has waited looks first if the
    /// entry is installed by now.
    pub(crate) async fn begin_alone<'a>(&'a self, key: &'a E::Key) -> EntryLoad<'a, E::Key> {
        self.begun(self.loads.alone(key).await)
    }

    fn begun<'a>(&self, load: single_flight::Load<'a, E::Key>) -> EntryLoad<'a, E::Key> {
        let begun = (self.epoch(), load.invalidations());
        EntryLoad { load, begun }
    }

    /// Installs a loaded entry, or returns the entry that a faster load has installed. An entry whose row changed
    /// during the load is retired instead, and its caller loads again. So is one whose load overlaps with another entry
    /// that has been installed and evicted since: runs in between have changed that entry's state, which this one does
    /// not know.
    pub(crate) fn install(&self, loaded: Arc<E>, load: &EntryLoad<'_, E::Key>) -> Arc<E> {
        let mut by_use = self.by_use.lock();
        let key = loaded.key();
        if let Some(entry) = self.get(key) {
            return entry;
        }
        self.take_out(&mut by_use, key);
        if (self.epoch(), load.load.invalidations()) == load.begun {
            self.loads.invalidate(&key);
            let (tenant, weight) = (loaded.tenant(), loaded.held().weight());
            self.make_room_for(&mut by_use, 1, |by_use| by_use.bytes_to_come(tenant) + weight);
            let (counted, place) = by_use.add(tenant, Arc::clone(&loaded));
            loaded.held().install(&counted, place);
            by_use.note(tenant);
            self.part(key).write().insert(key, Arc::clone(&loaded));
        } else {
            loaded.held().retire();
        }
        loaded
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    fn take_out(&self, by_use: &mut EntriesByUse<Arc<E>>, key: E::Key) {
        let entry = self.part(key).write().remove(&key);
        if let Some(entry) = entry {
            retire(by_use, &*entry);
        }
    }

    /// Retires the entry of this key, because its row has changed.
    pub(crate) fn retire(&self, key: E::Key) {
        let mut by_use = self.by_use.lock();
        self.loads.invalidate(&key);
        self.take_out(&mut by_use, key);
    }

    /// Retires the entries for which `chosen` returns true, because something that they have in common has changed.
    pub(crate) fn retire_if(&self, chosen: impl Fn(&E) -> bool) {
        let mut by_use = self.by_use.lock();
        self.epoch.fetch_add(1, Ordering::SeqCst);
        for part in &self.parts {
            part.write().retain(|_, entry| {
                let goes = chosen(entry);
                if goes {
                    retire(&mut by_use, &**entry);
                }
                !goes
            });
        }
    }

    /// Prevents the entries of running loads from being installed, because their rows may have changed.
    pub(crate) fn discard_loads(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the weight of all installed entries, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.weight.load(Ordering::Relaxed)
    }

    /// Notes that this entry's state has changed: others may have to leave if it has grown.
    pub(crate) fn changed(&self, entry: &E) {
        if self.weight() > self.bounds.bytes || entry.held().is_to_note() {
            let mut by_use = self.by_use.lock();
            by_use.note(entry.tenant());
            self.make_room_for(&mut by_use, 0, |_| 0);
        }
    }

    /// Evicts entries until there is room for this many more of this many bytes. Entries in use by running runs may
    /// stay beyond the limits.
    fn make_room_for(
        &self,
        by_use: &mut EntriesByUse<Arc<E>>,
        entries: usize,
        bytes: impl Fn(&EntriesByUse<Arc<E>>) -> usize,
    ) {
        let EntryBounds { entries: entries_max, bytes: bytes_max } = self.bounds;
        while by_use.count().saturating_add(entries) > entries_max || self.weight() + bytes(by_use) > bytes_max {
            let Some(entry) = by_use.retire_next(0, |entry, asked| entry.held().leaves(asked)) else { return };
            let key = entry.key();
            // Running loads may have read the row before runs by this entry changed it.
            self.loads.invalidate(&key);
            self.part(key).write().remove(&key);
        }
    }
}

/// Retires an installed entry and removes it from the order of use.
fn retire<E: SharedEntry>(by_use: &mut EntriesByUse<Arc<E>>, entry: &E) {
    by_use.remove(entry.tenant(), entry.held().place());
    entry.held().retire();
    by_use.note(entry.tenant());
}

#[cfg(test)]
impl<E: SharedEntry> SharedEntries<E> {
    /// Evicts all entries that no run uses.
    pub(crate) fn push_all_out(&self) {
        self.make_room_for(&mut self.by_use.lock(), usize::MAX, |_| 0);
    }

    /// Returns true if no load is running.
    pub(crate) fn nobody_loads(&self) -> bool {
        self.loads.is_empty()
    }

    /// Returns all installed entries after checking that their weights add up to the counted weight; nobody may change
    /// an entry meanwhile.
    pub(crate) fn books_are_right(&self) -> Vec<Arc<E>> {
        let (all, tenants) = (self.all(), self.by_use.lock().tenants());
        let weights = all.iter().map(|entry| entry.held().weight());
        assert_eq!(self.weight(), tenants * isobar_store::by_use::TENANT_BYTES + weights.sum::<usize>());
        all
    }

    /// Returns all installed entries.
    pub(crate) fn all(&self) -> Vec<Arc<E>> {
        let all: Vec<_> =
            self.parts.iter().flat_map(|part| part.read().values().cloned().collect::<Vec<_>>()).collect();
        assert_eq!(all.len(), self.by_use.lock().count());
        all
    }
}
