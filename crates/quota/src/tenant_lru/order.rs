//! The order in which entries are evicted: of the tenant whose entries weigh most, the least recently used one.
//!
//! The heaviest tenant is found without a scan: tenants are sorted by their noted weight, and code that changes a weight
//! by more than a little notes it again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use isobar_model::ids::OrganizationId;

/// Bytes that a tenant takes in a cache in addition to its entries. They are counted with them.
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
pub(super) struct TenantWeight {
    tenant: OrganizationId,
    own: AtomicUsize,
    /// The value that was noted last.
    noted: AtomicUsize,
    all: Arc<AtomicUsize>,
}

impl TenantWeight {
    fn new(tenant: OrganizationId, all: &Arc<AtomicUsize>) -> Arc<Self> {
        let weight = Self { tenant, own: AtomicUsize::new(0), noted: AtomicUsize::new(0), all: Arc::clone(all) };
        weight.change(0, TENANT_BYTES);
        Arc::new(weight)
    }

    /// Returns the tenant.
    pub(super) fn id(&self) -> OrganizationId {
        self.tenant
    }

    fn get(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    /// Replaces the weight `before` of an entry by `after`.
    pub(super) fn change(&self, before: usize, after: usize) {
        let more = after.wrapping_sub(before);
        self.own.fetch_add(more, Ordering::Relaxed);
        self.all.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns true if the weight differs so much from the noted one that [`TenantOrder::note`] must be called.
    pub(super) fn is_to_note(&self) -> bool {
        let noted = self.noted.load(Ordering::Relaxed);
        self.get().abs_diff(noted) > UNNOTED_BYTES_MAX.max(noted / UNNOTED_PART)
    }
}

/// The conditions of one examination of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Examination {
    /// True if the entry must stay if it was used since its last examination.
    pub(super) spares_used: bool,
    /// Its new place in the order, if it stays.
    pub(super) place: u64,
}

/// The keys of the entries of all tenants.
#[derive(Debug)]
pub(super) struct TenantOrder<K> {
    tenants: BTreeMap<OrganizationId, TenantEntries<K>>,
    /// Tenants by noted weight, lightest first.
    by_weight: BTreeSet<(usize, OrganizationId)>,
    /// The position before which the next examination begins: no tenant from here on had an entry to evict.
    asked: Option<(usize, OrganizationId)>,
    all: Arc<AtomicUsize>,
    count: usize,
    places: u64,
}

#[derive(Debug)]
struct TenantEntries<K> {
    weight: Arc<TenantWeight>,
    /// Keys by place, which each entry gets when it is added and when it is examined and stays.
    by_use: BTreeMap<u64, K>,
}

impl<K> Default for TenantOrder<K> {
    fn default() -> Self {
        Self {
            tenants: BTreeMap::new(),
            by_weight: BTreeSet::new(),
            asked: None,
            all: Arc::default(),
            count: 0,
            places: 0,
        }
    }
}

impl<K> TenantOrder<K> {
    /// Returns the number of entries.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of tenants with entries.
    pub(super) fn tenants(&self) -> usize {
        self.tenants.len()
    }

    /// Returns the weight of each tenant's entries.
    pub(super) fn weights(&self) -> BTreeMap<OrganizationId, usize> {
        self.tenants.iter().map(|(tenant, own)| (*tenant, own.weight.get())).collect()
    }

    /// Returns the counter of the total weight, which may be read at any time.
    pub(super) fn weight_of_all(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.all)
    }

    fn next_place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    /// Adds an entry of a tenant; returns the counter for its weight, and its place.
    pub(super) fn add(&mut self, tenant: OrganizationId, key: K) -> (Arc<TenantWeight>, u64) {
        let place = self.next_place();
        let (all, by_weight) = (&self.all, &mut self.by_weight);
        let own = self.tenants.entry(tenant).or_insert_with(|| {
            by_weight.insert((0, tenant));
            TenantEntries { weight: TenantWeight::new(tenant, all), by_use: BTreeMap::new() }
        });
        own.by_use.insert(place, key);
        self.count += 1;
        (Arc::clone(&own.weight), place)
    }

    /// Removes the entry at this place of a tenant. The caller has subtracted its weight.
    pub(super) fn remove(&mut self, tenant: OrganizationId, place: u64) {
        let Some(own) = self.tenants.get_mut(&tenant) else { return };
        if own.by_use.remove(&place).is_some() {
            self.count -= 1;
        }
        self.note(tenant);
    }

    /// Notes the weight of a tenant's entries. Removes a tenant without entries.
    pub(super) fn note(&mut self, tenant: OrganizationId) {
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

    /// Removes the next entry and returns its value: of the heaviest tenant the least recently used one for which
    /// `evict` returns the value. If none of that tenant leaves, the next tenant is examined if its entries weigh more
    /// than `share`. Returns `None` if no examined entry leaves; the next call continues behind them.
    pub(super) fn evict<V>(&mut self, share: usize, mut evict: impl FnMut(&K, Examination) -> Option<V>) -> Option<V> {
        for _ in 0..TENANTS_ASKED_MAX {
            let before = self.asked.map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.by_weight.range((Bound::Unbounded, before)).next_back().copied();
            let is_heaviest = self.asked.is_none();
            self.asked = next.filter(|(_, tenant)| is_heaviest || self.weight_of(*tenant) > share);
            let (_, tenant) = self.asked?;
            if let Some(value) = self.evict_of(tenant, &mut evict) {
                self.asked = None;
                return Some(value);
            }
        }
        None
    }

    fn weight_of(&self, tenant: OrganizationId) -> usize {
        self.tenants.get(&tenant).map_or(0, |own| own.weight.get())
    }

    fn evict_of<V>(
        &mut self,
        tenant: OrganizationId,
        evict: &mut impl FnMut(&K, Examination) -> Option<V>,
    ) -> Option<V> {
        let asked_max = self.tenants.get(&tenant).map_or(0, |own| ENTRIES_ASKED_MAX.min(2 * own.by_use.len()));
        for asked in 0..asked_max {
            let place = self.next_place();
            let own = self.tenants.get_mut(&tenant)?;
            let (_, key) = own.by_use.pop_first()?;
            if let Some(value) = evict(&key, Examination { spares_used: asked < asked_max / 2, place }) {
                self.count -= 1;
                self.note(tenant);
                return Some(value);
            }
            own.by_use.insert(place, key);
        }
        None
    }
}

#[cfg(test)]
impl<K> TenantOrder<K> {
    /// Returns the key at this place of a tenant.
    pub(super) fn at(&self, tenant: OrganizationId, place: u64) -> Option<&K> {
        self.tenants.get(&tenant)?.by_use.get(&place)
    }

    /// Checks that each tenant is noted once, with about its weight.
    pub(super) fn check_notes(&self) {
        assert_eq!(self.by_weight.len(), self.tenants.len());
        for (noted, tenant) in &self.by_weight {
            let weight = &self.tenants[tenant].weight;
            assert!(!weight.is_to_note() && *noted == weight.noted.load(Ordering::Relaxed));
        }
    }
}
