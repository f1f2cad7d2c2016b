//! A cache that tenants share: without room, the tenant whose entries weigh most loses the least recently used one.
//!
//! A lookup locks one of many parts of the table, and nothing else. An entry's weight changes without any lock: counters
//! of the tenant and of all follow it. The order of use has a lock of its own, which is taken where entries are added
//! and removed, or where a tenant's weight has changed by much.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use isobar_model::ids::OrganizationId;
use parking_lot::{Mutex, MutexGuard};

mod order;
#[cfg(test)]
mod tests;

use order::{Examination, TenantOrder, TenantWeight};

pub use order::TENANT_BYTES;

/// Parts of the table, each with its own lock.
const PARTS: usize = 64;
/// Weight of an entry that has left the cache.
const GONE: usize = usize::MAX;

/// Limits of a cache.
#[derive(Clone, Copy, Debug)]
pub struct LruLimits {
    /// Most entries.
    pub entries: usize,
    /// Largest sum of all weights, [`TENANT_BYTES`] of each tenant included.
    pub bytes: usize,
    /// Most entries that are evicted at a time; the next change continues.
    pub evictions: usize,
    /// True if a tenant with no more than an equal share loses nothing to entries of others that must stay: these exceed
    /// the limits instead.
    pub spares_small_shares: bool,
}

/// A cache of values that may be cloned cheaply. Entries that must stay may exceed its limits.
pub struct TenantLru<K, V> {
    limits: LruLimits,
    /// Callers choose the keys, so the hash function has a random seed.
    hasher: RandomState,
    parts: Box<[TablePart<K, V>]>,
    weight: Arc<AtomicUsize>,
    /// Locked before any part.
    order: Mutex<TenantOrder<K>>,
}

/// A part of the table.
type TablePart<K, V> = Mutex<HashMap<K, PlacedValue<V>>>;

struct PlacedValue<V> {
    value: V,
    place: Arc<LruPlace>,
}

/// The place of an entry among those of its tenant, and its weight.
#[derive(Debug)]
pub struct LruPlace {
    tenant: Arc<TenantWeight>,
    /// Position in the order; changed under its lock only.
    number: AtomicU64,
    weight: AtomicUsize,
    /// True if the entry was used since its last examination.
    is_used: AtomicBool,
}

impl LruPlace {
    /// Returns the tenant that the entry is charged to.
    pub fn tenant(&self) -> OrganizationId {
        self.tenant.id()
    }

    /// Notes a use of the entry, which delays its eviction.
    pub fn note_use(&self) {
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true until the entry leaves the cache.
    pub fn is_cached(&self) -> bool {
        self.weight.load(Ordering::SeqCst) != GONE
    }

    /// Changes the weight of the entry, unless it has left the cache; returns the former one. Others make room for a
    /// heavier entry in [`TenantLru::settle`].
    pub fn set_weight(&self, weight: usize) -> usize {
        let is_cached = |before| (before != GONE).then_some(weight);
        let before = self.weight.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_cached);
        before.inspect(|before| self.tenant.change(*before, weight)).unwrap_or(0)
    }

    /// Returns true if the tenant's weight has changed by so much that [`TenantLru::settle`] must be called.
    pub fn is_to_settle(&self) -> bool {
        self.tenant.is_to_note()
    }

    /// Marks the entry as gone and returns the weight that it had. The cache removes it, or the caller does.
    pub fn leave(&self) -> usize {
        match self.weight.swap(GONE, Ordering::SeqCst) {
            GONE => 0,
            weight => {
                self.tenant.change(weight, 0);
                weight
            }
        }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> TenantLru<K, V> {
    /// Makes an empty cache.
    pub fn new(limits: LruLimits) -> Self {
        let order = TenantOrder::default();
        Self {
            limits,
            hasher: RandomState::new(),
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            weight: order.weight_of_all(),
            order: Mutex::new(order),
        }
    }

    fn part(&self, key: &K) -> &TablePart<K, V> {
        &self.parts[self.hasher.hash_one(key) as usize % PARTS]
    }

    /// Returns the value of a key, and notes its use.
    pub fn get(&self, key: &K) -> Option<V> {
        let part = self.part(key).lock();
        let slot = part.get(key)?;
        slot.place.note_use();
        Some(slot.value.clone())
    }

    /// Returns the value of a key; the look does not delay its eviction.
    pub fn peek(&self, key: &K) -> Option<V> {
        self.part(key).lock().get(key).map(|slot| slot.value.clone())
    }

    /// Returns the values of all entries.
    pub fn values(&self) -> Vec<V> {
        let of_part =
            |part: &TablePart<K, V>| -> Vec<V> { part.lock().values().map(|slot| slot.value.clone()).collect() };
        self.parts.iter().flat_map(of_part).collect()
    }

    /// Returns the sum of all weights.
    pub fn weight(&self) -> usize {
        self.weight.load(Ordering::Relaxed)
    }

    /// Returns the weight of each tenant's entries, [`TENANT_BYTES`] included.
    pub fn weights(&self) -> BTreeMap<OrganizationId, usize> {
        self.order.lock().weights()
    }

    /// Begins a change of the cache: until it ends no other one begins.
    pub fn change(&self) -> LruChange<'_, K, V> {
        LruChange { lru: self, order: self.order.lock(), evicted: Vec::new() }
    }

    /// Makes room after the weight of an entry has changed, if that is necessary; returns the evicted values. See
    /// [`LruChange::insert`] for `leaves`.
    pub fn settle(&self, place: &LruPlace, leaves: impl FnMut(&K, &V) -> bool) -> Vec<V> {
        if self.weight() <= self.limits.bytes && !place.is_to_settle() {
            return Vec::new();
        }
        let mut change = self.change();
        change.order.note(place.tenant());
        change.make_room(leaves);
        change.end()
    }

    /// Removes an entry that was examined, unless it is spared or does not leave.
    fn evict(&self, key: &K, examination: Examination, leaves: impl FnOnce(&K, &V) -> bool) -> Option<V> {
        let mut part = self.part(key).lock();
        let PlacedValue { value, place } = part.get(key)?;
        let is_spared = place.is_used.swap(false, Ordering::Relaxed) && examination.spares_used;
        if is_spared || !leaves(key, value) {
            place.number.store(examination.place, Ordering::Relaxed);
            return None;
        }
        place.leave();
        part.remove(key).map(|slot| slot.value)
    }
}

/// A change of a cache, which ends when this is dropped. Evicted values are dropped after it.
pub struct LruChange<'a, K, V> {
    lru: &'a TenantLru<K, V>,
    order: MutexGuard<'a, TenantOrder<K>>,
    evicted: Vec<V>,
}

