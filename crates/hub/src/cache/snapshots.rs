//! Caches devices as the registry has them, because reading one device is the commonest read.
//!
//! A snapshot is valid only with the installed entry that it was loaded with, and only until that entry learns that the
//! row has changed. Retiring an entry therefore invalidates its snapshot too.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use isobar_model::access::CanRead;
use isobar_model::device::Device;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceRef, OrganizationId};

use super::Caches;
use super::entries::DeviceEntry;
use super::loading_cache::CacheValue;

/// Bytes that cached devices may weigh: 16,384 devices of 2 KiB; a typical one weighs 1 to 1.5 KiB.
pub(super) const SNAPSHOTS_BYTES_MAX: usize = 32 << 20;
/// Approximate bytes of a cached device in addition to its texts.
const SNAPSHOT_BYTES: usize = 1 << 10;
/// Attempts to read a device whose row keeps changing.
const SNAPSHOT_LOOKS_MAX: usize = 3;

/// A device as it was read, with the entry and the row version that make it valid.
#[derive(Clone)]
pub(super) struct Snapshot {
    device: Arc<Device>,
    entry: Arc<DeviceEntry>,
    /// The version of the row that was read.
    row: u64,
}

impl CacheValue<DeviceId> for Snapshot {
    fn tenant(&self) -> OrganizationId {
        self.entry.lineage.top()
    }

    fn weight(&self) -> usize {
        let device = &*self.device;
        let address = device.street_address.iter().flat_map(|at| [&at.address, &at.city, &at.region, &at.country]);
        let texts = [&device.version, &device.protocol, &device.description].into_iter().chain(address).flatten();
        let texts = texts.chain([&device.name, &device.organization_name]).chain(&device.protocols);
        SNAPSHOT_BYTES + texts.map(String::len).sum::<usize>() + device.meta.bytes().len()
    }

    fn is_valid(&self) -> bool {
        self.row == self.entry.row.load(Ordering::Acquire) && self.entry.is_current()
    }
}

impl Caches {
    /// Returns the device as the registry has it, from the cache if its snapshot is valid.
    pub(crate) async fn device_snapshot(
        &self,
        permit: &CanRead<DeviceRef>,
        entry: &Arc<DeviceEntry>,
    ) -> Result<Arc<Device>> {
        if self.env.telemetry().shared().is_some() {
            // Other processes change the row too.
            return Ok(Arc::new(self.env.registry().device_fetch(permit).await?.ok_or(Error::Missing("device"))?));
        }
        let load = || async {
            // Read before the row: a change in between makes the snapshot stale.
            let row = entry.row.load(Ordering::Acquire);
            let found = self.env.registry().device_fetch(permit).await?;
            let snapshot = |device| Snapshot { device: Arc::new(device), entry: Arc::clone(entry), row };
            Ok::<_, Error>(found.map(snapshot))
        };
        let snapshot = self.snapshots.get_or_load(&entry.device.id, load).await?;
        Ok(snapshot.ok_or(Error::Missing("device"))?.device)
    }

    /// Returns the device with the pending changes of its runs applied over the registry's row.
    pub(crate) async fn device_now(&self, permit: &CanRead<DeviceRef>, entry: &Arc<DeviceEntry>) -> Result<Device> {
        let mut looks = 0;
        loop {
            let row = entry.row.load(Ordering::Acquire);
            // Read before the row: a change that is not pending any more is in the row by then.
            let pending = self.outbox.pending(entry.device.key);
            let snapshot = self.device_snapshot(permit, entry).await?;
            looks += 1;
            // A row that changed in between is read again, so that no mix of two versions is returned.
            if row == entry.row.load(Ordering::Acquire) || looks >= SNAPSHOT_LOOKS_MAX {
                let mut device = (*snapshot).clone();
                pending.inspect(|pending| pending.apply_to(&mut device));
                return Ok(device);
            }
        }
    }

    /// Notes that a device's row has changed while its entry stays installed. To be called before anyone learns of the
    /// change.
    pub(crate) fn device_row_changed(&self, id: DeviceId) {
        if let Some(entry) = self.cached_device(id) {
            entry.row.fetch_add(1, Ordering::AcqRel);
        }
    }
}
