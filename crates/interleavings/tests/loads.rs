//! Loads of one key: whatever the order in which they begin, end and are cancelled, exclusive ones take turns, each hears
//! of the changes of its key, and the last leaves no entry.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail with the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use isobar_interleavings::in_many_orders;
use isobar_interleavings::single_flight::SingleFlight;
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::thread;

const KEY: u32 = 1;

#[test]
fn exclusive_loads_take_turns_and_leave_no_entry() {
    in_many_orders(|| {
        let (flights, is_loading) = (Arc::new(SingleFlight::new()), Arc::new(AtomicBool::new(false)));
        let loads = [(); 3].map(|()| {
            let (flights, is_loading) = (Arc::clone(&flights), Arc::clone(&is_loading));
            spawn(async move {
                let load = flights.alone(&KEY).await;
                assert!(!is_loading.swap(true, Ordering::SeqCst), "two loads at the same time");
                assert!(!load.is_outdated(), "a load hears of changes before it");
                flights.invalidate(&KEY);
                yield_now().await;
                assert!(load.is_outdated(), "a load does not hear of a change");
                is_loading.store(false, Ordering::SeqCst);
                drop(load);
            })
        });
        let others = [false, true].map(|is_cancelled| {
            let flights = Arc::clone(&flights);
            thread::spawn(move || match is_cancelled {
                true => drop(flights.alone(&KEY).now_or_never()),
                false => drop(flights.concurrent(&KEY)),
            })
        });
        loads.into_iter().for_each(|load| block_on(load).unwrap());
        others.into_iter().for_each(|other| other.join().unwrap());
        // An entry that is left would know of the changes above.
        assert_eq!(flights.concurrent(&KEY).invalidations(), 0, "an entry is left");
    });
}
