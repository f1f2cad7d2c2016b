//! Installed entries of a cache by tenant, from the one that was not used for the longest: who has to make room for others.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use isobar_model::ids::OrganizationId;

use super::held::TenantWeight;
use super::shared_entries::SharedEntry;

/// Tenants that are looked at for the one whose entries weigh most, each time that room is made; the heaviest one that was
/// seen before is among them.
const TENANTS_LOOKED_AT: usize = 16;
/// Entries of that tenant that are looked at for one that was not used since the last look.
const ENTRIES_LOOKED_AT: usize = 64;

/// The installed entries of all tenants.
pub(super) struct EntriesByUse<E> {
    tenants: BTreeMap<OrganizationId, TenantEntries<E>>,
    /// The tenant that was looked at last.
    cursor: Option<OrganizationId>,
    /// The tenant whose entries weigh most, as far as it has been seen.
    heaviest: Option<OrganizationId>,
    count: usize,
    places: u64,
}

struct TenantEntries<E> {
    weight: Arc<TenantWeight>,
    /// By the places that they got when they came, or when they were found used.
    by_use: BTreeMap<u64, Arc<E>>,
}

impl<E> Default for EntriesByUse<E> {
    fn default() -> Self {
        Self { tenants: BTreeMap::new(), cursor: None, heaviest: None, count: 0, places: 0 }
    }
}

impl<E: SharedEntry> EntriesByUse<E> {
    /// Entries of all tenants.
    pub fn count(&self) -> usize {
        self.count
    }

    fn next_place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    /// An entry comes and is installed. `all`: what the entries of all weigh.
    pub fn add(&mut self, entry: &Arc<E>, all: &Arc<AtomicUsize>) {
        let (tenant, place) = (entry.tenant(), self.next_place());
        let first = || TenantEntries { weight: TenantWeight::new(all), by_use: BTreeMap::new() };
        let own = self.tenants.entry(tenant).or_insert_with(first);
        entry.held().install(&own.weight, place);
        own.by_use.insert(place, Arc::clone(entry));
        self.count += 1;
        self.notice(tenant);
    }

    /// An entry goes; whoever takes it out retires it.
    pub fn remove(&mut self, entry: &E) {
        let tenant = entry.tenant();
        let Some(own) = self.tenants.get_mut(&tenant) else { return };
        if own.by_use.remove(&entry.held().place()).is_some() {
            self.count -= 1;
        }
        if own.by_use.is_empty() {
            self.tenants.remove(&tenant);
        }
    }

    fn weight_of(&self, tenant: Option<OrganizationId>) -> usize {
        tenant.and_then(|tenant| self.tenants.get(&tenant)).map_or(0, |own| own.weight.get())
    }

    /// What a tenant's entries weigh has grown.
    pub fn notice(&mut self, tenant: OrganizationId) {
        if self.weight_of(Some(tenant)) > self.weight_of(self.heaviest) {
            self.heaviest = Some(tenant);
        }
    }

    /// The tenant whose entries weigh most, but for these. It is told from a few each time, those who come after the ones
    /// before: nobody waits until all have been looked at.
    fn heaviest_but(&mut self, passed: &[OrganizationId]) -> Option<OrganizationId> {
        let begin = self.cursor.map_or(Bound::Unbounded, Bound::Excluded);
        let after = self.tenants.range((begin, Bound::Unbounded));
        let looked_at = after.chain(&self.tenants).take(TENANTS_LOOKED_AT.min(self.tenants.len()));
        let known = self.heaviest.filter(|known| !passed.contains(known));
        let (mut most, mut heaviest, mut last) = (self.weight_of(known), known, None);
        for (tenant, own) in looked_at {
            let weight = own.weight.get();
            if weight > most && !passed.contains(tenant) {
                (most, heaviest) = (weight, Some(*tenant));
            }
            last = Some(*tenant);
        }
        self.cursor = last;
        heaviest
    }

    /// Retires the entry that leaves next: of the tenant whose entries weigh most the one that it has not used for the longest,
    /// but none that a run goes by; where that leaves none, of the next tenant. None: none may leave now.
    pub fn retire_next(&mut self) -> Option<Arc<E>> {
        self.heaviest = self.heaviest_but(&[]);
        let (mut next, mut passed) = (self.heaviest, Vec::new());
        while let Some(tenant) = next {
            if let Some(entry) = self.retire_of(tenant) {
                return Some(entry);
            }
            passed.push(tenant);
            next = self.heaviest_but(&passed).filter(|_| passed.len() < TENANTS_LOOKED_AT);
        }
        None
    }

    fn retire_of(&mut self, tenant: OrganizationId) -> Option<Arc<E>> {
        for look in 1..=ENTRIES_LOOKED_AT {
            let place = self.next_place();
            let own = self.tenants.get_mut(&tenant)?;
            let (_, entry) = own.by_use.pop_first()?;
            // Where all were used, one that was leaves all the same.
            let stays = entry.held().take_used() && look < ENTRIES_LOOKED_AT;
            if !stays && entry.held().retire_if_idle() {
                self.count -= 1;
                if own.by_use.is_empty() {
                    self.tenants.remove(&tenant);
                }
                return Some(entry);
            }
            entry.held().moves_to(place);
            own.by_use.insert(place, entry);
        }
        None
    }
}
