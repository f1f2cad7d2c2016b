//! A bounded cache that never serves a value changed before the read began.
//!
//! Each key has one load at a time, and concurrent readers share its result; [`LoadingCache::begin`] alone begins loads
//! that may overlap. A load is outdated if its key was invalidated meanwhile, or another value of the key was installed
//! or evicted: runs may have changed a device through its entry, which an earlier read does not show. The result of an
//! outdated load is returned to its readers, but not cached.
//!
//! Without room, the tenant whose values weigh most loses the least recently used one ([`isobar_quota::TenantLru`]).

use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;

use isobar_model::ids::OrganizationId;
use isobar_quota::{LruChange, LruLimits, LruPlace, TenantLru};

use super::single_flight::{Load, SingleFlight};

/// A value that is cached by keys of type `K`. Holders of a clone must learn that later changes no longer reach it.
pub(crate) trait CacheValue<K>: Clone {
    /// Returns the tenant that the value is charged to.
    fn tenant(&self) -> OrganizationId;

    /// Returns the weight of the value: bytes, or 1 in a cache that is bounded by their number.
    fn weight(&self) -> usize {
        1
    }

    /// Returns false if a cached value has become outdated by itself: it is loaded anew.
    fn is_valid(&self) -> bool {
        true
    }

    /// Stores the place by which the value changes its weight; called when the cache adds the value.
    fn install(&self, _place: &Arc<LruPlace>) {}

    /// Prepares an eviction; returns false if the value is in use and must stay.
    fn leave(&self) -> bool {
        self.retire();
        true
    }

    /// Called when the cache has dropped the value: it was invalidated or evicted, or its load was outdated.
    fn retire(&self) {}
}

/// A cache that loads missing values once for all readers.
pub(crate) struct LoadingCache<K: Hash + Eq, V> {
    values: TenantLru<K, V>,
    loads: SingleFlight<K>,
}

impl<K: Hash + Eq + Clone, V: CacheValue<K>> LoadingCache<K, V> {
    /// Makes a cache of at most this many values that weigh at most so many bytes.
    pub(crate) fn new(entries: usize, bytes: usize) -> Self {
        let limits = LruLimits { entries, bytes, evictions: usize::MAX, spares_small_shares: false };
        Self { values: TenantLru::new(limits), loads: SingleFlight::new() }
    }

    /// Returns the cached value and notes its use.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.values.get(key).filter(V::is_valid)
    }

    /// Returns the cached value; the look does not delay its eviction.
    pub(crate) fn peek(&self, key: &K) -> Option<V> {
        self.values.peek(key).filter(V::is_valid)
    }

    /// Returns the cached value, or else the result of `load`. A missing value is not cached.
    pub(crate) async fn get_or_load<E, F>(&self, key: &K, load: impl FnOnce() -> F) -> Result<Option<V>, E>
    where
        F: Future<Output = Result<Option<V>, E>>,
    {
        if let Some(value) = self.get(key) {
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
        if let Some(value) = self.get(key) {
            return Ok(Some(value));
        }
        Ok(find().await?.map(|value| self.install(value, &load)))
    }

    /// Begins a load that may overlap with others of its key; the caller has read nothing for it yet.
    pub(crate) fn begin<'a>(&'a self, key: &'a K) -> Load<'a, K> {
        self.loads.concurrent(key)
    }

    /// Caches a loaded value, or returns the one that a faster load has cached. The result of an outdated load is
    /// retired instead.
    pub(crate) fn install(&self, value: V, load: &Load<'_, K>) -> V {
        let key = load.key();
        let mut change = self.values.change();
        if let Some(value) = self.get(key) {
            return value;
        }
        self.take_out(&mut change, key);
        if load.is_outdated() {
            value.retire();
            return value;
        }
        self.loads.invalidate(key);
        let make = |place: &_| {
            value.install(place);
            value.clone()
        };
        let (owner, weight) = ((key.clone(), value.tenant()), value.weight());
        change.insert(owner, weight, make, |key, value| self.leaves(key, value));
        change.end().iter().for_each(V::retire);
        value
    }

    fn take_out(&self, change: &mut LruChange<'_, K, V>, key: &K) {
        if let Some(value) = change.remove(key) {
            value.retire();
        }
    }

    /// Prepares an eviction. Running loads may have read the row before runs by this value changed it.
    fn leaves(&self, key: &K, value: &V) -> bool {
        let leaves = value.leave();
        if leaves {
            self.loads.invalidate(key);
        }
        leaves
    }

    /// Makes room after a value's weight has changed.
    pub(crate) fn settle(&self, place: &LruPlace) {
        self.values.settle(place, |key, value| self.leaves(key, value)).iter().for_each(V::retire);
    }

    /// Removes a key, and discards the results of its running loads.
    pub(crate) fn invalidate(&self, key: &K) {
        let mut change = self.values.change();
        self.loads.invalidate(key);
        self.take_out(&mut change, key);
    }

    /// Discards the results of running loads; cached values stay, and callers must check that they are current.
    pub(crate) fn discard_loads(&self) {
        // No load may be about to cache its result.
        let _change = self.values.change();
        self.loads.invalidate_all();
    }

    /// Removes the values for which `chosen` returns true, and discards the results of running loads.
    pub(crate) fn forget_if(&self, chosen: impl Fn(&V) -> bool) {
        let mut change = self.values.change();
        self.loads.invalidate_all();
        change.remove_if(|_, value| chosen(value)).iter().for_each(V::retire);
    }

    /// Removes every value.
    pub(crate) fn clear(&self) {
        self.forget_if(|_| true);
    }

    /// Returns the weight of all values.
    pub(crate) fn weight(&self) -> usize {
        self.values.weight()
    }
}

