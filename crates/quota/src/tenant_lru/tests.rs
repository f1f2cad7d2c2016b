//! Tests that the tenant that has most makes room, and that the counted weights equal the actual ones.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

const KIB: usize = 1 << 10;

/// Values tell if their entry must stay.
type Cache = TenantLru<u64, Arc<AtomicBool>>;

fn tenant(number: u64) -> OrganizationId {
    OrganizationId(Uuid::from_u128(number.into()))
}

fn cache(entries: usize, bytes: usize) -> Cache {
    Cache::new(LruLimits { entries, bytes, evictions: usize::MAX, spares_small_shares: true })
}

fn is_idle(_: &u64, value: &Arc<AtomicBool>) -> bool {
    !value.load(Ordering::SeqCst)
}

/// Adds an entry; returns its place.
fn put(cache: &Cache, of: u64, key: u64, weight: usize) -> Arc<LruPlace> {
    let mut place = None;
    let make = |own: &Arc<LruPlace>| {
        place = Some(Arc::clone(own));
        Arc::default()
    };
    cache.change().insert((key, tenant(of)), weight, make, is_idle);
    place.unwrap()
}

fn keeps(cache: &Cache, key: u64, must_stay: bool) {
    cache.peek(&key).unwrap().store(must_stay, Ordering::SeqCst);
}

/// Returns the keys of all entries.
fn keys(cache: &Cache) -> Vec<u64> {
    let mut keys: Vec<_> =
        cache.parts.iter().flat_map(|part| part.lock().keys().copied().collect::<Vec<_>>()).collect();
    keys.sort_unstable();
    keys
}

/// Checks that each entry has a place of its own, and that the weights of places, tenants and all add up.
fn check_books(cache: &Cache) {
    let order = cache.order.lock();
    let mut weights = BTreeMap::new();
    for part in &cache.parts {
        for (key, slot) in &*part.lock() {
            let (number, weight) =
                (slot.place.number.load(Ordering::Relaxed), slot.place.weight.load(Ordering::SeqCst));
            assert_eq!(order.at(slot.place.tenant(), number), Some(key));
            *weights.entry(slot.place.tenant()).or_insert(TENANT_BYTES) += weight;
        }
    }
    assert_eq!((order.count(), cache.weight()), (cache.values().len(), weights.values().sum()));
    assert_eq!(order.weights(), weights);
    order.check_notes();
}

#[test]
fn least_recently_used_entry_is_evicted() {
    let cache = cache(usize::MAX, TENANT_BYTES + 5 * KIB);
    (0..5).for_each(|key| drop(put(&cache, 1, key, KIB)));
    for key in [0, 2] {
        cache.get(&key).unwrap();
        // A peek does not count as a use.
        cache.peek(&(key + 1)).unwrap();
    }
    (5..8).for_each(|key| drop(put(&cache, 1, key, KIB)));
    assert_eq!(keys(&cache), [0, 2, 5, 6, 7]);
    // An entry as heavy as several others, and one that replaces it.
    put(&cache, 1, 8, 4 * KIB);
    put(&cache, 1, 8, 3 * KIB);
    assert_eq!((keys(&cache), cache.weight()), (vec![7, 8], TENANT_BYTES + 4 * KIB));
    check_books(&cache);
}

#[test]
fn tenant_with_most_makes_room() {
    let cache = cache(100, TENANT_BYTES * 3 + 12 * KIB);
    (0..2).for_each(|key| drop(put(&cache, 1, key, KIB)));
    (10..30).for_each(|key| drop(put(&cache, 2, key, KIB)));
    assert_eq!(keys(&cache).len(), 12);
    (30..40).for_each(|key| drop(put(&cache, 3, key, KIB)));
    // The two with most have equal parts, and the first has lost nothing.
    let weights: Vec<_> = cache.weights().into_values().map(|weight| (weight - TENANT_BYTES) / KIB).collect();
    assert_eq!((weights, keys(&cache)[..2].to_vec()), (vec![2, 5, 5], vec![0, 1]));
    check_books(&cache);
}

#[test]
fn number_of_entries_is_bounded() {
    let cache = cache(3, usize::MAX);
    put(&cache, 1, 100, 1);
    (0..50).for_each(|key| drop(put(&cache, 2, key, 1)));
    assert_eq!(keys(&cache), [48, 49, 100]);
    check_books(&cache);
}

