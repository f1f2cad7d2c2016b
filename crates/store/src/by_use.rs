//! Entries of a cache that all tenants share, of each tenant from the one that was not used for the longest: who has to make
//! room for others.
//!
//! The tenant whose entries weigh most is known without a look at the others: a tenant stands where its weight was noted, and
//! whoever changes that by more than a little notes it anew. In between nobody needs the lock under which a cache keeps this.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use isobar_model::ids::OrganizationId;
use rustc_hash::FxHashMap;

/// What a tenant takes beside its entries, in bytes: its places here. It is counted with them.
pub const TENANT_BYTES: usize = 384;
/// What a tenant's entries weigh is noted anew when it has changed by more than so many bytes, and by more than such a part.
const UNNOTED_BYTES_MAX: usize = 1 << 10;
const UNNOTED_PART: usize = 16;
/// Tenants that are asked for an entry that may leave, each time that room is made.
const TENANTS_ASKED_MAX: usize = 8;
/// Entries of a tenant that are asked, each twice at most; of the first half none leaves that was used since it was last
/// asked.
const ENTRIES_ASKED_MAX: usize = 64;

/// What the entries of one tenant weigh, and with them those of all, in bytes.
#[derive(Debug)]
pub struct TenantWeight {
    own: AtomicUsize,
    /// What was noted of it last.
    noted: AtomicUsize,
    all: Arc<AtomicUsize>,
}

impl TenantWeight {
    fn new(all: &Arc<AtomicUsize>) -> Arc<Self> {
        let weight = Self { own: AtomicUsize::new(0), noted: AtomicUsize::new(0), all: Arc::clone(all) };
        weight.change(0, TENANT_BYTES);
        Arc::new(weight)
    }

    /// What they weigh now.
    pub fn get(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    /// An entry weighs more or less than before.
    pub fn change(&self, before: usize, after: usize) {
        let more = after.wrapping_sub(before);
        self.own.fetch_add(more, Ordering::Relaxed);
        self.all.fetch_add(more, Ordering::Relaxed);
    }

    /// Whether they weigh so much more or less than was noted that [`EntriesByUse::note`] has to know.
    pub fn is_to_note(&self) -> bool {
        let noted = self.noted.load(Ordering::Relaxed);
        self.get().abs_diff(noted) > UNNOTED_BYTES_MAX.max(noted / UNNOTED_PART)
    }
}

/// What an entry is asked.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// It stays if it was used since it was last asked.
    pub spares_used: bool,
    /// Where it stands from here on, if it stays.
    pub place: u64,
}

/// The entries of all tenants.
#[derive(Debug)]
pub struct EntriesByUse<E> {
    tenants: FxHashMap<OrganizationId, TenantEntries<E>>,
    /// The tenants from the lightest on, as it was noted.
    by_weight: BTreeSet<(usize, OrganizationId)>,
    /// Those before it are asked next: none of the others had an entry that may leave.
    asked: Option<(usize, OrganizationId)>,
    all: Arc<AtomicUsize>,
    count: usize,
    places: u64,
}

#[derive(Debug)]
struct TenantEntries<E> {
    weight: Arc<TenantWeight>,
    /// By the places that they got when they came, or when they were asked and stayed.
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
    /// Entries of all tenants.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Tenants that have any.
    pub fn tenants(&self) -> usize {
        self.tenants.len()
    }

    /// What all of them weigh, to be looked at at any time.
    pub fn weight_of_all(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.all)
    }

    fn next_place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    /// What is counted of a tenant beside an entry that comes, in bytes.
    pub fn bytes_to_come(&self, tenant: OrganizationId) -> usize {
        if self.tenants.contains_key(&tenant) { 0 } else { TENANT_BYTES }
    }

    /// An entry of this tenant comes: where it is counted from here on, and its place.
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

    /// The entry at this place of the tenant's goes; whoever takes it out no longer counts it.
    pub fn remove(&mut self, tenant: OrganizationId, place: u64) {
        let Some(own) = self.tenants.get_mut(&tenant) else { return };
        if own.by_use.remove(&place).is_some() {
            self.count -= 1;
        }
        self.note(tenant);
    }

    /// Notes what a tenant's entries weigh. One that has none is forgotten.
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

    /// Has the entry leave that is next: of the tenant whose entries weigh most the one that it has not used for the longest,
    /// unless it must stay, which `leaves` answers of each that is asked. Where none of that tenant may leave now, the next one
    /// is asked, as long as its entries weigh more than `part`: who has no more loses nothing to others that must stay. None: no
    /// entry of those that were asked; the next call goes on behind them.
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
    /// The entry at this place of the tenant's.
    pub(crate) fn at(&self, tenant: OrganizationId, place: u64) -> Option<&E> {
        self.tenants.get(&tenant)?.by_use.get(&place)
    }

    /// What the entries of each tenant weigh. All of them are noted, each once and not far from it.
    pub(crate) fn weights(&self) -> BTreeMap<OrganizationId, usize> {
        assert_eq!(self.by_weight.len(), self.tenants.len());
        for (noted, tenant) in &self.by_weight {
            let weight = &self.tenants[tenant].weight;
            assert!(!weight.is_to_note() && *noted == weight.noted.load(Ordering::Relaxed));
        }
        self.tenants.iter().map(|(tenant, own)| (*tenant, own.weight.get())).collect()
    }
}
