//! Counts the bytes stored beneath organizations with a data limit, and tells if a device may still store values.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use isobar_model::access::Lineage;
use isobar_model::ids::OrganizationId;
use isobar_model::organization::BYTES_PER_MB;
use isobar_store::registry::LimitedOrganization;
use parking_lot::{Mutex, MutexGuard};

/// Counts the bytes that the devices beneath an organization with a data limit have stored.
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

/// Holds the meters of the organizations above a device; nearly always there are none.
pub(crate) struct DataQuota(Box<[Arc<Meter>]>);

impl DataQuota {
    pub fn is_used_up(&self) -> bool {
        self.0.iter().any(|meter| meter.over.load(Ordering::Relaxed))
    }

    /// Returns true if no organization above the device has a data limit.
    pub fn is_unlimited(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds newly stored bytes to each meter.
    pub fn add(&self, bytes: u64) {
        self.0.iter().for_each(|meter| meter.add(bytes));
    }
}

/// Maps each organization with a data limit to its meter.
#[derive(Default)]
pub(crate) struct Meters(Mutex<HashMap<OrganizationId, Arc<Meter>>>);

impl Meters {
    /// Locks the meters: no meter is replaced while the guard lives.
    pub(crate) fn hold(&self) -> MutexGuard<'_, impl Sized> {
        self.0.lock()
    }

    /// Returns true if the limit of any organization is reached.
    pub(crate) fn is_any_over(&self) -> bool {
        self.0.lock().values().any(|meter| meter.over.load(Ordering::Relaxed))
    }

    /// Returns the meters of the organizations on a lineage.
    pub(crate) fn quota_of(&self, lineage: &Lineage) -> DataQuota {
        let meters = self.0.lock();
        DataQuota(lineage.ids().iter().filter_map(|id| meters.get(id).cloned()).collect())
    }

    /// Replaces the meters by the registry's figures; `count_unwritten` adds the bytes that the registry does not know
    /// yet. Meters whose limit has not changed stay the same objects, because entries of devices point to them. Returns
    /// the organizations whose meter was replaced or removed.
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
