//! Shared amounts: whatever the order in which tenants take, resize and return, the sum of what they hold never exceeds
//! the amount, and all of it comes back.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail with the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use isobar_interleavings::{TenantShares, UNLIMITED, in_many_orders};
use isobar_model::ids::OrganizationId;
use shuttle::thread;
use uuid::Uuid;

const OF_ALL: usize = 12;

fn tenant(number: u128) -> OrganizationId {
    OrganizationId(Uuid::from_u128(number))
}

#[test]
fn sum_of_shares_never_exceeds_the_amount_and_comes_back() {
    in_many_orders(|| {
        let shares = TenantShares::new(&UNLIMITED.with_total(OF_ALL));
        let granted = Arc::new(AtomicUsize::new(0));
        let takers = [1, 1, 2, 3].map(|of| {
            let (shares, granted) = (Arc::clone(&shares), Arc::clone(&granted));
            thread::spawn(move || {
                let Ok(mut share) = shares.take(tenant(of), 3) else { return };
                let mut own = 3;
                // What was granted is noted after it is held, and no longer before it is returned.
                assert!(granted.fetch_add(own, Ordering::SeqCst) + own <= OF_ALL, "more is granted than there is");
                if share.grow(3).is_ok() {
                    own += 3;
                    assert!(granted.fetch_add(3, Ordering::SeqCst) + 3 <= OF_ALL, "more is granted than there is");
                }
                assert!(shares.held() >= own && shares.held() <= OF_ALL && share.amount() == own);
                granted.fetch_sub(own - 1, Ordering::SeqCst);
                share.resize(1).unwrap();
                granted.fetch_sub(1, Ordering::SeqCst);
            })
        });
        takers.into_iter().for_each(|taker| taker.join().unwrap());
        assert_eq!(shares.held(), 0, "a part is not returned");
        // As much as a single tenant may have can be taken again, and not more.
        let all = shares.take(tenant(1), OF_ALL / 3 * 2).unwrap();
        assert!(shares.take(tenant(1), 1).is_err());
        drop(all);
    });
}
