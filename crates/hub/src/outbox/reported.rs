//! Indexes the devices with pending reports by tenant, so that a list reads only those of its own tenant, and waits only
//! for what it shows.

use std::collections::BTreeSet;

use isobar_model::ids::DeviceKey;
use rustc_hash::FxHashMap;

use super::queue::Tenant;

/// Findings about devices that a list may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Status, labels and location.
    State,
    /// Alarms, and changes of them.
    Alarms,
}

/// The sequence of the oldest work of a device that is to be written, for each of [`Shown`].
pub(super) type Awaited = [Option<u64>; 2];

#[derive(Default)]
pub(super) struct ReportedDevices(FxHashMap<Tenant, TenantReports>);

#[derive(Default)]
struct TenantReports {
    devices: BTreeSet<DeviceKey>,
    awaited: [BTreeSet<u64>; 2],
}

impl ReportedDevices {
    /// Adds a device to its tenant's devices, or removes it, and replaces the sequences that are awaited.
    pub fn set(&mut self, tenant: Tenant, device: DeviceKey, is_reported: bool, (old, new): (Awaited, Awaited)) {
        if !is_reported && old == new && !self.0.contains_key(&tenant) {
            return;
        }
        let of = self.0.entry(tenant).or_default();
        match is_reported {
            true => drop(of.devices.insert(device)),
            false => drop(of.devices.remove(&device)),
        }
        for (awaited, (old, new)) in
            of.awaited.iter_mut().zip(old.into_iter().zip(new)).filter(|(_, (old, new))| old != new)
        {
            old.map(|old| awaited.remove(&old));
            awaited.extend(new);
        }
        if of.devices.is_empty() && of.awaited.iter().all(BTreeSet::is_empty) {
            self.0.remove(&tenant);
        }
    }

    /// Returns the devices of a tenant.
    pub fn of(&self, tenant: Tenant) -> impl Iterator<Item = DeviceKey> {
        self.0.get(&tenant).into_iter().flat_map(|of| &of.devices).copied()
    }

    /// Returns true if a tenant awaits nothing of this kind up to a sequence.
    pub fn is_caught_up(&self, tenant: Tenant, shown: Shown, sequence: u64) -> bool {
        let first = self.0.get(&tenant).and_then(|of| of.awaited[shown as usize].first());
        first.is_none_or(|first| *first > sequence)
    }
}
