//! Loads under way, by key: one at a time, however many wait for it, or side by side.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The keys that somebody loads or waits for. Clients may choose what is looked for: they are hashed with a random key.
pub(crate) struct Flights<K: Hash + Eq>(Mutex<HashMap<K, Arc<Flight>>>);

struct Flight {
    turn: Arc<Semaphore>,
    /// How often the key has changed meanwhile.
    overtaken: AtomicU64,
}

/// The turn of one load: until it is dropped, no other begins that takes turns too.
pub(crate) struct Turn<'a, K: Hash + Eq> {
    flights: &'a Flights<K>,
    key: &'a K,
    flight: Arc<Flight>,
    /// None while it waits, and of one that goes beside others.
    permit: Option<OwnedSemaphorePermit>,
}

impl<K: Hash + Eq + Clone> Flights<K> {
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    /// A load that minds no others of the key.
    pub(crate) fn beside<'a>(&'a self, key: &'a K) -> Turn<'a, K> {
        let fresh = || Arc::new(Flight { turn: Arc::new(Semaphore::new(1)), overtaken: AtomicU64::new(0) });
        let flight = Arc::clone(self.0.lock().entry(key.clone()).or_insert_with(fresh));
        Turn { flights: self, key, flight, permit: None }
    }

    /// Waits until nobody else loads the key.
    pub(crate) async fn turn<'a>(&'a self, key: &'a K) -> Turn<'a, K> {
        let mut turn = self.beside(key);
        // Nobody closes it; whoever went without would only load twice.
        turn.permit = Arc::clone(&turn.flight.turn).acquire_owned().await.ok();
        turn
    }

    /// Whether nobody loads anything.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// The key has changed.
    pub(crate) fn overtake(&self, key: &K) {
        if let Some(flight) = self.0.lock().get(key) {
            flight.overtaken.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl<K: Hash + Eq> Turn<'_, K> {
    /// How often the key has changed while somebody loaded it or waited.
    pub(crate) fn overtaken(&self) -> u64 {
        self.flight.overtaken.load(Ordering::SeqCst)
    }
}

impl<K: Hash + Eq> Drop for Turn<'_, K> {
    fn drop(&mut self) {
        let mut flights = self.flights.0.lock();
        drop(self.permit.take());
        // The map's and this one; others are made under the lock.
        if Arc::strong_count(&self.flight) == 2 {
            flights.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn loads_of_one_key_take_turns_and_leave_nothing_behind() {
        let flights = Flights::new();
        let first = flights.turn(&1).await;
        let other = flights.turn(&2).await;
        let mut second = Box::pin(flights.turn(&1));
        assert!(futures::poll!(second.as_mut()).is_pending());
        flights.overtake(&1);
        assert_eq!((first.overtaken(), other.overtaken()), (1, 0));
        drop(other);
        assert_eq!(flights.0.lock().len(), 1);
        drop(first);
        drop(second.await);
        assert_eq!(flights.0.lock().len(), 0);
    }

    #[tokio::test]
    async fn whoever_gives_up_leaves_too() {
        let flights = Flights::new();
        let first = flights.turn(&1).await;
        let mut second = Box::pin(flights.turn(&1));
        assert!(futures::poll!(second.as_mut()).is_pending());
        drop(second);
        drop(first);
        assert_eq!(flights.0.lock().len(), 0);
    }
}
