//! The order in which a cache that tenants share evicts its entries: of the tenant whose entries weigh most, the least
//! recently used one.
//!
//! The heaviest tenant is found without a scan: tenants are sorted by their noted weight, and code that changes a weight
//! by more than a little notes it again. Smaller changes do not need the lock under which a cache keeps this.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use isobar_model::ids::OrganizationId;
use rustc_hash::FxHashMap;

/// Bytes that a tenant takes here in addition to its entries. They are counted with them.
pub const TENANT_BYTES: usize = 384;
/// A changed weight is noted again if it differs by more than so many bytes and by more than such a part.
const UNNOTED_BYTES_MAX: usize = 1 << 10;
const UNNOTED_PART: usize = 16;
/// Tenants whose entries are examined each time that room is made.
const TENANTS_ASKED_MAX: usize = 8;
/// Entries of a tenant that are examined, each at most twice. In the first half, an entry that was used since its last
/// examination is not evicted.
const ENTRIES_ASKED_MAX: usize = 64;

/// The weight of the entries of one tenant, in bytes, which is also counted in the weight of all.
#[derive(Debug)]
pub struct TenantWeight {
    own: AtomicUsize,
    /// The value that was noted last.
    noted: AtomicUsize,
    all: Arc<AtomicUsize>,
}

impl TenantWeight {
    fn new(all: &Arc<AtomicUsize>) -> Arc<Self> {
        let weight = Self { own: AtomicUsize::new(0), noted: AtomicUsize::new(0), all: Arc::clone(all) };
        weight.change(0, TENANT_BYTES);
        Arc::new(weight)
    }

    /// Returns the current weight.
    pub fn get(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    /// Replaces the weight `before` of an entry by `after`.
    pub fn change(&self, before: usize, after: usize) {
        let more = after.wrapping_sub(before);
        self.own.fetch_add(more, Ordering::Relaxed);
        self.all.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns true if the weight differs so much from the noted one that [`EntriesByUse::note`] must be called.
    pub fn is_to_note(&self) -> bool {
        let noted = self.noted.load(Ordering::Relaxed);
        self.get().abs_diff(noted) > UNNOTED_BYTES_MAX.max(noted / UNNOTED_PART)
    }
}

/// The conditions of one examination of an entry.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// True if the entry must stay if it was used since its last examination.
    pub spares_used: bool,
    /// Its new place in the order, if it stays.
    pub place: u64,
}

/// The entries of all tenants.
#[derive(Debug)]
pub struct EntriesByUse<E> {
    tenants: FxHashMap<OrganizationId, TenantEntries<E>>,
    /// Tenants by noted weight, lightest first.
    by_weight: BTreeSet<(usize, OrganizationId)>,
    /// The position before which the next examination begins: no tenant from here on had an entry to evict.
    asked: Option<(usize, OrganizationId)>,
    all: Arc<AtomicUsize>,
    count: usize,
    places: u64,
}

#[derive(Debug)]
struct TenantEntries<E> {
    weight: Arc<TenantWeight>,
    /// Entries by place, which each gets when it is added and when it is examined and stays.
    by_use: BTreeMap<u64, E>,
}

impl<E> Default for EntriesByUse<E> {
    fn default() -> Self {
        Self {
            tenants: FxHashMap::default(),
            by_weight: BTreeSet::new(),
            asked: None,
            all: Arc::default(),
            count: 0,
            places: 0,
        }
    }
}

impl<E> EntriesByUse<E> {
    /// Returns the number of entries.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of tenants with entries.
    pub fn tenants(&self) -> usize {
        self.tenants.len()
    }

    /// Returns the counter of the total weight, which may be read at any time.
    pub fn weight_of_all(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.all)
    }

    fn next_place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    /// Returns the bytes that are counted for a tenant in addition to a new entry.
    pub fn bytes_to_come(&self, tenant: OrganizationId) -> usize {
        if self.tenants.contains_key(&tenant) { 0 } else { TENANT_BYTES }
    }

