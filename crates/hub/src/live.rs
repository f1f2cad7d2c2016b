//! Committed events on their way to those who wait for them: event streams and long polls.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use isobar_model::access::Lineage;
use isobar_model::event::Event;
use isobar_model::ids::DeviceKey;
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast};

/// Events that a slow stream may lag behind before it has to catch up from history.
const STREAM_BUFFER_EVENTS: usize = 4_096;
/// Locks among which the waiting polls are spread.
const SHARDS: usize = 16;

/// A committed event, and where its device belongs.
#[derive(Clone)]
pub(crate) struct LiveEvent {
    pub event: Arc<Event>,
    pub lineage: Lineage,
}

/// Tells who waits.
pub(crate) struct Live {
    streams: broadcast::Sender<LiveEvent>,
    polls: [Mutex<HashMap<DeviceKey, Weak<Notify>>>; SHARDS],
}

impl Live {
    pub(crate) fn new() -> Self {
        Self {
            streams: broadcast::Sender::new(STREAM_BUFFER_EVENTS),
            polls: std::array::from_fn(|_| Mutex::new(HashMap::new())),
        }
    }

    /// Whether anybody listens to events at all.
    pub(crate) fn has_streams(&self) -> bool {
        self.streams.receiver_count() > 0
    }

    /// Hands a committed event to every stream.
    pub(crate) fn publish(&self, event: LiveEvent) {
        // Without a receiver there is nobody to tell.
        let _ = self.streams.send(event);
    }

    /// From now on every committed event.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<LiveEvent> {
        self.streams.subscribe()
    }

    /// What is notified when a cloud event is queued for the device. It lives as long as somebody holds it.
    pub(crate) fn queue_bell(&self, device: DeviceKey) -> Arc<Notify> {
        let mut polls = self.polls[device.0 as usize % SHARDS].lock();
        if let Some(bell) = polls.get(&device).and_then(Weak::upgrade) {
            return bell;
        }
        // Bells that nobody holds are swept when a new one is hung up, so their number follows those who wait.
        polls.retain(|_, bell| bell.strong_count() > 0);
        let bell = Arc::new(Notify::new());
        polls.insert(device, Arc::downgrade(&bell));
        bell
    }

    /// A cloud event was queued for the device.
    pub(crate) fn ring(&self, device: DeviceKey) {
        let polls = self.polls[device.0 as usize % SHARDS].lock();
        if let Some(bell) = polls.get(&device).and_then(Weak::upgrade) {
            bell.notify_waiters();
        }
    }
}
