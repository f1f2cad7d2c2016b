//! Loads under way, by key: one at a time, however many wait for it, or several side by side.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The keys that somebody loads or waits for. Clients may choose what is looked for: they are hashed with a random key.
pub(crate) struct SingleFlight<K: Hash + Eq>(Mutex<HashMap<K, Arc<KeyLoads>>>);

struct KeyLoads {
    turn: Arc<Semaphore>,
    /// How often the key has changed meanwhile.
    invalidations: AtomicU64,
}

/// A load of one key: as long as it is held, no other begins that asked to be alone.
pub(crate) struct Load<'a, K: Hash + Eq> {
    flights: &'a SingleFlight<K>,
    key: &'a K,
    loads: Arc<KeyLoads>,
    /// None while it waits, and of a load that goes side by side with others.
    turn: Option<OwnedSemaphorePermit>,
}

impl<K: Hash + Eq + Clone> SingleFlight<K> {
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    /// Begins a load that may go side by side with others of the key.
    pub(crate) fn concurrent<'a>(&'a self, key: &'a K) -> Load<'a, K> {
        let first = || Arc::new(KeyLoads { turn: Arc::new(Semaphore::new(1)), invalidations: AtomicU64::new(0) });
        let loads = Arc::clone(self.0.lock().entry(key.clone()).or_insert_with(first));
        Load { flights: self, key, loads, turn: None }
    }

    /// Begins a load when nobody else loads the key alone.
    pub(crate) async fn alone<'a>(&'a self, key: &'a K) -> Load<'a, K> {
        let mut load = self.concurrent(key);
        // Nobody closes it; whoever went without would only load twice.
        load.turn = Arc::clone(&load.loads.turn).acquire_owned().await.ok();
        load
    }

    /// Whether nobody loads anything.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// The key has changed.
    pub(crate) fn invalidate(&self, key: &K) {
        if let Some(loads) = self.0.lock().get(key) {
            loads.invalidations.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl<K: Hash + Eq> Load<'_, K> {
    /// How often the key has changed while somebody loaded it or waited.
    pub(crate) fn invalidations(&self) -> u64 {
        self.loads.invalidations.load(Ordering::SeqCst)
    }
}

impl<K: Hash + Eq> Drop for Load<'_, K> {
    fn drop(&mut self) {
        let mut flights = self.flights.0.lock();
        drop(self.turn.take());
        // The map's and this one; others are made under the lock.
        if Arc::strong_count(&self.loads) == 2 {
            flights.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn loads_of_one_key_take_turns_and_leave_nothing_behind() {
        let flights = SingleFlight::new();
        let first = flights.alone(&1).await;
        let other = flights.alone(&2).await;
        let mut second = Box::pin(flights.alone(&1));
        assert!(futures::poll!(second.as_mut()).is_pending());
        flights.invalidate(&1);
        assert_eq!((first.invalidations(), other.invalidations()), (1, 0));
        drop(other);
        assert_eq!(flights.0.lock().len(), 1);
        drop(first);
        drop(second.await);
        assert_eq!(flights.0.lock().len(), 0);
    }

    #[tokio::test]
    async fn whoever_gives_up_leaves_too() {
        let flights = SingleFlight::new();
        let first = flights.alone(&1).await;
        let mut second = Box::pin(flights.alone(&1));
        assert!(futures::poll!(second.as_mut()).is_pending());
        drop(second);
        drop(first);
        assert_eq!(flights.0.lock().len(), 0);
    }
}
