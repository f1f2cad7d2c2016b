//! A bounded cache that never serves what was changed before the question was asked.
//!
//! Of each key there is one load at a time: whoever asks meanwhile gets what it finds. A load that was under way when its
//! key was invalidated is handed to whoever asked for it, but not kept.

use std::future::Future;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, UnitWeighter};

use super::single_flight::SingleFlight;

/// A value of the cache. Others may hold it for longer, and must learn that no change reaches it any more.
pub(crate) trait CacheValue: Clone {
    /// The cache has it no longer, or never had: it was invalidated or pushed out, or was invalidated while it was loaded.
    fn evicted(&self) {}
}

/// Tells values that the cache pushes out.
#[derive(Clone)]
struct TellEvicted;

impl<K, V: CacheValue> Lifecycle<K, V> for TellEvicted {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), _: K, value: V) {
        value.evicted();
    }
}

/// A cache of `capacity` entries.
pub(crate) struct LoadingCache<K: Hash + Eq, V> {
    cache: Cache<K, V, UnitWeighter, DefaultHashBuilder, TellEvicted>,
    loads: SingleFlight<K>,
    /// Grows with every change that may concern any key.
    epoch: AtomicU64,
}

impl<K: Hash + Eq + Clone, V: CacheValue> LoadingCache<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        let cache = Cache::with(capacity, capacity as u64, UnitWeighter, DefaultHashBuilder::default(), TellEvicted);
        Self { cache, loads: SingleFlight::new(), epoch: AtomicU64::new(0) }
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

    /// Forgets a key, and keeps nothing of its load under way.
    pub(crate) fn invalidate(&self, key: &K) {
        self.loads.invalidate(key);
        self.forget(key);
    }

    /// Keeps nothing of the loads under way; what is cached stays, and must show by itself whether it is outdated.
    pub(crate) fn discard_loads(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Forgets the values for which `chosen` is true, and keeps nothing of the loads under way.
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

    /// Forgets everything.
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
    async fn a_load_overtaken_by_a_change_is_not_kept() {
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
        // A change of another key is none of its business.
        let loaded = cache
            .get_or_load(&1, || async {
                cache.invalidate(&2);
                Ok::<_, ()>(Some("new"))
            })
            .await;
        assert_eq!((loaded, cache.get(&1)), (Ok(Some("new")), Some("new")));
    }

    #[tokio::test]
    async fn what_was_loaded_is_kept_until_it_is_invalidated() {
        let cache: LoadingCache<u32, &str> = LoadingCache::new(8);
        assert_eq!(cache.get_or_load(&1, || async { Ok::<_, ()>(Some("a")) }).await, Ok(Some("a")));
        assert_eq!(cache.get_or_load(&1, || async { Ok::<_, ()>(Some("b")) }).await, Ok(Some("a")));
        cache.invalidate(&1);
        assert_eq!(cache.get_or_load(&1, || async { Ok::<_, ()>(Some("b")) }).await, Ok(Some("b")));
    }

    #[tokio::test]
    async fn those_who_ask_at_the_same_time_share_one_load() {
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
    async fn whoever_holds_what_the_cache_let_go_can_tell() {
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
