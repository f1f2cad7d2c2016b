//! A bounded cache that never serves what was changed before the question was asked.
//!
//! Of each key there is one load at a time: whoever asks meanwhile gets what it finds. A load that was under way when its
//! key was invalidated is handed to whoever asked for it, but not kept.

use std::future::Future;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, UnitWeighter};

use crate::cache::single_flight::Flights;

/// What a cache keeps. Others may hold it for longer, and must learn that no change reaches it any more.
pub(crate) trait Kept: Clone {
    /// The cache has it no longer, or never had: it was changed or pushed out, or its load was overtaken.
    fn let_go(&self) {}
}

/// Tells whatever the cache pushes out.
#[derive(Clone)]
struct LetGo;

impl<K, V: Kept> Lifecycle<K, V> for LetGo {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), _: K, value: V) {
        value.let_go();
    }
}

/// A cache of `capacity` entries.
pub(crate) struct Fresh<K: Hash + Eq, V> {
    cache: Cache<K, V, UnitWeighter, DefaultHashBuilder, LetGo>,
    loads: Flights<K>,
    /// Grows with every change that may concern any key.
    epoch: AtomicU64,
}

impl<K: Hash + Eq + Clone, V: Kept> Fresh<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        let cache = Cache::with(capacity, capacity as u64, UnitWeighter, DefaultHashBuilder::default(), LetGo);
        Self { cache, loads: Flights::new(), epoch: AtomicU64::new(0) }
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

    async fn load<E, F>(&self, key: &K, load: impl FnOnce() -> F) -> Result<Option<V>, E>
    where
        F: Future<Output = Result<Option<V>, E>>,
    {
        let turn = self.loads.turn(key).await;
        if let Some(value) = self.cache.get(key) {
            return Ok(Some(value));
        }
        let epoch = || (self.epoch.load(Ordering::SeqCst), turn.overtaken());
        let before = epoch();
        let Some(value) = load().await? else { return Ok(None) };
        if epoch() == before {
            self.cache.insert(key.clone(), value.clone());
            // An invalidation between the look at the epoch and the insertion found nothing to remove.
            if epoch() != before {
                self.forget(key);
            }
        } else {
            value.let_go();
        }
        Ok(Some(value))
    }

    fn forget(&self, key: &K) {
        if let Some((_, value)) = self.cache.remove(key) {
            value.let_go();
        }
    }

    /// Forgets a key, and its load under way.
    pub(crate) fn invalidate(&self, key: &K) {
        self.loads.overtake(key);
        self.forget(key);
    }

    /// Forgets every load under way; what is cached stays, and must show by itself whether it is stale.
    pub(crate) fn distrust_loads(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Forgets what `chosen` knows, and every load under way.
    pub(crate) fn forget_those(&self, chosen: impl Fn(&V) -> bool) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.cache.retain(|_, value| {
            let goes = chosen(value);
            if goes {
                value.let_go();
            }
            !goes
        });
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.forget_those(|_| true);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    impl Kept for &'static str {}

    #[derive(Clone, Default)]
    struct Told(Arc<AtomicBool>);

    impl Kept for Told {
        fn let_go(&self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn a_load_overtaken_by_a_change_is_not_kept() {
        let cache: Fresh<u32, &'static str> = Fresh::new(8);
        type Change = fn(&Fresh<u32, &'static str>);
        for change in [(|cache| cache.invalidate(&1)) as Change, |cache| cache.distrust_loads(), |cache| cache.clear()]
        {
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
        let cache: Fresh<u32, &str> = Fresh::new(8);
        assert_eq!(cache.get_or_load(&1, || async { Ok::<_, ()>(Some("a")) }).await, Ok(Some("a")));
        assert_eq!(cache.get_or_load(&1, || async { Ok::<_, ()>(Some("b")) }).await, Ok(Some("a")));
        cache.invalidate(&1);
        assert_eq!(cache.get_or_load(&1, || async { Ok::<_, ()>(Some("b")) }).await, Ok(Some("b")));
    }

    #[tokio::test]
    async fn those_who_ask_at_the_same_time_share_one_load() {
        let (cache, loads) = (Fresh::<u32, Told>::new(8), AtomicU64::new(0));
        let ask = || async {
            let load = || async {
                loads.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                Ok::<_, ()>(Some(Told::default()))
            };
            cache.get_or_load(&1, load).await.unwrap().unwrap()
        };
        let (first, second, third) = tokio::join!(ask(), ask(), ask());
        assert_eq!(loads.load(Ordering::SeqCst), 1);
        assert!(Arc::ptr_eq(&first.0, &second.0) && Arc::ptr_eq(&first.0, &third.0));
    }

    #[tokio::test]
    async fn whoever_holds_what_the_cache_let_go_can_tell() {
        let cache: Fresh<u32, Told> = Fresh::new(2);
        let load = async |key: u32| {
            let load = || async { Ok::<_, ()>(Some(Told::default())) };
            cache.get_or_load(&key, load).await.unwrap().unwrap()
        };
        let is_out = |told: &Told| told.0.load(Ordering::SeqCst);
        let changed = load(0).await;
        assert!(!is_out(&changed));
        cache.invalidate(&0);
        assert!(is_out(&changed));
        let mut held = Vec::new();
        for key in 0..10 {
            held.push(load(key).await);
        }
        for (key, told) in (0..).zip(&held) {
            assert_eq!(is_out(told), cache.get(&key).is_none());
        }
        cache.clear();
        assert!(held.iter().all(is_out));
        let overtaken = cache
            .get_or_load(&0, || async {
                cache.distrust_loads();
                Ok::<_, ()>(Some(Told::default()))
            })
            .await;
        assert!(is_out(&overtaken.unwrap().unwrap()));
    }
}
