//! Caches devices as the registry has them, because reading one device is the commonest read.
//!
//! A snapshot is valid only with the installed entry that it was loaded with, and only until that entry learns that the
//! row has changed. Retiring an entry therefore invalidates its snapshot too.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use isobar_model::access::CanRead;
use isobar_model::device::Device;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceRef};
use quick_cache::sync::Cache;

use super::Caches;
use super::entries::DeviceEntry;
use super::shared_entries::SharedEntry as _;

/// Cached devices, at most.
const SNAPSHOTS_MAX: usize = 16_384;
/// Attempts to read a device whose row keeps changing.
const SNAPSHOT_LOOKS_MAX: usize = 3;
/// Bytes of metadata of a cached device, at most: with the number of devices this bounds the memory.
const SNAPSHOT_META_BYTES_MAX: usize = 4_096;

/// A device as it was read, with the entry and the row version that make it valid.
#[derive(Clone)]
struct Snapshot {
    device: Arc<Device>,
    entry: Arc<DeviceEntry>,
    /// The version of the row that was read.
    row: u64,
}

/// Caches snapshots of devices.
pub(crate) struct DeviceSnapshots(Cache<DeviceId, Snapshot>);

impl DeviceSnapshots {
    pub(crate) fn new() -> Self {
        Self(Cache::new(SNAPSHOTS_MAX))
    }

    fn get(&self, entry: &Arc<DeviceEntry>) -> Option<Arc<Device>> {
        let snapshot = self.0.get(&entry.device.id)?;
        let holds = Arc::ptr_eq(&snapshot.entry, entry)
            && snapshot.row == entry.row.load(Ordering::Acquire)
            && entry.is_current();
        holds.then_some(snapshot.device)
    }
}

impl Caches {
    /// Returns the device as the registry has it, from the cache if its snapshot is valid.
    pub(crate) async fn device_snapshot(
        &self,
        permit: &CanRead<DeviceRef>,
        entry: &Arc<DeviceEntry>,
    ) -> Result<Arc<Device>> {
        if let Some(device) = self.snapshots.get(entry) {
            return Ok(device);
        }
        // Read before the row: a change in between makes the snapshot stale.
        let row = entry.row.load(Ordering::Acquire);
        let found = self.env.registry().device_fetch(permit).await?.ok_or(Error::Missing("device"))?;
        let device = Arc::new(found);
        if entry.is_current() && device.meta.bytes().len() <= SNAPSHOT_META_BYTES_MAX {
            let snapshot = Snapshot { device: Arc::clone(&device), entry: Arc::clone(entry), row };
            self.snapshots.0.insert(device.id, snapshot);
        }
        Ok(device)
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
