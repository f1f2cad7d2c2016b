//! Places of long waits: whatever the order in which they are taken, evicted and returned, there are never more than
//! agreed, each wait that is evicted ends, no other does, and all places come back.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail with the test")]

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use isobar_interleavings::{UNLIMITED, WaitPlace, WaitPlaces, in_many_orders};
use isobar_model::ids::OrganizationId;
use shuttle::future::{block_on, spawn};
use shuttle::thread;
use uuid::Uuid;

/// Places of which one tenant may have four, and all together five.
const OF_ALL: usize = 6;

type Wait = (WaitPlace, BoxFuture<'static, ()>);

fn take(places: &Arc<WaitPlaces>, tenant: u128) -> Option<Wait> {
    let (place, ended) = places.take(Some(OrganizationId(Uuid::from_u128(tenant)))).ok()?;
    Some((place, ended.boxed()))
}

/// Takes all places of the first tenant, oldest first, and one of the second: now all are taken.
fn fill(places: &Arc<WaitPlaces>) -> (Vec<Wait>, Wait) {
    ((0..4).map(|_| take(places, 1).unwrap()).collect(), take(places, 2).unwrap())
}

/// Two tenants without a place take one each, at the same time.
fn newcomers(places: &Arc<WaitPlaces>) -> [thread::JoinHandle<Wait>; 2] {
    [3, 4].map(|of| {
        let places = Arc::clone(places);
        thread::spawn(move || take(&places, of).unwrap())
    })
}

fn ended<'a>(waits: impl Iterator<Item = &'a mut Wait>) -> usize {
    waits.filter_map(|(_, ended)| ended.now_or_never()).count()
}

fn assert_all_are_free(places: &Arc<WaitPlaces>) {
    let (mut first, _other) = fill(places);
    assert_eq!(ended(first.iter_mut()), 0, "a place is lost");
    assert!(take(places, 1).is_none(), "there is a place too many");
}

#[test]
fn evicted_wait_ends_and_no_other() {
    in_many_orders(|| {
        let places = WaitPlaces::new(&UNLIMITED.with_total(OF_ALL));
        let (mut first, mut other) = fill(&places);
        // The two youngest of the tenant that has most wait in threads of their own; shuttle finds one that waits for ever.
        let evicted = first.split_off(2).into_iter().map(|(place, ended)| spawn(ended.map(move |()| drop(place))));
        let evicted: Vec<_> = evicted.collect();
        let mut new = newcomers(&places).map(|thread| thread.join().unwrap());
        evicted.into_iter().for_each(|wait| block_on(wait).unwrap());
        assert_eq!(ended(first.iter_mut().chain(&mut new).chain([&mut other])), 0, "a wait ends without a cause");
        drop((first, new, other));
        assert_all_are_free(&places);
    });
}

#[test]
fn place_that_is_returned_while_it_is_evicted_is_free_once() {
    in_many_orders(|| {
        let places = WaitPlaces::new(&UNLIMITED.with_total(OF_ALL));
        let (mut first, mut other) = fill(&places);
        let youngest = first.pop().unwrap();
        let returns = thread::spawn(move || drop(youngest));
        let mut new = newcomers(&places).map(|thread| thread.join().unwrap());
        returns.join().unwrap();
        // Two newcomers need one place beside the one that is returned or evicted.
        let evicted = ended(first.iter_mut().chain(&mut new).chain([&mut other]));
        assert!(evicted <= 1, "more places are evicted than are needed");
        drop((first, new, other));
        assert_all_are_free(&places);
    });
}
