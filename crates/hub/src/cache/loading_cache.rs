//! A bounded cache that never serves a value changed before the read began.
//!
//! Each key has one load at a time, and concurrent readers share its result. A load whose key was invalidated meanwhile
//! is returned to its readers, but not cached.

use std::future::Future;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, UnitWeighter};

use super::single_flight::SingleFlight;

/// A value of the cache. Holders of a clone must learn that later changes no longer reach it.
pub(crate) trait CacheValue: Clone {
    /// Called when the cache drops the value: it was invalidated, evicted, or invalidated during its load.
    fn evicted(&self) {}
}

/// Notifies values that the cache evicts.
#[derive(Clone)]
struct TellEvicted;

impl<K, V: CacheValue> Lifecycle<K, V> for TellEvicted {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), _: K, value: V) {
        value.evicted();
    }
}

/// A cache of at most `capacity` entries that loads missing values once for all readers.
pub(crate) struct LoadingCache<K: Hash + Eq, V> {
    cache: Cache<K, V, UnitWeighter, DefaultHashBuilder, TellEvicted>,
    loads: SingleFlight<K>,
    /// Version of the whole cache: grows with every change that may concern any key.
    epoch: AtomicU64,
}

impl<K: Hash + Eq + Clone, V: CacheValue> LoadingCache<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        let cache = Cache::with(capacity, capacity as u64, UnitWeighter, DefaultHashBuilder::default(), TellEvicted);
        Self { cache, loads: SingleFlight::new(), epoch: AtomicU64::new(0) }
    }

    /// Returns the cached value.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.cache.get(key)
    }

    /// Returns the cached value, or else the result of `load`. A missing value is not cached.
    pub(crate) async fn get_or_load<E, F>(&self, key: &K, load: impl FnOnce() -> F) -> Result<Option<V>, E>
    where
        F: Future<Output = Result<Option<V>, E>>,
    {
        if let Some(value) = self.cache.get(key) {
            return Ok(Some(value));
        }
        // Boxed, because a load is rare and its future large: every call would reserve and move its space.
        Box::pin(self.load(key, load)).await
    }

    async fn load<E, F>(&self, key: &K, find: impl FnOnce() -> F) -> Result<Option<V>, E>
    where
        F: Future<Output = Result<Option<V>, E>>,
    {
        let load = self.loads.alone(key).await;
        if let Some(value) = self.cache.get(key) {
            return Ok(Some(value));
        }
        let epoch = || (self.epoch.load(Ordering::SeqCst), load.invalidations());
        let before = epoch();
        let Some(value) = find().await? else { return Ok(None) };
        if epoch() == before {
            self.cache.insert(key.clone(), value.clone());
            // An invalidation between the look at the epoch and the insertion found nothing to remove.
            if epoch() != before {
                self.forget(key);
            }
        } else {
            value.evicted();
        }
        Ok(Some(value))
    }

    fn forget(&self, key: &K) {
        if let Some((_, value)) = self.cache.remove(key) {
            value.evicted();
        }
    }

    /// Removes a key, and discards the result of its running load.
    pub(crate) fn invalidate(&self, key: &K) {
        self.loads.invalidate(key);
        self.forget(key);
    }

    /// Discards the results of running loads; cached values stay, and callers must check that they are current.
    pub(crate) fn discard_loads(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Removes the values for which `chosen` returns true, and discards the results of running loads.
    pub(crate) fn forget_if(&self, chosen: impl Fn(&V) -> bool) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.cache.retain(|_, value| {
            let goes = chosen(value);
            if goes {
                value.evicted();
            }
            !goes
        });
    }

    /// Removes every value.
    pub(crate) fn clear(&self) {
        self.forget_if(|_| true);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    impl CacheValue for &'static str {}

    #[derive(Clone, Default)]
    struct Evicted(Arc<AtomicBool>);

    impl CacheValue for Evicted {
        fn evicted(&self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn load_invalidated_meanwhile_is_not_cached() {
        let cache: LoadingCache<u32, &'static str> = LoadingCache::new(8);
        type Change = fn(&LoadingCache<u32, &'static str>);
        for change in [(|cache| cache.invalidate(&1)) as Change, |cache| cache.discard_loads(), |cache| cache.clear()] {
            let loaded = cache
                .get_or_load(&1, || async {
                    change(&cache);
                    Ok::<_, ()>(Some("old"))
                })
                .await;
            assert_eq!(loaded, Ok(Some("old")));
            assert_eq!(cache.get(&1), None);
        }
        // A change of another key has no effect.
        let loaded = cache
            .get_or_load(&1, || async {
                cache.invalidate(&2);
                Ok::<_, ()>(Some("new"))
            })
            .await;
        assert_eq!((loaded, cache.get(&1)), (Ok(Some("new")), Some("new")));
    }

    #[tokio::test]
    async fn loaded_value_stays_until_it_is_invalidated() {
        let cache: LoadingCache<u32, &str> = LoadingCache::new(8);
        assert_eq!(cache.get_or_load(&1, || async { Ok::<_, ()>(Some("a")) }).await, Ok(Some("a")));
        assert_eq!(cache.get_or_load(&1, || async { Ok::<_, ()>(Some("b")) }).await, Ok(Some("a")));
        cache.invalidate(&1);
        assert_eq!(cache.get_or_load(&1, || async { Ok::<_, ()>(Some("b")) }).await, Ok(Some("b")));
    }

    #[tokio::test]
    async fn concurrent_readers_share_one_load() {
        let (cache, loads) = (LoadingCache::<u32, Evicted>::new(8), AtomicU64::new(0));
        let ask = || async {
            let load = || async {
                loads.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                Ok::<_, ()>(Some(Evicted::default()))
            };
            cache.get_or_load(&1, load).await.unwrap().unwrap()
        };
        let (first, second, third) = tokio::join!(ask(), ask(), ask());
        assert_eq!(loads.load(Ordering::SeqCst), 1);
        assert!(Arc::ptr_eq(&first.0, &second.0) && Arc::ptr_eq(&first.0, &third.0));
    }

    #[tokio::test]
    async fn dropped_value_is_notified() {
        let cache: LoadingCache<u32, Evicted> = LoadingCache::new(2);
        let load = async |key: u32| {
            let load = || async { Ok::<_, ()>(Some(Evicted::default())) };
            cache.get_or_load(&key, load).await.unwrap().unwrap()
        };
        let is_out = |value: &Evicted| value.0.load(Ordering::SeqCst);
        let changed = load(0).await;
        assert!(!is_out(&changed));
        cache.invalidate(&0);
        assert!(is_out(&changed));
        let mut held = Vec::new();
        for key in 0..10 {
            held.push(load(key).await);
        }
        for (key, value) in (0..).zip(&held) {
            assert_eq!(is_out(value), cache.get(&key).is_none());
        }
        cache.clear();
        assert!(held.iter().all(is_out));
        let overtaken = cache
            .get_or_load(&0, || async {
                cache.discard_loads();
                Ok::<_, ()>(Some(Evicted::default()))
            })
            .await;
        assert!(is_out(&overtaken.unwrap().unwrap()));
    }
}
