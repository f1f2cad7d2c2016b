//! A cache that tenants share: whatever the order in which entries come, grow, move and leave, an entry in use stays, and
//! the counted weights equal the actual ones.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail with the test")]

use std::sync::Arc;

use isobar_interleavings::{LruLimits, TENANT_BYTES, TenantLru, in_many_orders};
use isobar_model::ids::OrganizationId;
use shuttle::thread;
use uuid::Uuid;

const BYTES: usize = 3 * TENANT_BYTES + 30;

fn tenant(number: u32) -> OrganizationId {
    OrganizationId(Uuid::from_u128(number.into()))
}

/// Returns true if nobody but the cache refers to the value.
fn is_idle(_: &u32, value: &Arc<u32>) -> bool {
    Arc::strong_count(value) == 1
}

#[test]
fn entry_in_use_stays_and_weights_are_exact() {
    in_many_orders(|| {
        let (entries, evictions) = (usize::MAX, usize::MAX);
        let limits = LruLimits { entries, bytes: BYTES, evictions, spares_small_shares: false };
        let cache = Arc::new(TenantLru::<u32, Arc<u32>>::new(limits));
        let users = [1, 2, 3].map(|of| {
            let cache = Arc::clone(&cache);
            thread::spawn(move || {
                for key in [of, 4] {
                    let mut change = cache.change();
                    let found = cache.get(&key);
                    let value =
                        found.unwrap_or_else(|| change.insert((key, tenant(of)), 8, |_| Arc::new(key), is_idle));
                    drop(change);
                    let place = cache.change().set_tenant(&key, tenant(of)).unwrap();
                    place.set_weight(16);
                    drop(cache.settle(&place, is_idle));
                    assert!(Arc::ptr_eq(&value, &cache.peek(&key).unwrap()), "an entry in use was evicted");
                }
            })
        });
        users.into_iter().for_each(|user| user.join().unwrap());
        let count = cache.values().len();
        let places = cache.weights().into_values().sum::<usize>();
        assert_eq!((places, (1..=4).contains(&count)), (cache.weight(), true));
        cache.change().insert((9, tenant(9)), BYTES - TENANT_BYTES, |_| Arc::new(9), is_idle);
        assert_eq!((cache.values().len(), cache.weight()), (1, BYTES), "a weight is left");
    });
}
