//! Which tenants' devices have left a place: moved elsewhere, or gone. Whoever has found out what lies beneath an
//! organization looks here whether that still holds.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use isobar_model::ids::OrganizationId;

/// Counters among which tenants are spread. Two that share one find out again now and then what they knew.
const COUNTERS: usize = 1_024;

/// How often devices have left places, tenant by tenant.
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

    /// A device of the tenant has left a place; whoever is asked from here on says so.
    pub(crate) fn note(&self, tenant: OrganizationId) {
        self.counter(tenant).fetch_add(1, Ordering::SeqCst);
    }

    /// Grows whenever a device of the tenant leaves a place.
    pub(crate) fn count(&self, tenant: OrganizationId) -> u64 {
        self.counter(tenant).load(Ordering::SeqCst)
    }
}
