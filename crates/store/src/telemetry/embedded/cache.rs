//! Caches devices in memory: sharded, with a bound in bytes that all tenants share. A device is evicted only if it is
//! unlocked and all its writes are durable, so that a reload never returns an older state than memory had.
//!
//! Without room, the tenant whose devices take most memory loses its least recently used one. If those devices must
//! stay, tenants with more than an equal share lose devices instead; a tenant with no more than that loses none, and
//! the cache exceeds its bound until the others can be evicted.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use isobar_model::ids::OrganizationId;
use isobar_quota::NOBODY;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::device::DeviceState;
use crate::by_use::{Asked, EntriesByUse, TenantWeight};

const SHARDS: u64 = 64;
/// Bounds the devices that are evicted each time one is added or grows.
const LEAVING_MAX: usize = 256;

/// Device in memory. Its runs queue for this lock: a run may have to wait for a load, so the lock is asynchronous.
type Device = AsyncMutex<CachedDevice>;

/// State of a device in memory, which may not be loaded yet.
pub struct CachedDevice {
    /// State, or `None` until it is loaded.
    pub state: Option<DeviceState>,
    key: u64,
    tenant: OrganizationId,
    /// Counter of its tenant's memory.
    counted: Arc<TenantWeight>,
    weight: usize,
}

struct CacheSlot {
    device: Arc<Device>,
    /// Position among the devices of its tenant.
    place: u64,
    /// True if it was used since the last attempt to evict it.
    used: bool,
}

type Shard = FxHashMap<u64, CacheSlot>;

/// Cache of devices.
pub struct Devices {
    shards: Vec<Mutex<Shard>>,
    weight: Arc<AtomicUsize>,
    weight_max: usize,
    /// Keys of all devices by their use. Locked before any shard, and only when devices are added, evicted or charged
    /// to another tenant, or when their weight has changed by much.
    by_use: Mutex<EntriesByUse<u64>>,
}

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
    pub fn new(weight_max: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let by_use = EntriesByUse::default();
        Self { shards, weight: by_use.weight_of_all(), weight_max, by_use: Mutex::new(by_use) }
    }

    fn shard(&self, key: u64) -> &Mutex<Shard> {
        &self.shards[(key % SHARDS) as usize]
    }

    fn is_full(&self) -> bool {
        self.weight.load(Ordering::Relaxed) > self.weight_max
    }

    /// Returns the device if it is in memory, and marks it as used.
    fn used(&self, key: u64) -> Option<Arc<Device>> {
        let mut shard = self.shard(key).lock();
        let slot = shard.get_mut(&key)?;
        slot.used = true;
        Some(Arc::clone(&slot.device))
    }

    /// Adds a device, unless another caller was faster.
    fn come(&self, key: u64, tenant: OrganizationId, durable: u64) -> Arc<Device> {
        let mut by_use = self.by_use.lock();
        if let Some(device) = self.used(key) {
            return device;
        }
        let (counted, place) = by_use.add(tenant, key);
        let device = Arc::new(Device::new(CachedDevice { state: None, key, tenant, counted, weight: 0 }));
        let slot = CacheSlot { device: Arc::clone(&device), place, used: false };
        self.shard(key).lock().insert(key, slot);
        self.make_room(by_use, durable);
        device
    }

    /// Evicts devices while the cache exceeds its bound.
    fn make_room(&self, mut by_use: MutexGuard<'_, EntriesByUse<u64>>, durable: u64) {
        let mut gone = Vec::new();
        while self.is_full() && gone.len() < LEAVING_MAX {
            let part = self.weight_max / by_use.tenants().max(1);
            let leaves = |key: &u64, asked| self.leave(*key, asked, durable).map(|slot| gone.push(slot)).is_some();
            if by_use.retire_next(part, leaves).is_none() {
                break;
            }
        }
        // Release the lock before evicted devices are dropped.
        drop(by_use);
    }

    /// Evicts a device, unless it must stay or is spared.
    fn leave(&self, key: u64, asked: Asked, durable: u64) -> Option<CacheSlot> {
        let mut shard = self.shard(key).lock();
        let slot = shard.get_mut(&key)?;
        let is_spared = std::mem::take(&mut slot.used) && asked.spares_used;
        if is_spared || !uncount_if_idle(&slot.device, durable) {
            slot.place = asked.place;
            return None;
        }
        shard.remove(&key)
    }

    /// Locks a device for this tenant, if one is given; the device may not be loaded yet. `durable` is the newest
    /// durable ticket.
    pub async fn lock(&self, key: u64, tenant: Option<OrganizationId>, durable: u64) -> Held {
        let device = self.used(key).unwrap_or_else(|| self.come(key, tenant.unwrap_or(NOBODY), durable));
        let kept = match Arc::clone(&device).try_lock_owned() {
            Ok(kept) => kept,
            Err(_) => Box::pin(device.lock_owned()).await,
        };
        self.charged(Held(kept), tenant)
    }

    /// Locks a device for this tenant, if it is loaded and unlocked.
    pub fn lock_now(&self, key: u64, tenant: Option<OrganizationId>) -> Option<Held> {
        let kept = self.used(key)?.try_lock_owned().ok()?;
        kept.state.is_some().then(|| self.charged(Held(kept), tenant))
    }

    /// Locks a device if it is in memory.
    pub async fn lock_if_present(&self, key: u64) -> Option<Held> {
        let device = self.shard(key).lock().get(&key).map(|slot| Arc::clone(&slot.device))?;
        let kept = device.lock_owned().await;
        kept.state.is_some().then_some(Held(kept))
    }

    /// Charges the device to this tenant: it may have belonged to another one when it was added.
    fn charged(&self, mut held: Held, tenant: Option<OrganizationId>) -> Held {
        if let Some(tenant) = tenant.filter(|tenant| *tenant != held.tenant) {
            self.change_hands(&mut held, tenant);
        }
        held
    }

    #[cold]
    fn change_hands(&self, held: &mut Held, tenant: OrganizationId) {
        let mut by_use = self.by_use.lock();
        // A locked device is never evicted, so it is present.
        if let Some(slot) = self.shard(held.key).lock().get_mut(&held.key) {
            let (counted, place) = by_use.add(tenant, held.key);
            counted.change(0, held.weight);
            held.counted.change(held.weight, 0);
            by_use.remove(held.tenant, std::mem::replace(&mut slot.place, place));
            by_use.note(tenant);
            (held.tenant, held.counted) = (tenant, counted);
        }
    }

    /// Updates the weights after a device's state changed. `durable` is the newest durable ticket.
    pub fn weigh(&self, held: &mut Held, durable: u64) {
        let weight = held.state.as_ref().map_or(0, DeviceState::weight);
        let before = std::mem::replace(&mut held.weight, weight);
        if weight == before {
            return;
        }
        held.counted.change(before, weight);
        if held.counted.is_to_note() || (weight > before && self.is_full()) {
            let mut by_use = self.by_use.lock();
            by_use.note(held.tenant);
            self.make_room(by_use, durable);
        }
    }
}

/// Subtracts a device's weight if it is unlocked and all its writes are durable; returns true if so. No caller can lock
/// it meanwhile: its shard is locked.
fn uncount_if_idle(device: &Arc<Device>, durable: u64) -> bool {
    if Arc::strong_count(device) > 1 {
        return false;
    }
    let Ok(kept) = device.try_lock() else { return false };
    let is_durable = kept.state.as_ref().is_none_or(|state| state.ticket <= durable);
    if is_durable {
        kept.counted.change(kept.weight, 0);
    }
    is_durable
}

#[cfg(test)]
mod tests;
