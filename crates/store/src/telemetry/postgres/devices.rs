//! Devices in memory: the lock of each, and its state as its last commit left it.
//!
//! A state here may be outdated where other processes serve the same platform: what counts is the check at the commit.

use std::sync::Arc;

use isobar_model::ids::OrganizationId;
use isobar_quota::{LruPlace, NOBODY, TenantLru};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use super::super::bounds::device_cache;
use super::memory::DeviceMemory;

/// Bytes of a device in addition to its state.
const SLOT_BYTES: usize = 200;

/// A device in memory.
#[derive(Debug)]
pub struct DeviceSlot {
    lock: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<SlotState>,
}

#[derive(Debug)]
struct SlotState {
    /// State of the device; `None` if it is not known.
    memory: Option<Arc<DeviceMemory>>,
    /// Place in the cache, with the device's tenant and weight.
    place: Arc<LruPlace>,
}

/// A device that is locked as long as a copy of this lives: in the turn, and until its commit has an outcome.
#[derive(Clone, Debug)]
pub struct LockedDevice {
    pub device: i64,
    slot: Arc<DeviceSlot>,
    _guard: Arc<OwnedMutexGuard<()>>,
}

impl LockedDevice {
    /// Returns the state, if it is known.
    pub fn memory(&self) -> Option<Arc<DeviceMemory>> {
        self.slot.state.lock().memory.clone()
    }
}

/// All devices in memory. One that is used stays.
pub struct DeviceSlots(TenantLru<i64, Arc<DeviceSlot>>);

impl DeviceSlots {
    /// Creates an empty table whose states take about this many bytes at most.
    pub fn new(bytes: usize) -> Self {
        Self(TenantLru::new(device_cache(bytes)))
    }

    /// Adds a device, unless another caller was faster.
    fn come(&self, device: i64, tenant: OrganizationId) -> Arc<DeviceSlot> {
        let mut change = self.0.change();
        if let Some(slot) = self.0.get(&device) {
            return slot;
        }
        let make = |place: &Arc<LruPlace>| {
            let state = SlotState { memory: None, place: Arc::clone(place) };
            Arc::new(DeviceSlot { lock: Arc::default(), state: Mutex::new(state) })
        };
        change.insert((device, tenant), SLOT_BYTES, make, is_idle)
    }

    /// Waits until the device is free, and locks it for this tenant, if one is given.
    pub async fn lock(&self, device: i64, tenant: Option<OrganizationId>) -> LockedDevice {
        let slot = self.0.get(&device).unwrap_or_else(|| self.come(device, tenant.unwrap_or(NOBODY)));
        let guard = Arc::clone(&slot.lock).lock_owned().await;
        let locked = LockedDevice { device, slot, _guard: Arc::new(guard) };
        self.charge(&locked, tenant);
        locked
    }

    /// Locks the device for this tenant if it is free, and its state is known.
    pub fn lock_now(&self, device: i64, tenant: Option<OrganizationId>) -> Option<(LockedDevice, Arc<DeviceMemory>)> {
        let slot = self.0.get(&device)?;
        let guard = Arc::clone(&slot.lock).try_lock_owned().ok()?;
        let locked = LockedDevice { device, slot, _guard: Arc::new(guard) };
        let memory = locked.memory()?;
        self.charge(&locked, tenant);
        Some((locked, memory))
    }

    /// Charges the device to this tenant: it may have belonged to another one when it was added.
    fn charge(&self, locked: &LockedDevice, tenant: Option<OrganizationId>) {
        let Some(tenant) = tenant else { return };
        if locked.slot.state.lock().place.tenant() == tenant {
            return;
        }
        // A locked device is never evicted, so it is present.
        if let Some(place) = self.0.change().set_tenant(&locked.device, tenant) {
            locked.slot.state.lock().place = place;
        }
    }

    /// Replaces the state of a device; `None` means that it is not known any more.
    pub fn set(&self, locked: &LockedDevice, memory: Option<Arc<DeviceMemory>>) {
        let weight = SLOT_BYTES + memory.as_ref().map_or(0, |memory| memory.weight());
        let (place, replaced) = {
            let mut state = locked.slot.state.lock();
            (Arc::clone(&state.place), std::mem::replace(&mut state.memory, memory))
        };
        drop(replaced);
        let before = place.set_weight(weight);
        if weight > before || place.is_to_settle() {
            drop(self.0.settle(&place, is_idle));
        }
    }
}

/// Returns true if nobody uses the device. Nobody can look it up during an eviction.
fn is_idle(_: &i64, slot: &Arc<DeviceSlot>) -> bool {
    Arc::strong_count(slot) == 1
}
