//! Caches devices in memory: sharded, with a bound in bytes that all tenants share. A device is evicted only if it is
//! unlocked and all its writes are durable, so that a reload never returns an older state than memory had.
//!
//! Without room, the tenant whose devices take most memory loses its least recently used one. If those devices must
//! stay, tenants with more than an equal share lose devices instead; a tenant with no more than that loses none, and
//! the cache exceeds its bound until the others can be evicted.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use isobar_model::ids::OrganizationId;
use isobar_quota::{LruPlace, NOBODY, TenantLru};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::super::bounds::device_cache;
use super::device::DeviceState;

/// Device in memory. Its runs queue for this lock: a run may have to wait for a load, so the lock is asynchronous.
type Device = AsyncMutex<CachedDevice>;

/// State of a device in memory, which may not be loaded yet.
pub struct CachedDevice {
    /// State, or `None` until it is loaded.
    pub state: Option<DeviceState>,
    key: u64,
    /// Place in the cache, with the device's tenant and weight.
    place: Arc<LruPlace>,
}

/// Cache of devices.
pub struct Devices(TenantLru<u64, Arc<Device>>);

/// Locked device.
pub struct Held(OwnedMutexGuard<CachedDevice>);

impl Held {
    /// Returns the device's number.
    pub fn key(&self) -> u64 {
        self.0.key
    }
}

impl Deref for Held {
    type Target = CachedDevice;

    fn deref(&self) -> &CachedDevice {
        &self.0
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut CachedDevice {
        &mut self.0
    }
}

impl Devices {
    /// Creates a cache of about this many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(TenantLru::new(device_cache(bytes)))
    }

    /// Adds a device, unless another caller was faster.
    fn come(&self, key: u64, tenant: OrganizationId, durable: u64) -> Arc<Device> {
        let mut change = self.0.change();
        if let Some(device) = self.0.get(&key) {
            return device;
        }
        let make = |place: &Arc<LruPlace>| {
            let place = Arc::clone(place);
            Arc::new(Device::new(CachedDevice { state: None, key, place }))
        };
        change.insert((key, tenant), 0, make, |_, device| is_idle(device, durable))
    }

    /// Locks a device for this tenant, if one is given; the device may not be loaded yet. `durable` is the newest
    /// durable ticket.
    pub async fn lock(&self, key: u64, tenant: Option<OrganizationId>, durable: u64) -> Held {
        let device = self.0.get(&key).unwrap_or_else(|| self.come(key, tenant.unwrap_or(NOBODY), durable));
        let kept = match Arc::clone(&device).try_lock_owned() {
            Ok(kept) => kept,
            Err(_) => Box::pin(device.lock_owned()).await,
        };
        self.charged(Held(kept), tenant)
    }

    /// Locks a device for this tenant, if it is loaded and unlocked.
    pub fn lock_now(&self, key: u64, tenant: Option<OrganizationId>) -> Option<Held> {
        let kept = self.0.get(&key)?.try_lock_owned().ok()?;
        kept.state.is_some().then(|| self.charged(Held(kept), tenant))
    }

    /// Locks a device if it is in memory.
    pub async fn lock_if_present(&self, key: u64) -> Option<Held> {
        let kept = self.0.peek(&key)?.lock_owned().await;
        kept.state.is_some().then_some(Held(kept))
    }

    /// Charges the device to this tenant: it may have belonged to another one when it was added.
    fn charged(&self, mut held: Held, tenant: Option<OrganizationId>) -> Held {
        if let Some(tenant) = tenant.filter(|tenant| *tenant != held.place.tenant()) {
            self.change_hands(&mut held, tenant);
        }
        held
    }

    #[cold]
    fn change_hands(&self, held: &mut Held, tenant: OrganizationId) {
        // A locked device is never evicted, so it is present.
        if let Some(place) = self.0.change().set_tenant(&held.key, tenant) {
            held.place = place;
        }
    }

    /// Updates the weights after a device's state changed. `durable` is the newest durable ticket.
    pub fn weigh(&self, held: &mut Held, durable: u64) {
        let weight = held.state.as_ref().map_or(0, DeviceState::weight);
        let before = held.place.set_weight(weight);
        if weight > before || (weight < before && held.place.is_to_settle()) {
            // Evicted devices are dropped after the lock is released.
            drop(self.0.settle(&held.place, |_, device| is_idle(device, durable)));
        }
    }
}

/// Returns true if a device is unlocked and all its writes are durable. No caller can lock it during an eviction: nobody
/// can look it up.
fn is_idle(device: &Arc<Device>, durable: u64) -> bool {
    if Arc::strong_count(device) > 1 {
        return false;
    }
    let Ok(kept) = device.try_lock() else { return false };
    kept.state.as_ref().is_none_or(|state| state.ticket <= durable)
}

#[cfg(test)]
mod tests;
