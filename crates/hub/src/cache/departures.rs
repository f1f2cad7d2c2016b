//! Counts, tenant by tenant, how often devices have left a place: moved elsewhere, or deleted. Readers that remember
//! the devices beneath an organization compare this count to learn if their list is stale.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use isobar_model::ids::OrganizationId;

/// Number of counters that all tenants are hashed to. Two tenants that share a counter reload their lists more often
/// than necessary.
const COUNTERS: usize = 1_024;

/// Counts how often devices have left places, tenant by tenant.
pub(crate) struct Departures {
    counters: Vec<AtomicU64>,
    hasher: RandomState,
}

impl Departures {
    pub(crate) fn new() -> Self {
        Self { counters: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(), hasher: RandomState::new() }
    }

    fn counter(&self, tenant: OrganizationId) -> &AtomicU64 {
        &self.counters[self.hasher.hash_one(tenant) as usize % COUNTERS]
    }

    /// Counts that a device of the tenant has left a place.
    pub(crate) fn note(&self, tenant: OrganizationId) {
        self.counter(tenant).fetch_add(1, Ordering::SeqCst);
    }

    /// Counts that devices of any tenant may have left their places.
    pub(crate) fn note_all(&self) {
        for counter in &self.counters {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Returns the tenant's counter, which grows whenever one of its devices leaves a place.
    pub(crate) fn count(&self, tenant: OrganizationId) -> u64 {
        self.counter(tenant).load(Ordering::SeqCst)
    }
}
