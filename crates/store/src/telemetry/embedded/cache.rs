//! The devices that are in memory: sharded, and bounded by bytes. A device leaves only when nobody holds it and all that
//! it wrote is durable, so that what is loaded again is never older than what was in memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::device::DeviceState;

const SHARDS: u64 = 64;
/// Devices looked at for one that may leave, each time that one comes.
const EVICTION_TRIES_MAX: usize = 16;

/// A device in memory. Its runs queue here: a run may have to wait for a load, so the lock is one that awaits.
#[derive(Default)]
pub struct Device {
    /// None until it is loaded.
    state: Arc<AsyncMutex<Option<DeviceState>>>,
    /// The newest ticket that it sent.
    ticket: AtomicU64,
    weight: AtomicUsize,
    used: AtomicBool,
}

#[derive(Default)]
struct Shard {
    devices: FxHashMap<u64, Arc<Device>>,
    /// Whom to look at next for eviction.
    clock: VecDeque<u64>,
}

/// All devices in memory.
pub struct Devices {
    shards: Vec<Mutex<Shard>>,
    weight: AtomicUsize,
    weight_max: usize,
}

/// A device that is locked.
pub struct Held {
    device: Arc<Device>,
    /// Its state; none until it is loaded.
    pub state: OwnedMutexGuard<Option<DeviceState>>,
}

impl Devices {
    /// A cache that holds about so many bytes.
    pub fn new(weight_max: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, weight: AtomicUsize::new(0), weight_max }
    }

    fn shard(&self, key: u64) -> &Mutex<Shard> {
        &self.shards[(key % SHARDS) as usize]
    }

    fn entry(&self, key: u64, durable: u64) -> Arc<Device> {
        let mut shard = self.shard(key).lock();
        if let Some(device) = shard.devices.get(&key) {
            device.used.store(true, Ordering::Relaxed);
            return device.clone();
        }
        if self.weight.load(Ordering::Relaxed) > self.weight_max {
            self.evict(&mut shard, durable);
        }
        let device = Arc::new(Device::default());
        shard.devices.insert(key, device.clone());
        shard.clock.push_back(key);
        device
    }

    /// Second chance: whoever was used since the last look stays.
    fn evict(&self, shard: &mut Shard, durable: u64) {
        for _ in 0..EVICTION_TRIES_MAX.min(shard.clock.len()) {
            let Some(key) = shard.clock.pop_front() else { return };
            let Some(device) = shard.devices.get(&key) else { continue };
            let idle = Arc::strong_count(device) == 1
                && Arc::strong_count(&device.state) == 1
                && device.ticket.load(Ordering::Acquire) <= durable;
            if idle && !device.used.swap(false, Ordering::Relaxed) {
                self.weight.fetch_sub(device.weight.load(Ordering::Relaxed), Ordering::Relaxed);
                shard.devices.remove(&key);
                if self.weight.load(Ordering::Relaxed) <= self.weight_max {
                    return;
                }
            } else {
                shard.clock.push_back(key);
            }
        }
    }

    /// Locks a device; it may not be loaded yet. `durable` is the newest durable ticket.
    pub async fn lock(&self, key: u64, durable: u64) -> Held {
        let device = self.entry(key, durable);
        let state = match device.state.clone().try_lock_owned() {
            Ok(state) => state,
            Err(_) => Box::pin(device.state.clone().lock_owned()).await,
        };
        Held { device, state }
    }

    /// Locks a device, if it is loaded and nobody holds it.
    pub fn lock_now(&self, key: u64, durable: u64) -> Option<Held> {
        let device = self.entry(key, durable);
        let state = device.state.clone().try_lock_owned().ok()?;
        state.is_some().then_some(Held { device, state })
    }

    /// Locks a device if it is in memory.
    pub async fn lock_if_present(&self, key: u64) -> Option<Held> {
        let device = self.shard(key).lock().devices.get(&key).cloned()?;
        let state = device.state.clone().lock_owned().await;
        state.is_some().then_some(Held { device, state })
    }

    /// Keeps the books after a device's state changed and a commit was sent for it.
    pub fn sent(&self, held: &Held, ticket: u64) {
        held.device.ticket.store(ticket, Ordering::Release);
        self.weigh(held);
    }

    /// Keeps the books after a device's state changed.
    pub fn weigh(&self, held: &Held) {
        let weight = held.state.as_ref().map_or(0, DeviceState::weight);
        let before = held.device.weight.swap(weight, Ordering::Relaxed);
        if weight != before {
            self.weight.fetch_add(weight.wrapping_sub(before), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn visit(devices: &Devices, key: u64, ticket: u64) {
        let mut held = devices.lock(key, 0).await;
        held.state.get_or_insert_with(DeviceState::default);
        devices.sent(&held, ticket);
    }

    #[tokio::test]
    async fn what_is_not_durable_stays_and_the_rest_is_bounded() {
        let devices = Devices::new(100 * DeviceState::default().weight());
        visit(&devices, 0, 1).await;
        for key in 1..10_000 {
            visit(&devices, key, 0).await;
        }
        let count: usize = devices.shards.iter().map(|shard| shard.lock().devices.len()).sum();
        assert!(count < 300, "{count}");
        assert!(devices.lock_if_present(0).await.is_some());
    }

    #[tokio::test]
    async fn who_is_held_stays() {
        let devices = Devices::new(0);
        let held = devices.lock(7, 0).await;
        for key in 0..1_000 {
            visit(&devices, key * SHARDS + 7 + SHARDS, 0).await;
        }
        assert!(Arc::ptr_eq(&held.device, &devices.entry(7, 0)));
    }
}
