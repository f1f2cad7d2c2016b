use std::pin::pin;

use futures::poll;
use isobar_hub::spawn_guarded;
use isobar_power::within_patience;

use super::*;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

/// Closes at most `count` connections idle for at least `at_least`. Returns how many.
fn close_idle(slots: &Slots, now: Timestamp, count: usize, at_least: u64) -> usize {
    slots.close(&slots.idle_longest(now, |_| count, at_least))
}

/// Waits for a free slot, with a limit that only a hanging test reaches.
async fn is_freed(slots: &Slots, now: Timestamp) {
    within_patience("a slot is free", slots.free(|| now)).await;
}

/// Adds a connection that stays open until it is closed.
fn connects(slots: &Arc<Slots>, now: Timestamp) -> Arc<Slot> {
    let mut slot = None;
    slots.take(now, |guard| {
        slot = Some(Arc::clone(&guard.slot));
        spawn_guarded("connection", async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        })
    });
    slot.unwrap()
}

/// Connection whose task has ended but that still has its slot, as when other tasks are ahead on the thread.
struct Leaves(Option<SlotGuard>, Arc<Mutex<Vec<SlotGuard>>>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.1.lock().extend(self.0.take());
    }
}

#[tokio::test]
async fn no_connection_is_closed_while_closed_ones_still_end() {
    let (slots, leaving) = (Slots::new(1_000, Clock::System), Arc::default());
    let connects_and_stays = |moment| {
        slots.take(moment, |guard| {
            let leaves = Leaves(Some(guard), Arc::clone(&leaving));
            spawn_guarded("connection", async move {
                let _leaves = leaves;
                std::future::pending::<()>().await;
            })
        });
    };
    (0..1_000).for_each(|_| connects_and_stays(at(0)));
    for _ in 0..100 {
        let mut free = pin!(slots.free(|| at(5_000)));
        assert!(poll!(&mut free).is_pending());
        while leaving.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        let left = leaving.lock().pop();
        drop(left);
        within_patience("a slot is free", free).await;
        connects_and_stays(at(5_000));
    }
    assert!(leaving.lock().len() <= slots.closed_for_one(), "{} were closed in vain", leaving.lock().len());
    assert_eq!(slots.count(), 1_000);
    // No counted connection is left.
    let left = std::mem::take(&mut *leaving.lock());
    drop(left);
    assert_eq!(slots.ending.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn longest_idle_connections_are_closed_unused_ones_first() {
    let slots = Slots::new(5, Clock::System);
    let (slow, silent, busy) = (connects(&slots, at(0)), connects(&slots, at(7_000)), connects(&slots, at(0)));
    let (quick, new) = (connects(&slots, at(0)), connects(&slots, at(9_500)));
    slow.becomes_idle(at(0));
    quick.becomes_idle(at(8_500));
    assert!(busy.begin());
    let closed = |count, at_least| close_idle(&slots, at(10_000), count, at_least);
    assert_eq!(closed(1, 0), 1);
    assert!(silent.is_closed() && !slow.is_closed());
    assert_eq!(closed(1, 10_001), 0);
    assert_eq!(closed(2, 0), 2);
    assert!(slow.is_closed() && quick.is_closed() && !busy.is_closed() && !new.is_closed());
    // Busy connections and new ones stay open.
    assert_eq!(closed(9, 0), 0);
    assert!(!silent.begin() && silent.is_closed() && busy.begin());
}

#[tokio::test]
async fn only_a_complete_head_keeps_a_slot() {
    let slots = Slots::new(3, Clock::System);
    let [begun, asks, new] = [0, 0, 9_500].map(|moment| connects(&slots, at(moment)));
    assert_eq!([&begun, &asks, &new].map(|slot| slot.bytes_came()), [Some(true); 3]);
    assert!(asks.head_complete());
    assert_eq!(close_idle(&slots, at(10_000), 9, 0), 1);
    assert!(begun.is_closed() && !begun.head_complete() && new.head_complete());
}

#[tokio::test]
async fn slot_is_freed_when_its_connection_ends() {
    let clock = Clock::manual(at(0));
    let slots = Slots::new(2, clock.clone());
    connects(&slots, at(0));
    let busy = connects(&slots, at(0));
    assert!(busy.begin());
    is_freed(&slots, at(5_000)).await;
    assert_eq!(slots.count(), 1);
    is_freed(&slots, at(5_000)).await;
    connects(&slots, at(5_000));
    // All are busy until one becomes idle.
    let mut free = pin!(slots.free(|| at(5_500)));
    for _ in 0..3 {
        assert!(poll!(&mut free).is_pending());
        clock.pass(IDLE_CHECK_EVERY);
    }
    busy.becomes_idle(at(4_000));
    within_patience("a slot is free", free).await;
    assert_eq!(slots.count(), 1);
}

#[tokio::test]
async fn long_idle_connections_are_closed_only_near_the_limit() {
    let slots = Slots::new(16, Clock::System);
    let all: Vec<_> = (0..14).map(|number| connects(&slots, at(number))).collect();
    all.iter().for_each(|slot| slot.becomes_idle(at(0)));
    slots.keep_some_free(at(10_000_000)).await;
    assert!(!all.iter().any(|slot| slot.is_closed()));
    let more = [connects(&slots, at(10_000_000)), connects(&slots, at(10_000_000))];
    slots.keep_some_free(at(10_000_000)).await;
    assert_eq!(all.iter().filter(|slot| slot.is_closed()).count(), 2);
    assert!(!more.iter().any(|slot| slot.is_closed()));
}

#[tokio::test]
async fn idle_connections_are_closed_in_batches() {
    let slots = Slots::new(1_000, Clock::System);
    let all: Vec<_> = (0..1_000).map(|_| connects(&slots, at(0))).collect();
    all.iter().for_each(|slot| slot.becomes_idle(at(0)));
    let closed = || all.iter().filter(|slot| slot.is_closed()).count();
    let mut closing = pin!(slots.keep_some_free(at(10_000_000)));
    assert!(poll!(&mut closing).is_pending(), "there are more");
    assert_eq!(closed(), CLOSED_AT_ONCE);
    // A connection that is used meanwhile stays open.
    let used = all.iter().find(|slot| !slot.is_closed()).unwrap();
    assert!(used.begin());
    closing.await;
    assert!(!used.is_closed());
    assert!((CLOSED_AT_ONCE..=1_000 / SLOTS_KEPT_FREE).contains(&closed()), "{}", closed());
    slots.keep_some_free(at(10_000_000)).await;
    assert_eq!(closed(), 1_000 / SLOTS_KEPT_FREE);
}

#[tokio::test]
async fn one_scan_serves_many_new_connections() {
    let slots = Slots::new(1_000, Clock::System);
    // Newest first, so that neither number nor position reveals the idle time.
    let all: Vec<_> = (0..1_000).rev().map(|moment| connects(&slots, at(moment))).collect();
    let closed = || all.iter().rev().filter(|slot| slot.is_closed()).count();
    let one = slots.closed_for_one();
    assert_eq!(slots.close_idle(at(5_000)).await, one);
    assert!(all.iter().rev().take(one).all(|slot| slot.is_closed()));
    // Some of the next connections are used meanwhile: they stay, and no others are closed in their place.
    let used: Vec<_> = all.iter().rev().skip(one).step_by(2).take(one).collect();
    used.iter().for_each(|slot| slot.becomes_idle(at(5_001)));
    let mut next = 0;
    while next < one / 2 {
        next += slots.close_idle(at(5_500)).await;
    }
    assert!(all.iter().rev().take(one + 2 * next).filter(|slot| slot.is_closed()).count() == one + next);
    assert_eq!((closed(), used.iter().filter(|slot| slot.is_closed()).count()), (one + next, 0));
}

#[tokio::test]
async fn used_connections_are_replaced_by_a_new_scan() {
    let slots = Slots::new(100, Clock::System);
    let all: Vec<_> = (0..100).map(|moment| connects(&slots, at(moment))).collect();
    let one = slots.closed_for_one();
    assert_eq!(slots.close_idle(at(5_000)).await, one);
    all.iter().skip(one).take(50).for_each(|slot| assert!(slot.begin()));
    assert_eq!(slots.close_idle(at(5_001)).await, one);
    assert!(all.iter().skip(one + 50).take(one).all(|slot| slot.is_closed()));
}

#[test]
fn scan_result_expires() {
    let found = || FoundIdle { left: vec![(3, 30), (2, 20), (1, 10)], at: 1_000 };
    assert_eq!(found().next(2, 1_000 + FOUND_MILLIS_MAX), Some(vec![(1, 10), (2, 20)]));
    assert_eq!(found().next(2, 1_001 + FOUND_MILLIS_MAX), None);
    assert_eq!(found().next(4, 1_000), None);
    // The clock was set back.
    assert_eq!(found().next(1, 999), None);
}

#[tokio::test]
async fn clock_set_back_closes_no_connection_at_once() {
    let slots = Slots::new(1, Clock::System);
    let slot = connects(&slots, at(1_000_000));
    assert_eq!(close_idle(&slots, at(0), 1, 0), 0);
    assert_eq!(close_idle(&slots, at(500), 1, 0), 0);
    assert_eq!(close_idle(&slots, at(1_000), 1, 0), 1);
    assert!(slot.is_closed());
}

#[test]
fn connection_is_idle_only_between_requests() {
    let slot = Slot::new(at(0));
    let is_idle = || slot.idle_weight(millis(at(5_000)), 0).is_some();
    assert!(is_idle());
    assert_eq!(slot.bytes_came(), Some(true));
    assert!(is_idle() && slot.awaits_head() && !slot.is_answering());
    assert_eq!(slot.bytes_came(), None);
    assert!(slot.head_complete() && !is_idle() && slot.is_answering());
    assert_eq!(slot.bytes_came(), None);
    slot.all_sent(|| at(1));
    assert!(!is_idle() && !slot.awaits_head());
    slot.response_made();
    assert!(!is_idle());
    slot.all_sent(|| at(1));
    assert!(is_idle());
    // The next request may arrive before the response is sent.
    slot.bytes_came();
    slot.head_complete();
    slot.response_made();
    assert_eq!(slot.bytes_came(), Some(true));
    assert!(!is_idle() && slot.awaits_head() && slot.is_answering());
    slot.all_sent(|| at(1));
    assert!(is_idle() && slot.awaits_head() && !slot.is_answering());
}

#[test]
fn partial_head_on_the_fast_path_keeps_no_slot() {
    let slot = Slot::new(at(0));
    assert!(slot.begin());
    assert_eq!(slot.bytes_came(), Some(true));
    slot.all_sent(|| at(1));
    assert!(slot.idle_weight(millis(at(5_000)), 0).is_some() && slot.awaits_head());
}

#[test]
fn frequent_event_is_logged_once_a_second() {
    let (mut many, begun) = (LogThrottle::default(), Clock::System.instant());
    let nearly = begun + LOG_EVERY - Duration::from_nanos(1);
    assert_eq!(many.due(begun), None);
    many.count(3);
    assert_eq!(many.due(begun), Some(3));
    many.count(2);
    many.count(2);
    assert_eq!(many.due(nearly), None);
    assert_eq!((many.due(begun + LOG_EVERY), many.due(begun + LOG_EVERY)), (Some(4), None));
}