#[test]
fn entry_in_use_stays_and_lighter_tenants_keep_theirs() {
    let cache = cache(usize::MAX, 16 * KIB);
    (0..4).for_each(|key| drop(put(&cache, key, key, KIB)));
    for key in 10..20 {
        put(&cache, 9, key, 3 * KIB);
        keeps(&cache, key, true);
    }
    assert_eq!(keys(&cache).len(), 14);
    check_books(&cache);
    (10..20).for_each(|key| keeps(&cache, key, false));
    put(&cache, 9, 20, KIB);
    assert!(cache.weight() <= 16 * KIB && keys(&cache).starts_with(&[0, 1, 2, 3]));
    check_books(&cache);
}

#[test]
fn lighter_tenant_makes_room_unless_spared() {
    for spares_small_shares in [false, true] {
        let (entries, evictions) = (usize::MAX, usize::MAX);
        let cache = Cache::new(LruLimits { entries, bytes: 8 * KIB, evictions, spares_small_shares });
        put(&cache, 1, 1, KIB);
        put(&cache, 2, 2, 6 * KIB);
        keeps(&cache, 2, true);
        put(&cache, 2, 3, KIB);
        assert_eq!(keys(&cache).contains(&1), spares_small_shares);
        assert_eq!(cache.weight() > 8 * KIB, spares_small_shares);
        check_books(&cache);
    }
}

#[test]
fn evictions_at_a_time_are_bounded() {
    let cache = Cache::new(LruLimits { entries: 5, bytes: usize::MAX, evictions: 2, spares_small_shares: false });
    for key in 0..10 {
        put(&cache, 1, key, KIB);
        keeps(&cache, key, true);
    }
    (0..10).for_each(|key| keeps(&cache, key, false));
    for (key, count) in [(10, 9), (11, 8), (12, 7), (13, 6), (14, 5), (15, 5)] {
        put(&cache, 1, key, KIB);
        assert_eq!(keys(&cache).len(), count);
    }
}

#[test]
fn grown_entry_makes_others_leave() {
    let cache = cache(usize::MAX, 8 * KIB);
    let places: Vec<_> = (0..6).map(|key| put(&cache, 1, key, KIB)).collect();
    keeps(&cache, 0, true);
    assert_eq!(places[0].set_weight(2 * KIB), KIB);
    assert!(cache.settle(&places[0], is_idle).is_empty());
    places[0].set_weight(7 * KIB);
    assert_eq!(cache.settle(&places[0], is_idle).len(), 5);
    assert_eq!(keys(&cache), [0]);
    check_books(&cache);
}

#[test]
fn entry_that_has_left_weighs_nothing() {
    let cache = cache(usize::MAX, usize::MAX);
    let places: Vec<_> = (0..3).map(|key| put(&cache, 1, key, KIB)).collect();
    assert!(cache.change().remove(&0).is_some() && cache.change().remove(&0).is_none());
    assert_eq!(cache.change().remove_if(|key, _| *key == 1).len(), 1);
    assert_eq!((places[2].leave(), places[2].leave()), (KIB, 0));
    assert!(cache.change().remove(&2).is_some());
    for place in places {
        assert!(!place.is_cached() && place.set_weight(KIB) == 0);
    }
    assert!(cache.weight() == 0 && cache.weights().is_empty());
    check_books(&cache);
}

#[test]
fn entry_is_charged_to_its_new_tenant() {
    let cache = cache(usize::MAX, usize::MAX);
    let old = put(&cache, 1, 7, KIB);
    let new = cache.change().set_tenant(&7, tenant(2)).unwrap();
    assert!(!old.is_cached() && new.is_cached() && cache.change().set_tenant(&8, tenant(2)).is_none());
    new.set_weight(3 * KIB);
    assert_eq!(cache.weights().into_iter().collect::<Vec<_>>(), [(tenant(2), TENANT_BYTES + 3 * KIB)]);
    cache.settle(&new, is_idle);
    check_books(&cache);
}

/// Changes that may happen to an entry.
#[derive(Clone, Debug)]
enum Step {
    Comes { of: u64, key: u64, weight: usize },
    IsUsed(u64),
    MustStay(u64, bool),
    Weighs(u64, usize),
    Moves(u64, u64),
    Leaves(u64),
    TenantLeaves(u64),
}

const WEIGHT_MAX: usize = 2 * KIB;
const ENTRIES: usize = 18;
const BYTES: usize = 20 * KIB;