impl<K: Hash + Eq + Clone, V: Clone> LruChange<'_, K, V> {
    /// Adds an entry of this weight, in place of the one that has this key, and makes room for it. `make` returns the
    /// value and may store its place, to change the weight later. `leaves` decides if another entry is evicted, or must
    /// stay because it is in use; nobody can look it up meanwhile.
    pub fn insert(
        &mut self,
        (key, tenant): (K, OrganizationId),
        weight: usize,
        make: impl FnOnce(&Arc<LruPlace>) -> V,
        mut leaves: impl FnMut(&K, &V) -> bool,
    ) -> V {
        self.remove(&key);
        let place = self.place(key.clone(), tenant, weight);
        let value = make(&place);
        self.order.note(tenant);
        self.lru.part(&key).lock().insert(key.clone(), PlacedValue { value: value.clone(), place });
        self.make_room(|other, value| *other != key && leaves(other, value));
        value
    }

    /// Charges an entry to another tenant; returns its new place, or `None` if there is no such entry.
    pub fn set_tenant(&mut self, key: &K, tenant: OrganizationId) -> Option<Arc<LruPlace>> {
        let mut part = self.lru.part(key).lock();
        let slot = part.get_mut(key)?;
        let weight = self.take_out(&slot.place);
        slot.place = self.place(key.clone(), tenant, weight);
        self.order.note(tenant);
        Some(Arc::clone(&slot.place))
    }

    /// Removes an entry and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let slot = self.lru.part(key).lock().remove(key)?;
        self.take_out(&slot.place);
        Some(slot.value)
    }

    /// Removes the entries for which `chosen` returns true, and returns their values.
    pub fn remove_if(&mut self, mut chosen: impl FnMut(&K, &V) -> bool) -> Vec<V> {
        let mut removed = Vec::new();
        for part in &self.lru.parts {
            for (_, slot) in part.lock().extract_if(|key, slot| chosen(key, &slot.value)) {
                self.take_out(&slot.place);
                removed.push(slot.value);
            }
        }
        removed
    }

    /// Ends the change and returns the values that were evicted.
    pub fn end(self) -> Vec<V> {
        self.evicted
    }

    fn place(&mut self, key: K, tenant: OrganizationId, weight: usize) -> Arc<LruPlace> {
        let (tenant, number) = self.order.add(tenant, key);
        tenant.change(0, weight);
        let (number, weight) = (AtomicU64::new(number), AtomicUsize::new(weight));
        Arc::new(LruPlace { tenant, number, weight, is_used: AtomicBool::new(false) })
    }

    fn take_out(&mut self, place: &LruPlace) -> usize {
        let weight = place.leave();
        self.order.remove(place.tenant(), place.number.load(Ordering::Relaxed));
        weight
    }

    /// Evicts entries until the limits hold.
    fn make_room(&mut self, mut leaves: impl FnMut(&K, &V) -> bool) {
        let Self { lru, order, evicted } = self;
        let LruLimits { entries, bytes, evictions, spares_small_shares } = lru.limits;
        for _ in 0..evictions {
            if order.count() <= entries && lru.weight() <= bytes {
                return;
            }
            let share = if spares_small_shares { bytes / order.tenants().max(1) } else { 0 };
            match order.evict(share, |key, examination| lru.evict(key, examination, &mut leaves)) {
                Some(value) => evicted.push(value),
                None => return,
            }
        }
    }
}