#[cfg(test)]
impl<K: Hash + Eq + Clone, V: CacheValue<K>> LoadingCache<K, V> {
    /// Evicts all values that are not in use.
    pub(crate) fn push_all_out(&self) {
        let evicted = self.values.change().remove_if(|key, value| self.leaves(key, value));
        evicted.iter().for_each(V::retire);
    }

    /// Returns true if no load is running.
    pub(crate) fn nobody_loads(&self) -> bool {
        self.loads.is_empty()
    }

    /// Returns all values.
    pub(crate) fn all(&self) -> Vec<V> {
        self.values.values()
    }

    /// Returns all values after checking that their weights add up to the counted weight; nobody may change a value
    /// meanwhile.
    pub(crate) fn books_are_right(&self) -> Vec<V> {
        let (all, tenants) = (self.all(), self.values.weights().len());
        let weights = all.iter().map(V::weight).sum::<usize>();
        assert_eq!(self.weight(), tenants * isobar_quota::TENANT_BYTES + weights);
        all
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use isobar_quota::NOBODY;

    use super::*;

    impl CacheValue<u32> for &'static str {
        fn tenant(&self) -> OrganizationId {
            NOBODY
        }
    }

    #[derive(Clone, Default)]
    struct Evicted(Arc<AtomicBool>);

    impl CacheValue<u32> for Evicted {
        fn tenant(&self) -> OrganizationId {
            NOBODY
        }

        fn retire(&self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn load_invalidated_meanwhile_is_not_cached() {
        let cache: LoadingCache<u32, &'static str> = LoadingCache::new(8, usize::MAX);
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
        let cache: LoadingCache<u32, &str> = LoadingCache::new(8, usize::MAX);
        assert_eq!(cache.get_or_load(&1, || async { Ok::<_, ()>(Some("a")) }).await, Ok(Some("a")));
        assert_eq!(cache.get_or_load(&1, || async { Ok::<_, ()>(Some("b")) }).await, Ok(Some("a")));
        cache.invalidate(&1);
        assert_eq!(cache.get_or_load(&1, || async { Ok::<_, ()>(Some("b")) }).await, Ok(Some("b")));
    }

    #[tokio::test]
    async fn concurrent_readers_share_one_load() {
        let (cache, loads) = (LoadingCache::<u32, Evicted>::new(8, usize::MAX), AtomicU64::new(0));
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
        let cache: LoadingCache<u32, Evicted> = LoadingCache::new(2, usize::MAX);
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
