//! A cache of entries that all tenants share: of each key at most one is installed, and runs go by that one alone. Devices have
//! one, and compiled designs.
//!
//! A run changes what its entry says of the device (status, meta, settings), so two entries of one device would each
//! miss what the other learns. An entry that leaves the cache is retired where it is, and lets go of what it says: whoever
//! still holds it, a long poll for instance, keeps next to nothing in memory. So does one that was loaded and is not installed:
//! what entries hold is what is counted, and nothing beside it.
//!
//! Entries are bounded in number and in bytes, and all tenants share both. Where there is no room for one more, or one has
//! grown, the tenant whose entries weigh most loses the one that it has not used for the longest, but none that a run goes
//! by: nobody pushes out what another tenant has of its equal part.

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

/// Parts of a cache that are locked each for itself.
const PARTS: u128 = 64;

/// An entry of such a cache.
pub(crate) trait SharedEntry {
    /// By what it is found.
    type Key: Copy + Eq + Hash;
    /// What it says until it is retired.
    type Says: Weighed;

    /// Its key.
    fn key(&self) -> Self::Key;

    /// The key as it was minted.
    fn minted(key: Self::Key) -> Uuid;

    /// Whose part of the cache it takes.
    fn tenant(&self) -> OrganizationId;

    /// What it says.
    fn held(&self) -> &Held<Self::Says>;

    /// Whether runs may go by it.
    fn is_current(&self) -> bool {
        self.held().is_installed()
    }
}

/// Installed entries by key. Clients choose what is looked for: keys are hashed with a random one.
type EntryPart<E> = HashMap<<E as SharedEntry>::Key, Arc<E>, DefaultHashBuilder>;

/// How many entries there may be, and how many bytes they may weigh.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryBounds {
    pub entries: usize,
    pub bytes: usize,
}

/// The entries of a cache.
pub(crate) struct SharedEntries<E: SharedEntry> {
    bounds: EntryBounds,
    parts: Box<[RwLock<EntryPart<E>>]>,
    loads: SingleFlight<E::Key>,
    /// Grows with every change that may concern any key: what was loaded before it is not installed.
    epoch: AtomicU64,
    /// What all installed entries weigh.
    weight: Arc<AtomicUsize>,
    /// Held by whoever installs or retires entries.
    by_use: Mutex<EntriesByUse<Arc<E>>>,
}

/// A load of an entry. There may be several of a key at a time.
pub(crate) struct EntryLoad<'a, K: Hash + Eq> {
    load: single_flight::Load<'a, K>,
    /// What had changed when it began: of all keys, and of this one.
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

    /// The installed entry.
    pub(crate) fn get(&self, key: E::Key) -> Option<Arc<E>> {
        self.peek(key).inspect(|entry| entry.held().note_use())
    }

    /// The installed entry, for whoever is no reason to keep it.
    pub(crate) fn peek(&self, key: E::Key) -> Option<Arc<E>> {
        self.part(key).read().get(&key).filter(|entry| entry.is_current()).cloned()
    }

    /// A load begins: nothing has been read for it yet.
    pub(crate) fn begin<'a>(&'a self, key: &'a E::Key) -> EntryLoad<'a, E::Key> {
        self.begun(self.loads.concurrent(key))
    }

    /// The same when nobody else loads the key alone: whoever has waited looks first whether the entry is there.
    pub(crate) async fn begin_alone<'a>(&'a self, key: &'a E::Key) -> EntryLoad<'a, E::Key> {
        self.begun(self.loads.alone(key).await)
    }

    fn begun<'a>(&self, load: single_flight::Load<'a, E::Key>) -> EntryLoad<'a, E::Key> {
        let begun = (self.epoch(), load.invalidations());
        EntryLoad { load, begun }
    }

    /// Installs an entry that `load` has found, unless another load was faster: then that one's is answered. One that was
    /// loaded while what it says changed is not installed, but retired: its asker asks anew. So is one that was loaded while
    /// another one was there that is gone again: the runs in between have changed what that one said, and not this.
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

    /// What the entry of this key says has changed.
    pub(crate) fn retire(&self, key: E::Key) {
        let mut by_use = self.by_use.lock();
        self.loads.invalidate(&key);
        self.take_out(&mut by_use, key);
    }

    /// Something changed that all entries have in common for which `chosen` is true.
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

    /// Something changed that loads under way may have read before.
    pub(crate) fn discard_loads(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// What all installed entries weigh, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.weight.load(Ordering::Relaxed)
    }

    /// What this entry says has changed: where it has grown, others may have to leave.
    pub(crate) fn changed(&self, entry: &E) {
        if self.weight() > self.bounds.bytes || entry.held().is_to_note() {
            let mut by_use = self.by_use.lock();
            by_use.note(entry.tenant());
            self.make_room_for(&mut by_use, 0, |_| 0);
        }
    }

    /// Has entries leave until there is room for so many more, of so many bytes. As many as runs go by at the moment may stay
    /// beyond that.
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
            // Loads under way may have read what runs by this entry have changed since.
            self.loads.invalidate(&key);
            self.part(key).write().remove(&key);
        }
    }
}

/// An installed entry leaves.
fn retire<E: SharedEntry>(by_use: &mut EntriesByUse<Arc<E>>, entry: &E) {
    by_use.remove(entry.tenant(), entry.held().place());
    entry.held().retire();
    by_use.note(entry.tenant());
}

#[cfg(test)]
impl<E: SharedEntry> SharedEntries<E> {
    /// All entries leave that no run goes by.
    pub(crate) fn push_all_out(&self) {
        self.make_room_for(&mut self.by_use.lock(), usize::MAX, |_| 0);
    }

    /// Whether nobody loads anything.
    pub(crate) fn nobody_loads(&self) -> bool {
        self.loads.is_empty()
    }

    /// All installed entries, which weigh together what is counted; nobody may change one meanwhile.
    pub(crate) fn books_are_right(&self) -> Vec<Arc<E>> {
        let (all, tenants) = (self.all(), self.by_use.lock().tenants());
        let weights = all.iter().map(|entry| entry.held().weight());
        assert_eq!(self.weight(), tenants * isobar_store::by_use::TENANT_BYTES + weights.sum::<usize>());
        all
    }

    /// All installed entries.
    pub(crate) fn all(&self) -> Vec<Arc<E>> {
        let all: Vec<_> =
            self.parts.iter().flat_map(|part| part.read().values().cloned().collect::<Vec<_>>()).collect();
        assert_eq!(all.len(), self.by_use.lock().count());
        all
    }
}
