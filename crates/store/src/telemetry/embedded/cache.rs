//! The devices that are in memory: sharded, and bounded by bytes. A device leaves only when nobody holds it and all that
//! it wrote is durable, so that what is loaded again is never older than what was in memory.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::device::DeviceState;

const SHARDS: u64 = 64;
/// Devices of a shard that are looked at for those that may leave, each time that one comes or grows.
const EVICTION_TRIES_MAX: usize = 16;

/// A device in memory. Its runs queue here: a run may have to wait for a load, so the lock is one that awaits.
type Device = AsyncMutex<CachedDevice>;

/// A device in memory, as far as it is loaded.
#[derive(Default)]
pub struct CachedDevice {
    /// None until it is loaded.
    pub state: Option<DeviceState>,
    weight: usize,
}

#[derive(Default)]
struct CacheSlot {
    device: Arc<Device>,
    /// Since the last look.
    used: bool,
}

#[derive(Default)]
struct Shard {
    devices: FxHashMap<u64, CacheSlot>,
    /// Whom to look at next for eviction.
    clock: VecDeque<u64>,
}

/// All devices in memory.
pub struct Devices {
    shards: Vec<Mutex<Shard>>,
    weight: AtomicUsize,
    weight_max: usize,
    /// The shard to look at next for eviction.
    next: AtomicUsize,
}

/// A device that is locked.
pub struct Held(OwnedMutexGuard<CachedDevice>);

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
    /// A cache that holds about so many bytes.
    pub fn new(weight_max: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, weight: AtomicUsize::new(0), weight_max, next: AtomicUsize::new(0) }
    }

    fn shard(&self, key: u64) -> &Mutex<Shard> {
        &self.shards[(key % SHARDS) as usize]
    }

    fn device(&self, key: u64, durable: u64) -> Arc<Device> {
        let mut shard = self.shard(key).lock();
        if let Some(slot) = shard.devices.get_mut(&key) {
            slot.used = true;
            return Arc::clone(&slot.device);
        }
        let slot = CacheSlot::default();
        let device = Arc::clone(&slot.device);
        shard.devices.insert(key, slot);
        shard.clock.push_back(key);
        drop(shard);
        self.make_room(durable);
        device
    }

    /// Has devices leave while all together weigh too much, of one shard after the other.
    fn make_room(&self, durable: u64) {
        for _ in 0..SHARDS {
            if self.weight.load(Ordering::Relaxed) <= self.weight_max {
                return;
            }
            let next = self.next.fetch_add(1, Ordering::Relaxed) as u64;
            self.evict(&mut self.shard(next).lock(), durable);
        }
    }

    /// Second chance: whoever was used since the last look stays.
    fn evict(&self, shard: &mut Shard, durable: u64) {
        for _ in 0..EVICTION_TRIES_MAX.min(shard.clock.len()) {
            let Some(key) = shard.clock.pop_front() else { return };
            let Some(slot) = shard.devices.get_mut(&key) else { continue };
            let was_used = std::mem::take(&mut slot.used);
            match idle_weight(&slot.device, durable) {
                Some(weight) if !was_used => {
                    self.weight.fetch_sub(weight, Ordering::Relaxed);
                    shard.devices.remove(&key);
                    if self.weight.load(Ordering::Relaxed) <= self.weight_max {
                        return;
                    }
                }
                _ => shard.clock.push_back(key),
            }
        }
    }

    /// Locks a device; it may not be loaded yet. `durable` is the newest durable ticket.
    pub async fn lock(&self, key: u64, durable: u64) -> Held {
        let device = self.device(key, durable);
        match Arc::clone(&device).try_lock_owned() {
            Ok(kept) => Held(kept),
            Err(_) => Held(Box::pin(device.lock_owned()).await),
        }
    }

    /// Locks a device, if it is loaded and nobody holds it.
    pub fn lock_now(&self, key: u64, durable: u64) -> Option<Held> {
        let kept = self.device(key, durable).try_lock_owned().ok()?;
        kept.state.is_some().then_some(Held(kept))
    }

    /// Locks a device if it is in memory.
    pub async fn lock_if_present(&self, key: u64) -> Option<Held> {
        let device = self.shard(key).lock().devices.get(&key).map(|slot| Arc::clone(&slot.device))?;
        let kept = device.lock_owned().await;
        kept.state.is_some().then_some(Held(kept))
    }

    /// Keeps the books after a device's state changed. `durable` is the newest durable ticket.
    pub fn weigh(&self, held: &mut Held, durable: u64) {
        let weight = held.state.as_ref().map_or(0, DeviceState::weight);
        let before = std::mem::replace(&mut held.weight, weight);
        if weight != before {
            self.weight.fetch_add(weight.wrapping_sub(before), Ordering::Relaxed);
        }
        if weight > before {
            self.make_room(durable);
        }
    }
}

/// What a device weighs, if nobody holds it and all that it wrote is durable. Nobody can come to hold it meanwhile: its
/// shard is locked.
fn idle_weight(device: &Arc<Device>, durable: u64) -> Option<usize> {
    if Arc::strong_count(device) > 1 {
        return None;
    }
    let kept = device.try_lock().ok()?;
    let ticket = kept.state.as_ref().map_or(0, |state| state.ticket);
    (ticket <= durable).then_some(kept.weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn visit(devices: &Devices, key: u64, ticket: u64) {
        let mut held = devices.lock(key, 0).await;
        held.state.get_or_insert_with(DeviceState::default).ticket = ticket;
        devices.weigh(&mut held, 0);
    }

    /// Devices in memory, and what they weigh.
    fn count(devices: &Devices) -> (usize, usize) {
        let count = devices.shards.iter().map(|shard| shard.lock().devices.len()).sum();
        (count, devices.weight.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn what_is_not_durable_stays_and_the_rest_is_bounded() {
        let devices = Devices::new(100 * DeviceState::default().weight());
        visit(&devices, 0, 1).await;
        for key in 1..10_000 {
            visit(&devices, key, 0).await;
        }
        let (count, _) = count(&devices);
        assert!(count <= 101, "{count}");
        assert!(devices.lock_if_present(0).await.is_some());
    }

    #[tokio::test]
    async fn whoever_grows_makes_others_leave_in_all_shards() {
        const MAX: usize = 8 << 20;
        let devices = Devices::new(MAX);
        for key in 0..SHARDS {
            let mut held = devices.lock(key, 0).await;
            let state = held.state.insert(DeviceState::default());
            state.states.push(("large".into(), vec![0; MAX / 8].into()));
            state.count_texts();
            devices.weigh(&mut held, 0);
            drop(held);
            let (_, weight) = count(&devices);
            assert!(weight <= MAX + MAX / 8 + 1_000, "{weight} bytes after {key}");
        }
        // Nobody comes, and one that is there grows.
        let mut held = devices.lock(SHARDS - 1, 0).await;
        let state = held.state.as_mut().unwrap();
        state.states.push(("larger".into(), vec![0; MAX / 2].into()));
        state.count_texts();
        devices.weigh(&mut held, 0);
        let (count, weight) = count(&devices);
        assert!(count > 1 && weight <= MAX, "{weight} bytes of {count} devices");
    }

    #[tokio::test]
    async fn who_is_held_stays() {
        let devices = Devices::new(0);
        let held = devices.lock(7, 0).await;
        for key in 0..1_000 {
            visit(&devices, key * SHARDS + 7 + SHARDS, 0).await;
        }
        assert!(Arc::ptr_eq(OwnedMutexGuard::mutex(&held.0), &devices.device(7, 0)));
    }
}
