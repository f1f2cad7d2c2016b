//! Wakes long polls: a bell for each device whose queue somebody waits at.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use isobar_model::ids::DeviceKey;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Locks among which the waiting polls are spread.
const BELL_SHARDS: usize = 16;

/// Tells who waits.
pub(crate) struct QueueBells {
    polls: [Mutex<HashMap<DeviceKey, Weak<Notify>>>; BELL_SHARDS],
}

impl QueueBells {
    pub(crate) fn new() -> Self {
        Self { polls: std::array::from_fn(|_| Mutex::new(HashMap::new())) }
    }

    /// Returns the bell that rings when a cloud event is queued for the device, or its token ends. The bell exists as long
    /// as a caller holds it.
    pub(crate) fn queue_bell(&self, device: DeviceKey) -> Arc<Notify> {
        let mut polls = self.polls[device.0 as usize % BELL_SHARDS].lock();
        if let Some(bell) = polls.get(&device).and_then(Weak::upgrade) {
            return bell;
        }
        // Bells that nobody holds are swept when a new one is hung up, so their number follows those who wait.
        polls.retain(|_, bell| bell.strong_count() > 0);
        let bell = Arc::new(Notify::new());
        polls.insert(device, Arc::downgrade(&bell));
        bell
    }

    /// Returns the devices at whose queues somebody waits.
    pub(crate) fn waiting(&self) -> Vec<DeviceKey> {
        let mut waiting = Vec::new();
        for polls in &self.polls {
            let polls = polls.lock();
            waiting.extend(polls.iter().filter(|(_, bell)| bell.strong_count() > 0).map(|(device, _)| *device));
        }
        waiting
    }

    /// A cloud event was queued for the device, or its token has ended.
    pub(crate) fn ring(&self, device: DeviceKey) {
        let polls = self.polls[device.0 as usize % BELL_SHARDS].lock();
        if let Some(bell) = polls.get(&device).and_then(Weak::upgrade) {
            bell.notify_waiters();
        }
    }
}
