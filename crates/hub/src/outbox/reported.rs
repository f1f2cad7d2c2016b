//! Indexes the devices with pending reports by tenant, so that a list reads only those of its own tenant.

use std::collections::BTreeSet;

use isobar_model::ids::DeviceKey;
use rustc_hash::FxHashMap;

use super::queue::Tenant;

#[derive(Default)]
pub(super) struct ReportedDevices(FxHashMap<Tenant, BTreeSet<DeviceKey>>);

impl ReportedDevices {
    /// Adds a device to its tenant's devices, or removes it.
    pub fn set(&mut self, tenant: Tenant, device: DeviceKey, is_reported: bool) {
        if is_reported {
            self.0.entry(tenant).or_default().insert(device);
        } else if let Some(devices) = self.0.get_mut(&tenant) {
            devices.remove(&device);
            if devices.is_empty() {
                self.0.remove(&tenant);
            }
        }
    }

    /// Returns the devices of a tenant.
    pub fn of(&self, tenant: Tenant) -> impl Iterator<Item = DeviceKey> {
        self.0.get(&tenant).into_iter().flatten().copied()
    }
}
