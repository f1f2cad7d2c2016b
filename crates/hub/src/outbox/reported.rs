//! The devices of which something waits that a list shows over what the registry says, by tenant: a list looks at none but
//! those of its own.

use std::collections::BTreeSet;

use isobar_model::ids::DeviceKey;
use rustc_hash::FxHashMap;

use super::queue::Tenant;

#[derive(Default)]
pub(super) struct ReportedDevices(FxHashMap<Tenant, BTreeSet<DeviceKey>>);

impl ReportedDevices {
    /// A device of a tenant is one of them from here on, or is none any more.
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

    /// Those of a tenant.
    pub fn of(&self, tenant: Tenant) -> impl Iterator<Item = DeviceKey> {
        self.0.get(&tenant).into_iter().flatten().copied()
    }
}
