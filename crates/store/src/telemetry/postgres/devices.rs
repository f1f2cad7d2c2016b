//! Devices in memory: the lock of each, and its state as its last commit left it.
//!
//! A state here may be outdated where other processes serve the same platform: what counts is the check at the commit.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use super::memory::DeviceMemory;

/// Bytes of a device in addition to its state.
const SLOT_BYTES: usize = 200;

/// A device in memory.
#[derive(Debug, Default)]
pub struct DeviceSlot {
    lock: Arc<tokio::sync::Mutex<()>>,
    /// Its state; `None` if it is not known.
    memory: Mutex<Option<Arc<DeviceMemory>>>,
}

/// A device that is locked as long as a copy of this lives: in the turn, and until its commit has an outcome.
#[derive(Clone, Debug)]
pub struct LockedDevice {
    pub device: i64,
    slot: Arc<DeviceSlot>,
    _guard: Arc<OwnedMutexGuard<()>>,
}

/// All devices in memory.
#[derive(Debug)]
pub struct DeviceSlots {
    slots: Mutex<HashMap<i64, Arc<DeviceSlot>>>,
    bytes: AtomicUsize,
    bytes_max: usize,
}

impl LockedDevice {
    /// Returns the state, if it is known.
    pub fn memory(&self) -> Option<Arc<DeviceMemory>> {
        self.slot.memory.lock().clone()
    }
}

impl DeviceSlots {
    /// Creates an empty table whose states take about this many bytes at most.
    pub fn new(bytes_max: usize) -> Self {
        Self { slots: Mutex::default(), bytes: AtomicUsize::new(0), bytes_max }
    }

    fn slot(&self, device: i64) -> Arc<DeviceSlot> {
        let mut slots = self.slots.lock();
        let slot = slots.entry(device).or_insert_with(|| {
            self.bytes.fetch_add(SLOT_BYTES, Ordering::Relaxed);
            Arc::default()
        });
        Arc::clone(slot)
    }

    /// Waits until the device is free, and locks it.
    pub async fn lock(&self, device: i64) -> LockedDevice {
        let slot = self.slot(device);
        let guard = Arc::clone(&slot.lock).lock_owned().await;
        LockedDevice { device, slot, _guard: Arc::new(guard) }
    }

    /// Locks the device if it is free, and its state is known.
    pub fn lock_now(&self, device: i64) -> Option<(LockedDevice, Arc<DeviceMemory>)> {
        let slot = Arc::clone(self.slots.lock().get(&device)?);
        let guard = Arc::clone(&slot.lock).try_lock_owned().ok()?;
        let memory = slot.memory.lock().clone()?;
        Some((LockedDevice { device, slot, _guard: Arc::new(guard) }, memory))
    }

    /// Replaces the state of a device; `None` means that it is not known any more.
    pub fn set(&self, locked: &LockedDevice, memory: Option<Arc<DeviceMemory>>) {
        let weight = |memory: &Option<Arc<DeviceMemory>>| memory.as_ref().map_or(0, |memory| memory.weight());
        let more = weight(&memory);
        let less = weight(&std::mem::replace(&mut *locked.slot.memory.lock(), memory));
        self.bytes.fetch_add(more, Ordering::Relaxed);
        self.bytes.fetch_sub(less, Ordering::Relaxed);
        if more > 0 && self.bytes.load(Ordering::Relaxed) > self.bytes_max {
            self.evict();
        }
    }

    /// Evicts devices that nobody uses, whichever come first, until a quarter of the bytes is free.
    fn evict(&self) {
        let mut slots = self.slots.lock();
        slots.retain(|_, slot| {
            let bytes = self.bytes.load(Ordering::Relaxed);
            // Nobody can get it meanwhile: the table is locked.
            if bytes <= self.bytes_max / 4 * 3 || Arc::strong_count(slot) > 1 {
                return true;
            }
            let weight = slot.memory.lock().as_ref().map_or(0, |memory| memory.weight());
            self.bytes.fetch_sub(SLOT_BYTES + weight, Ordering::Relaxed);
            false
        });
    }
}
