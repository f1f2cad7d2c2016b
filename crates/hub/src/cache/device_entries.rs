//! The cache of device entries: of each device at most one is installed, and runs go by that one alone.
//!
//! A run changes what its entry says of the device (status, meta, settings), so two entries of one device would each
//! miss what the other learns. An entry that leaves the cache is retired where it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use isobar_model::ids::DeviceId;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, UnitWeighter};

use super::entries::DeviceEntry;
use super::single_flight::{self, SingleFlight};

/// Retires whatever the cache pushes out.
#[derive(Clone)]
struct Retire;

impl Lifecycle<DeviceId, Arc<DeviceEntry>> for Retire {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), _: DeviceId, entry: Arc<DeviceEntry>) {
        entry.retire();
    }
}

/// The entries of devices.
pub(crate) struct DeviceEntries {
    cache: Cache<DeviceId, Arc<DeviceEntry>, UnitWeighter, DefaultHashBuilder, Retire>,
    loads: SingleFlight<DeviceId>,
    /// Grows with every change: what was loaded before it is not installed.
    epoch: AtomicU64,
    changing: Mutex<()>,
}

/// A load of a device's entry. There may be several at a time.
pub(crate) struct DeviceLoad<'a> {
    load: single_flight::Load<'a, DeviceId>,
    /// What had changed when it began: of all devices, and of this one.
    begun: (u64, u64),
}

impl DeviceEntries {
    pub(crate) fn new(capacity: usize) -> Self {
        let cache = Cache::with(capacity, capacity as u64, UnitWeighter, DefaultHashBuilder::default(), Retire);
        Self { cache, loads: SingleFlight::new(), epoch: AtomicU64::new(0), changing: Mutex::new(()) }
    }

    /// The installed entry.
    pub(crate) fn get(&self, id: DeviceId) -> Option<Arc<DeviceEntry>> {
        self.cache.get(&id).filter(|entry| entry.is_current())
    }

    /// The installed entry, for whoever is no reason to keep it.
    pub(crate) fn peek(&self, id: DeviceId) -> Option<Arc<DeviceEntry>> {
        self.cache.peek(&id).filter(|entry| entry.is_current())
    }

    /// A load begins: nothing of the device has been read for it yet.
    pub(crate) fn begin<'a>(&'a self, id: &'a DeviceId) -> DeviceLoad<'a> {
        let load = self.loads.concurrent(id);
        let begun = (self.epoch(), load.invalidations());
        DeviceLoad { load, begun }
    }

    /// Installs an entry that `load` has found, unless another load was faster: then that one's is answered. One that was
    /// loaded while the device changed shows its asker what it found, and is not installed. Neither is one whose load was
    /// slower than another one whose entry is gone again: the runs in between have changed what that one said, and not this.
    pub(crate) fn install(&self, loaded: Arc<DeviceEntry>, load: &DeviceLoad<'_>) -> Arc<DeviceEntry> {
        let _turn = self.changing.lock();
        let id = loaded.device.id;
        match self.cache.get(&id) {
            Some(entry) if entry.is_current() => return entry,
            Some(entry) => entry.retire(),
            None => {}
        }
        if (self.epoch(), load.load.invalidations()) == load.begun {
            self.loads.invalidate(&id);
            loaded.install();
            self.cache.insert(id, Arc::clone(&loaded));
        }
        loaded
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// The device changed.
    pub(crate) fn retire(&self, id: DeviceId) {
        let _turn = self.changing.lock();
        self.epoch.fetch_add(1, Ordering::SeqCst);
        if let Some((_, entry)) = self.cache.remove(&id) {
            entry.retire();
        }
    }

    /// Something changed that all devices have in common for which `chosen` is true.
    pub(crate) fn retire_if(&self, chosen: impl Fn(&DeviceEntry) -> bool) {
        let _turn = self.changing.lock();
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.cache.retain(|_, entry| {
            let goes = chosen(entry);
            if goes {
                entry.retire();
            }
            !goes
        });
    }

    /// Something changed that loads under way may have read before.
    pub(crate) fn discard_loads(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::Stage;

    const PLAIN: &str = r#"{"reading": {"type": "deviceEvent"}}"#;

    #[tokio::test]
    async fn an_older_load_is_not_installed_after_a_newer_one_was_pushed_out() {
        let stage = Stage::set().await;
        let first = stage.device(PLAIN).await;
        let load = async || Arc::clone(&stage.hub.0.caches.load_device(first.id).await.unwrap().unwrap());
        let entries = DeviceEntries::new(2);
        // One load has read the device and waits for something: its plan, say. Another one is quicker.
        let slow = entries.begin(&first.id);
        let (old, new) = (load().await, load().await);
        let quick = entries.begin(&first.id);
        assert!(Arc::ptr_eq(&entries.install(Arc::clone(&new), &quick), &new) && new.is_current());
        // Runs by its entry change what the device is; then others push it out.
        let body = format!(r#"{{"name":"e","projectUuid":"{}"}}"#, first.project);
        let mut others = Vec::new();
        for _ in 0..4 {
            let other = stage.another(&body).await;
            others.push((other.id, stage.hub.0.caches.load_device(other.id).await.unwrap().unwrap()));
        }
        for (id, other) in others.iter().cycle().take(100) {
            let begun = entries.begin(id);
            entries.install(Arc::clone(other), &begun);
            // What is asked for again is kept in place of what is not.
            entries.get(*id);
        }
        assert!(!new.is_current());
        let shown = entries.install(old, &slow);
        assert!(!shown.is_current() && entries.get(first.id).is_none());
        // One that begins from here on is installed.
        let begun = entries.begin(&first.id);
        assert!(entries.install(load().await, &begun).is_current());
        drop((slow, quick, begun));
        assert!(entries.loads.is_empty());
        stage.over().await;
    }
}
