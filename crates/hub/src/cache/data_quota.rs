//! The meters of organizations with a data limit, and what a device may still store by those above it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use isobar_model::access::Lineage;
use isobar_model::ids::OrganizationId;
use isobar_model::organization::BYTES_PER_MB;
use isobar_store::registry::LimitedOrganization;
use parking_lot::{Mutex, MutexGuard};

/// What the subtree of an organization with a data limit has stored.
pub(crate) struct Meter {
    used: AtomicU64,
    limit: u64,
    over: AtomicBool,
}

impl Meter {
    fn new(used: u64, limit: u64) -> Self {
        Self { used: AtomicU64::new(used), limit, over: AtomicBool::new(used >= limit) }
    }

    fn add(&self, bytes: u64) {
        if self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) >= self.limit {
            self.over.store(true, Ordering::Relaxed);
        }
    }
}

/// The meters of the organizations above a device; nearly always none.
pub(crate) struct DataQuota(Box<[Arc<Meter>]>);

impl DataQuota {
    pub fn is_used_up(&self) -> bool {
        self.0.iter().any(|meter| meter.over.load(Ordering::Relaxed))
    }

    /// Whether nothing above the device has a data limit.
    pub fn is_unlimited(&self) -> bool {
        self.0.is_empty()
    }

    /// So many bytes more are stored.
    pub fn add(&self, bytes: u64) {
        self.0.iter().for_each(|meter| meter.add(bytes));
    }
}

/// The meters, by organization with a data limit.
#[derive(Default)]
pub(crate) struct Meters(Mutex<HashMap<OrganizationId, Arc<Meter>>>);

impl Meters {
    /// As long as this is held no meter is set.
    pub(crate) fn hold(&self) -> MutexGuard<'_, impl Sized> {
        self.0.lock()
    }

    /// The meters of the organizations on a lineage.
    pub(crate) fn quota_of(&self, lineage: &Lineage) -> DataQuota {
        let meters = self.0.lock();
        DataQuota(lineage.ids().iter().filter_map(|id| meters.get(id).cloned()).collect())
    }

    /// Sets the meters by what the registry knows; `count_unwritten` adds what it does not know yet. Meters whose limit has
    /// not changed are kept, for entries of devices look at them. Answers where there is another meter than before, or none
    /// any more.
    pub(crate) fn set(&self, limited: &[LimitedOrganization], count_unwritten: impl FnOnce()) -> Vec<OrganizationId> {
        let mut meters = self.0.lock();
        let (mut present, mut changed) = (HashMap::with_capacity(limited.len()), Vec::new());
        for organization in limited.iter().filter(|organization| organization.data_usage_mb_limit > 0.0) {
            let (id, used) = (organization.id, organization.bytes_stored);
            let limit = (organization.data_usage_mb_limit * BYTES_PER_MB) as u64;
            let meter = match meters.remove(&id) {
                Some(meter) if meter.limit == limit => {
                    meter.used.store(used, Ordering::Relaxed);
                    meter.over.store(used >= limit, Ordering::Relaxed);
                    meter
                }
                _ => {
                    changed.push(id);
                    Arc::new(Meter::new(used, limit))
                }
            };
            present.insert(id, meter);
        }
        changed.extend(meters.keys());
        *meters = present;
        count_unwritten();
        changed
    }
}
