//! The fair queue: whatever the order in which claims, cancelled waits and returned slots meet, no slot is lost, none is
//! given twice, and a wait ends with a slot or a refusal.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail with the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use isobar_interleavings::{Claim, FairQueue, Full, Limit, Mutex, QueueSlot, UNLIMITED, in_many_orders};
use isobar_model::ids::OrganizationId;
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::thread;
use uuid::Uuid;

const LIMITS: Limit = Limit { at_once: 2, of_all: 8, of_one: 8, of_site: 8, slice: Duration::ZERO, ..UNLIMITED };

fn tenant(number: u128) -> OrganizationId {
    OrganizationId(Uuid::from_u128(number))
}

/// A queue, and the number of those who say that they have a slot.
struct Counted {
    queue: FairQueue,
    working: AtomicUsize,
}

impl Counted {
    fn new(limits: Limit) -> Arc<Self> {
        Arc::new(Self { queue: FairQueue::new(&limits), working: AtomicUsize::new(0) })
    }

    /// Works while others run, then returns the slot.
    async fn work(&self, slot: QueueSlot) -> QueueSlot {
        assert!(self.working.fetch_add(1, Ordering::SeqCst) < LIMITS.at_once, "a slot is given twice");
        yield_now().await;
        self.working.fetch_sub(1, Ordering::SeqCst);
        slot
    }
}

/// Checks that nothing is left in the queue: as much work may begin as in a new one, and as many slots are free.
fn assert_is_as_new(queue: &FairQueue, limits: Limit) {
    assert_eq!(queue.taken_and_waiting(), (0, 0), "a slot is lost");
    let begin = |of: usize| {
        let mut wait = queue.take(Claim::begin(tenant(100 + of as u128))).boxed();
        ((&mut wait).now_or_never(), wait)
    };
    let begun: Vec<_> = (0..limits.of_all).map(begin).collect();
    let slots = begun.iter().filter(|(answer, _)| matches!(answer, Some(Ok(_)))).count();
    let waits = begun.iter().filter(|(answer, _)| answer.is_none()).count();
    assert_eq!((slots, slots + waits), (limits.at_once, limits.of_all), "work that has ended is counted");
    assert!(matches!(begin(limits.of_all), (Some(Err(Full { .. })), _)), "work that has begun is not counted");
    drop(begun);
    assert_eq!(queue.taken_and_waiting(), (0, 0));
}

#[test]
fn slots_are_neither_lost_nor_given_twice() {
    in_many_orders(|| {
        let counted = Counted::new(LIMITS);
        let works = (0..5).map(|number| {
            let counted = Arc::clone(&counted);
            spawn(async move {
                let slot = counted.queue.take(Claim::begin(tenant(number / 2))).await.unwrap();
                let slot = counted.work(slot).await;
                // Long work returns its slot and queues again; its place is not refused.
                let slot = if number % 2 == 0 { slot.pass_on().await.unwrap() } else { slot };
                drop(counted.work(slot).await);
            })
        });
        works.collect::<Vec<_>>().into_iter().for_each(|work| block_on(work).unwrap());
        assert_is_as_new(&counted.queue, LIMITS);
    });
}

#[test]
fn slot_given_to_a_cancelled_wait_goes_to_the_next() {
    in_many_orders(|| {
        let counted = Counted::new(LIMITS);
        let taken = [1, 2].map(|of| counted.queue.take(Claim::begin(tenant(of))).now_or_never().unwrap().unwrap());
        let gone = [3, 4].map(|of| {
            let counted = Arc::clone(&counted);
            thread::spawn(move || {
                let mut wait = counted.queue.take(Claim::begin(tenant(of))).boxed();
                // A slot may come before, within and after the end of the wait.
                drop((&mut wait).now_or_never());
                drop(wait);
            })
        });
        let stays = [5, 6, 7].map(|of| {
            let counted = Arc::clone(&counted);
            spawn(async move {
                let slot = counted.queue.take(Claim::begin(tenant(of))).await.unwrap();
                drop(counted.work(slot).await);
            })
        });
        let returns = taken.map(|slot| thread::spawn(move || drop(slot)));
        gone.into_iter().chain(returns).for_each(|done| done.join().unwrap());
        // None of these waits for ever: shuttle finds a thread that does.
        stays.into_iter().for_each(|done| block_on(done).unwrap());
        assert_is_as_new(&counted.queue, LIMITS);
    });
}

#[test]
fn evicted_wait_is_refused_and_every_other_gets_a_slot() {
    const FEW: Limit = Limit { at_once: 1, of_all: 4, ..LIMITS };
    in_many_orders(|| {
        let queue = Arc::new(FairQueue::new(&FEW));
        let held = queue.take(Claim::begin(tenant(1))).now_or_never().unwrap().unwrap();
        let refused = Arc::new(AtomicUsize::new(0));
        let claim = |of: u128| {
            let (queue, refused) = (Arc::clone(&queue), Arc::clone(&refused));
            spawn(async move {
                match queue.take(Claim::begin(tenant(of))).await {
                    Ok(slot) => {
                        let (taken, waiting) = queue.taken_and_waiting();
                        assert!(taken + waiting <= FEW.of_all, "more has begun than may");
                        drop(slot);
                    }
                    Err(Full { .. }) => drop(refused.fetch_add(1, Ordering::SeqCst)),
                }
            })
        };
        // One tenant fills the queue; the others, who have less, take places of its own.
        let claims = [1, 1, 1, 2, 3].map(claim);
        let returns = thread::spawn(move || drop(held));
        claims.into_iter().for_each(|claim| block_on(claim).unwrap());
        returns.join().unwrap();
        assert!(refused.load(Ordering::SeqCst) <= 2, "a place is taken for nobody");
        assert_is_as_new(&queue, FEW);
    });
}

#[test]
fn tenant_with_fewest_slots_is_next_and_its_own_in_order() {
    const ONE: Limit = Limit { at_once: 1, ..LIMITS };
    in_many_orders(|| {
        let queue = Arc::new(FairQueue::new(&ONE));
        let held = queue.take(Claim::begin(tenant(1))).now_or_never().unwrap().unwrap();
        // Those in the line, in the order in which they came: many of one tenant, then one of each other.
        let mut waits: Vec<_> = [(1, 'a'), (1, 'b'), (1, 'c'), (2, 'd'), (3, 'e')]
            .map(|(of, name)| {
                let queue = Arc::clone(&queue);
                (name, async move { queue.take(Claim::begin(tenant(of))).await }.boxed())
            })
            .into();
        assert!(waits.iter_mut().all(|(_, wait)| wait.now_or_never().is_none()));
        let order = Arc::new(Mutex::new(Vec::new()));
        // Each runs in a thread of its own, and returns its slot while others wait for theirs.
        let threads: Vec<_> = waits
            .into_iter()
            .rev()
            .map(|(name, wait)| {
                let order = Arc::clone(&order);
                spawn(async move {
                    let slot = wait.await.unwrap();
                    order.lock().push(name);
                    drop(slot);
                })
            })
            .collect();
        let returns = thread::spawn(move || drop(held));
        threads.into_iter().for_each(|thread| block_on(thread).unwrap());
        returns.join().unwrap();
        assert_eq!(*order.lock(), ['d', 'e', 'a', 'b', 'c']);
    });
}
