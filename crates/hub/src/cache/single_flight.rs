//! Tracks running loads by key: one at a time with any number of waiters, or several concurrent ones.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The keys that are being loaded or waited for. A load learns if what it read may have changed meanwhile.
pub struct SingleFlight<K: Hash + Eq> {
    /// Clients may choose the keys, so the hash function has a random seed.
    running: Mutex<HashMap<K, RunningLoads>>,
    /// Grows with every change that may concern any key.
    epoch: AtomicU64,
}

/// An entry of a key, which is removed when no load is left.
struct RunningLoads {
    count: usize,
    loads: Arc<KeyLoads>,
}

struct KeyLoads {
    turn: Arc<Semaphore>,
    /// Number of invalidations of the key during its loads.
    invalidations: AtomicU64,
}

/// A load of one key: no other exclusive load begins while this one lives.
pub struct Load<'a, K: Hash + Eq> {
    flights: &'a SingleFlight<K>,
    key: &'a K,
    loads: Arc<KeyLoads>,
    /// The epoch and the key's invalidations when the load began.
    begun: (u64, u64),
    /// The key's turn; `None` while the load waits for it, and for concurrent loads.
    turn: Option<OwnedSemaphorePermit>,
}

impl<K: Hash + Eq + Clone> SingleFlight<K> {
    /// Tracks no load yet.
    pub fn new() -> Self {
        Self { running: Mutex::default(), epoch: AtomicU64::new(0) }
    }

    /// Begins a load that may run at the same time as others of the key.
    pub fn concurrent<'a>(&'a self, key: &'a K) -> Load<'a, K> {
        let first = || Arc::new(KeyLoads { turn: Arc::new(Semaphore::new(1)), invalidations: AtomicU64::new(0) });
        let mut all = self.running.lock();
        let running = all.entry(key.clone()).or_insert_with(|| RunningLoads { count: 0, loads: first() });
        running.count += 1;
        let loads = Arc::clone(&running.loads);
        drop(all);
        let mut load = Load { flights: self, key, loads, begun: (0, 0), turn: None };
        load.begun = load.now();
        load
    }

    /// Begins a load once no other exclusive load of the key is running.
    pub async fn alone<'a>(&'a self, key: &'a K) -> Load<'a, K> {
        let mut load = self.concurrent(key);
        // The semaphore is never closed; a load without a turn would only load twice.
        load.turn = Arc::clone(&load.loads.turn).acquire_owned().await.ok();
        load.begun = load.now();
        load
    }

    /// Returns true if no load is running.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.running.lock().is_empty()
    }

    /// Notes that the key has changed: its running loads are outdated.
    pub fn invalidate(&self, key: &K) {
        if let Some(running) = self.running.lock().get(key) {
            running.loads.invalidations.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Notes that any key may have changed: all running loads are outdated.
    pub fn invalidate_all(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }
}

impl<K: Hash + Eq> Load<'_, K> {
    /// Returns the key.
    pub fn key(&self) -> &K {
        self.key
    }

    /// Returns true if the key may have changed since the load began.
    pub fn is_outdated(&self) -> bool {
        self.now() != self.begun
    }

    fn now(&self) -> (u64, u64) {
        (self.flights.epoch.load(Ordering::SeqCst), self.invalidations())
    }

    /// Returns how often the key has changed since the earliest of its overlapping loads began.
    pub fn invalidations(&self) -> u64 {
        self.loads.invalidations.load(Ordering::SeqCst)
    }
}

impl<K: Hash + Eq> Drop for Load<'_, K> {
    fn drop(&mut self) {
        let mut all = self.flights.running.lock();
        drop(self.turn.take());
        // Counted under the lock. References are dropped after it: two loads could each see that of the other, and leave
        // the entry.
        let Some(running) = all.get_mut(self.key) else { return };
        running.count -= 1;
        if running.count == 0 {
            all.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn loads_of_one_key_take_turns_and_leave_no_entry() {
        let flights = SingleFlight::new();
        let first = flights.alone(&1).await;
        let other = flights.alone(&2).await;
        let mut second = Box::pin(flights.alone(&1));
        assert!(futures::poll!(second.as_mut()).is_pending());
        flights.invalidate(&1);
        assert!(first.is_outdated() && !other.is_outdated());
        flights.invalidate_all();
        assert!(other.is_outdated());
        drop(other);
        assert_eq!(flights.running.lock().len(), 1);
        drop(first);
        let second = second.await;
        assert!(!second.is_outdated(), "it begins with its turn");
        drop(second);
        assert_eq!(flights.running.lock().len(), 0);
    }

    #[tokio::test]
    async fn cancelled_load_leaves_no_entry() {
        let flights = SingleFlight::new();
        let first = flights.alone(&1).await;
        let mut second = Box::pin(flights.alone(&1));
        assert!(futures::poll!(second.as_mut()).is_pending());
        drop(second);
        drop(first);
        assert_eq!(flights.running.lock().len(), 0);
    }
}
