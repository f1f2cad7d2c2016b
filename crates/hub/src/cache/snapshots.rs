//! Devices as the registry has them, kept for whoever asks again: reading one device is the commonest read.
//!
//! What is kept holds only together with the entry in force that it was loaded beside, and as long as that entry was not
//! told that the row has changed. So whatever takes an entry out of force ends this too.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use isobar_model::access::CanRead;
use isobar_model::device::Device;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceRef};
use quick_cache::sync::Cache;

use crate::Hub;
use crate::cache::entries::DeviceEntry;
use crate::error::Told as _;

/// Devices that are kept.
const DEVICES_MAX: usize = 16_384;
/// Looks at a device whose row changes again and again.
const LOOKS_MAX: usize = 3;
/// Bytes of metadata of a device that is kept: with the number of devices it bounds the memory.
const META_BYTES_MAX: usize = 4_096;

/// A device, and when that was so.
#[derive(Clone)]
struct Look {
    device: Arc<Device>,
    entry: Arc<DeviceEntry>,
    /// The state of the row that was read.
    row: u64,
}

/// The devices that were looked at.
pub(crate) struct Shown(Cache<DeviceId, Look>);

impl Shown {
    pub(crate) fn new() -> Self {
        Self(Cache::new(DEVICES_MAX))
    }

    fn get(&self, entry: &Arc<DeviceEntry>) -> Option<Arc<Device>> {
        let look = self.0.get(&entry.device.id)?;
        let holds = Arc::ptr_eq(&look.entry, entry) && look.row == entry.row.load(Ordering::Acquire) && entry.fresh();
        holds.then_some(look.device)
    }
}

impl Hub {
    /// The device as the registry has it, without asking it when it is known.
    pub(crate) async fn device_shown(
        &self,
        pass: &CanRead<DeviceRef>,
        entry: &Arc<DeviceEntry>,
    ) -> Result<Arc<Device>> {
        if let Some(device) = self.0.shown.get(entry) {
            return Ok(device);
        }
        // Before the row is read: a change in between makes what was read old.
        let row = entry.row.load(Ordering::Acquire);
        let found = self.0.registry.device_fetch(pass).await.told()?.ok_or(Error::Missing("device"))?;
        let device = Arc::new(found);
        if entry.fresh() && device.meta.bytes().len() <= META_BYTES_MAX {
            let look = Look { device: Arc::clone(&device), entry: Arc::clone(entry), row };
            self.0.shown.0.insert(device.id, look);
        }
        Ok(device)
    }

    /// The device as it is: what its runs have found out, whether the registry was told of it or not.
    pub(crate) async fn device_now(&self, pass: &CanRead<DeviceRef>, entry: &Arc<DeviceEntry>) -> Result<Device> {
        let mut looks = 0;
        loop {
            let row = entry.row.load(Ordering::Acquire);
            // Before the row is read: what is not told of any more stands in the row then.
            let untold = self.0.outbox.untold(entry.device.key);
            let shown = self.device_shown(pass, entry).await?;
            looks += 1;
            // A row that changed in between is looked at again, so that nothing is seen that never was together.
            if row == entry.row.load(Ordering::Acquire) || looks >= LOOKS_MAX {
                let mut device = (*shown).clone();
                untold.inspect(|untold| untold.over(&mut device));
                return Ok(device);
            }
        }
    }

    /// The row of a device changed while its entry stays in force. To be told before anybody is told of the change.
    pub(crate) fn device_row_changed(&self, id: DeviceId) {
        if let Some(entry) = self.cached_device(id) {
            entry.row.fetch_add(1, Ordering::AcqRel);
        }
    }
}
