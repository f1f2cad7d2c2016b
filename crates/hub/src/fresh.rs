//! A bounded cache that never serves what was changed before the question was asked.
//!
//! A load that was under way when its key was invalidated is handed to whoever asked for it, but not kept.

use std::future::Future;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;

/// A cache of `capacity` entries.
pub(crate) struct Fresh<K, V> {
    cache: Cache<K, V>,
    /// Grows with every invalidation.
    epoch: AtomicU64,
}

impl<K: Hash + Eq + Clone, V: Clone> Fresh<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { cache: Cache::new(capacity), epoch: AtomicU64::new(0) }
    }

    /// What is cached.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.cache.get(key)
    }

    /// What is cached, or else what `load` finds. What is not found is not remembered.
    pub(crate) async fn get_or_load<E, F>(&self, key: &K, load: impl FnOnce() -> F) -> Result<Option<V>, E>
    where
        F: Future<Output = Result<Option<V>, E>>,
    {
        if let Some(value) = self.cache.get(key) {
            return Ok(Some(value));
        }
        // Boxed, because it is rare and large: every call would set room for it aside, and move that about.
        Box::pin(self.load(key, load())).await
    }

    async fn load<E>(&self, key: &K, load: impl Future<Output = Result<Option<V>, E>>) -> Result<Option<V>, E> {
        let before = self.epoch.load(Ordering::SeqCst);
        let Some(value) = load.await? else { return Ok(None) };
        if self.epoch.load(Ordering::SeqCst) == before {
            self.cache.insert(key.clone(), value.clone());
            // An invalidation between the look at the epoch and the insertion found nothing to remove.
            if self.epoch.load(Ordering::SeqCst) != before {
                self.cache.remove(key);
            }
        }
        Ok(Some(value))
    }

    /// Forgets a key, and every load under way.
    pub(crate) fn invalidate(&self, key: &K) -> Option<V> {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.cache.remove(key).map(|(_, value)| value)
    }

    /// Forgets every load under way; what is cached stays, and must show by itself whether it is stale.
    pub(crate) fn distrust_loads(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Forgets what `chosen` knows, and every load under way.
    pub(crate) fn forget_those(&self, chosen: impl Fn(&V) -> bool) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.cache.retain(|_, value| !chosen(value));
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.cache.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_load_overtaken_by_a_change_is_not_kept() {
        let cache: Fresh<u32, &str> = Fresh::new(8);
        let loaded = cache
            .get_or_load(&1, || async {
                cache.invalidate(&1);
                Ok::<_, ()>(Some("old"))
            })
            .await;
        assert_eq!(loaded, Ok(Some("old")));
        assert_eq!(cache.get(&1), None);
    }

    #[tokio::test]
    async fn what_was_loaded_is_kept_until_it_is_invalidated() {
        let cache: Fresh<u32, &str> = Fresh::new(8);
        assert_eq!(cache.get_or_load(&1, || async { Ok::<_, ()>(Some("a")) }).await, Ok(Some("a")));
        assert_eq!(cache.get_or_load(&1, || async { Ok::<_, ()>(Some("b")) }).await, Ok(Some("a")));
        cache.invalidate(&1);
        assert_eq!(cache.get_or_load(&1, || async { Ok::<_, ()>(Some("b")) }).await, Ok(Some("b")));
    }
}