fn step() -> impl Strategy<Value = Step> {
    let (key, of, weight) = (0..24_u64, 0..4_u64, 0..WEIGHT_MAX);
    prop_oneof![
        6 => (of.clone(), key.clone(), weight.clone()).prop_map(|(of, key, weight)| Step::Comes { of, key, weight }),
        3 => key.clone().prop_map(Step::IsUsed),
        2 => (key.clone(), any::<bool>()).prop_map(|(key, must)| Step::MustStay(key, must)),
        4 => (key.clone(), weight).prop_map(|(key, weight)| Step::Weighs(key, weight)),
        1 => (key.clone(), of.clone()).prop_map(|(key, of)| Step::Moves(key, of)),
        1 => key.prop_map(Step::Leaves),
        1 => of.prop_map(Step::TenantLeaves),
    ]
}

/// Returns the tenant of each entry.
fn tenants(cache: &Cache) -> BTreeMap<u64, OrganizationId> {
    let of_key = |key| (key, cache.part(&key).lock()[&key].place.tenant());
    keys(cache).into_iter().map(of_key).collect()
}

/// Makes a change; returns the key whose entry was added or changed its weight.
fn take(cache: &Cache, step: &Step) -> Option<u64> {
    match *step {
        Step::Comes { of, key, weight } => {
            put(cache, of, key, weight);
            return Some(key);
        }
        Step::Weighs(key, weight) => {
            let place = cache.part(&key).lock().get(&key).map(|slot| Arc::clone(&slot.place))?;
            place.set_weight(weight);
            cache.settle(&place, is_idle);
            return Some(key);
        }
        Step::IsUsed(key) => drop(cache.get(&key)),
        Step::MustStay(key, must) => drop(cache.peek(&key).map(|value| value.store(must, Ordering::SeqCst))),
        Step::Moves(key, of) => drop(cache.change().set_tenant(&key, tenant(of))),
        Step::Leaves(key) => drop(cache.change().remove(&key)),
        Step::TenantLeaves(of) => {
            let tenants = tenants(cache);
            drop(cache.change().remove_if(|key, _| tenants[key] == tenant(of)));
        }
    }
    None
}

proptest! {
    #[test]
    fn limits_hold_and_only_the_heaviest_tenant_loses(steps in prop::collection::vec(step(), 1..200)) {
        let cache = cache(ENTRIES, BYTES);
        for step in steps {
            let before = tenants(&cache);
            let must_stay: Vec<_> = keys(&cache).into_iter().filter(|key| !is_idle(key, &cache.peek(key).unwrap())).collect();
            let own = take(&cache, &step);
            check_books(&cache);
            let Some(own) = own else { continue };
            let after = keys(&cache);
            prop_assert!(must_stay.iter().all(|key| *key == own || after.contains(key)));
            if must_stay.is_empty() {
                prop_assert!(cache.weight() <= BYTES, "{} bytes", cache.weight());
                prop_assert!(after.len() <= ENTRIES || matches!(step, Step::Weighs(..)), "{} entries", after.len());
                // A tenant that lost an entry had about as much as any other one before.
                let weights = cache.weights();
                let most = weights.values().copied().max().unwrap_or(0);
                for (_, tenant) in before.iter().filter(|(key, _)| **key != own && !after.contains(key)) {
                    let left = weights.get(tenant).copied().unwrap_or(0);
                    prop_assert!(left + 2 * (WEIGHT_MAX + TENANT_BYTES) + 2 * KIB > most, "{left} of {most}");
                }
            }
        }
    }
}

#[test]
fn concurrent_changes_keep_weights_exact() {
    let cache = cache(40, 60 * KIB);
    std::thread::scope(|scope| {
        for seed in 0..4_u64 {
            let cache = &cache;
            scope.spawn(move || {
                for turn in 0..4_000_u64 {
                    let key = (turn * 7 + seed * 13) % 64;
                    let place = put(cache, turn % 5, key, KIB);
                    cache.get(&((key + 3) % 64));
                    place.set_weight((turn % 9) as usize * KIB / 2);
                    cache.settle(&place, is_idle);
                    match turn % 17 {
                        0 => drop(cache.change().set_tenant(&key, tenant(seed))),
                        1 => drop(cache.change().remove(&key)),
                        _ => {}
                    }
                }
            });
        }
    });
    // Another thread may have settled a tenant before the weight of its entry changed.
    for slot in
        cache.parts.iter().flat_map(|part| part.lock().values().map(|slot| Arc::clone(&slot.place)).collect::<Vec<_>>())
    {
        cache.settle(&slot, is_idle);
    }
    check_books(&cache);
    assert!(cache.weight() <= 60 * KIB && keys(&cache).len() <= 40);
}