    /// Adds an entry of a tenant; returns the counter for its weight, and its place.
    pub fn add(&mut self, tenant: OrganizationId, entry: E) -> (Arc<TenantWeight>, u64) {
        let place = self.next_place();
        let (all, by_weight) = (&self.all, &mut self.by_weight);
        let own = self.tenants.entry(tenant).or_insert_with(|| {
            by_weight.insert((0, tenant));
            TenantEntries { weight: TenantWeight::new(all), by_use: BTreeMap::new() }
        });
        own.by_use.insert(place, entry);
        self.count += 1;
        (Arc::clone(&own.weight), place)
    }

    /// Removes the entry at this place of a tenant. The caller subtracts its weight.
    pub fn remove(&mut self, tenant: OrganizationId, place: u64) {
        let Some(own) = self.tenants.get_mut(&tenant) else { return };
        if own.by_use.remove(&place).is_some() {
            self.count -= 1;
        }
        self.note(tenant);
    }

    /// Notes the weight of a tenant's entries. Removes a tenant without entries.
    pub fn note(&mut self, tenant: OrganizationId) {
        let Some(own) = self.tenants.get(&tenant) else { return };
        let weight = own.weight.get();
        let noted = own.weight.noted.swap(weight, Ordering::Relaxed);
        if own.by_use.is_empty() {
            own.weight.change(TENANT_BYTES, 0);
            self.by_weight.remove(&(noted, tenant));
            self.tenants.remove(&tenant);
        } else if noted != weight {
            self.by_weight.remove(&(noted, tenant));
            self.by_weight.insert((weight, tenant));
        }
    }

    /// Removes and returns the next entry: of the heaviest tenant the least recently used one for which `leaves` returns
    /// true. If none of that tenant leaves, the next tenant is examined if its entries weigh more than `part`: a lighter
    /// one loses nothing to entries that must stay. Returns `None` if no examined entry leaves; the next call continues
    /// behind them.
    pub fn retire_next(&mut self, part: usize, mut leaves: impl FnMut(&E, Asked) -> bool) -> Option<E> {
        for _ in 0..TENANTS_ASKED_MAX {
            let before = self.asked.map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.by_weight.range((Bound::Unbounded, before)).next_back().copied();
            let is_heaviest = self.asked.is_none();
            self.asked = next.filter(|(_, tenant)| is_heaviest || self.weight_of(*tenant) > part);
            let (_, tenant) = self.asked?;
            if let Some(entry) = self.retire_of(tenant, &mut leaves) {
                self.asked = None;
                return Some(entry);
            }
        }
        None
    }

    fn weight_of(&self, tenant: OrganizationId) -> usize {
        self.tenants.get(&tenant).map_or(0, |own| own.weight.get())
    }

    fn retire_of(&mut self, tenant: OrganizationId, leaves: &mut impl FnMut(&E, Asked) -> bool) -> Option<E> {
        let asked_max = self.tenants.get(&tenant).map_or(0, |own| ENTRIES_ASKED_MAX.min(2 * own.by_use.len()));
        for asked in 0..asked_max {
            let place = self.next_place();
            let own = self.tenants.get_mut(&tenant)?;
            let (_, entry) = own.by_use.pop_first()?;
            if leaves(&entry, Asked { spares_used: asked < asked_max / 2, place }) {
                self.count -= 1;
                self.note(tenant);
                return Some(entry);
            }
            own.by_use.insert(place, entry);
        }
        None
    }
}

#[cfg(test)]
impl<E> EntriesByUse<E> {
    /// Returns the entry at this place of a tenant.
    pub(crate) fn at(&self, tenant: OrganizationId, place: u64) -> Option<&E> {
        self.tenants.get(&tenant)?.by_use.get(&place)
    }

    /// Returns the weight of each tenant's entries. Checks that each tenant is noted once, with about this weight.
    pub(crate) fn weights(&self) -> BTreeMap<OrganizationId, usize> {
        assert_eq!(self.by_weight.len(), self.tenants.len());
        for (noted, tenant) in &self.by_weight {
            let weight = &self.tenants[tenant].weight;
            assert!(!weight.is_to_note() && *noted == weight.noted.load(Ordering::Relaxed));
        }
        self.tenants.iter().map(|(tenant, own)| (*tenant, own.weight.get())).collect()
    }
}
