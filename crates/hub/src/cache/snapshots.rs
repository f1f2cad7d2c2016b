//! Devices as the registry has them, kept for whoever asks again: reading one device is the commonest read.
//!
//! A snapshot holds only together with the installed entry that it was loaded beside, and as long as that entry was not
//! told that the row has changed. So whatever retires an entry ends its snapshot too.

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

/// Devices that are kept.
const SNAPSHOTS_MAX: usize = 16_384;
/// Looks at a device whose row changes again and again.
const SNAPSHOT_LOOKS_MAX: usize = 3;
/// Bytes of metadata of a device that is kept: with the number of devices it bounds the memory.
const SNAPSHOT_META_BYTES_MAX: usize = 4_096;

/// A device, and when that was so.
#[derive(Clone)]
struct Snapshot {
    device: Arc<Device>,
    entry: Arc<DeviceEntry>,
    /// The state of the row that was read.
    row: u64,
}

/// The snapshots that are kept.
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
    /// The device as the registry has it, without asking it when it is known.
    pub(crate) async fn device_snapshot(
        &self,
        permit: &CanRead<DeviceRef>,
        entry: &Arc<DeviceEntry>,
    ) -> Result<Arc<Device>> {
        if let Some(device) = self.snapshots.get(entry) {
            return Ok(device);
        }
        // Before the row is read: a change in between makes what was read old.
        let row = entry.row.load(Ordering::Acquire);
        let found = self.env.registry().device_fetch(permit).await?.ok_or(Error::Missing("device"))?;
        let device = Arc::new(found);
        if entry.is_current() && device.meta.bytes().len() <= SNAPSHOT_META_BYTES_MAX {
            let snapshot = Snapshot { device: Arc::clone(&device), entry: Arc::clone(entry), row };
            self.snapshots.0.insert(device.id, snapshot);
        }
        Ok(device)
    }

    /// The device as it is: the registry's row, and over it what runs have found out that is not written there yet.
    pub(crate) async fn device_now(&self, permit: &CanRead<DeviceRef>, entry: &Arc<DeviceEntry>) -> Result<Device> {
        let mut looks = 0;
        loop {
            let row = entry.row.load(Ordering::Acquire);
            // Before the row is read: what is not pending any more stands in the row then.
            let pending = self.outbox.pending(entry.device.key);
            let snapshot = self.device_snapshot(permit, entry).await?;
            looks += 1;
            // A row that changed in between is looked at again, so that nothing is seen that never was together.
            if row == entry.row.load(Ordering::Acquire) || looks >= SNAPSHOT_LOOKS_MAX {
                let mut device = (*snapshot).clone();
                pending.inspect(|pending| pending.apply_to(&mut device));
                return Ok(device);
            }
        }
    }

    /// The row of a device changed while its entry stays installed. To be called before anybody hears of the change.
    pub(crate) fn device_row_changed(&self, id: DeviceId) {
        if let Some(entry) = self.cached_device(id) {
            entry.row.fetch_add(1, Ordering::AcqRel);
        }
    }
}
