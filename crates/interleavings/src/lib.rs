//! Small concurrent pieces of other crates, compiled a second time for model tests: their lock is shuttle's, which
//! chooses at each lock and unlock the thread that runs next. So a test runs a scene in thousands of different orders,
//! and a failure prints the schedule that repeats it.
//!
//! The sources are those of the product, unchanged; they only find another `parking_lot`. Channels and semaphores are
//! tokio's own: the locks in them are unknown to shuttle, and need not be known, as none is held while another thread
//! runs. Their wakers are executor-agnostic, and a wait for them is a wait in shuttle.

// The unit tests of the sources run in their own crates, with true locks.
#![cfg(not(test))]

// What the sources call `parking_lot` is this crate.
extern crate self as parking_lot;

mod mutex;
#[path = "../../quota/src/lib.rs"]
pub mod quota;
// It is private in its own crate, where the lint does not apply.
#[expect(clippy::new_without_default)]
#[path = "../../hub/src/cache/single_flight.rs"]
pub mod single_flight;

use shuttle::Config;
use shuttle::Runner;
use shuttle::scheduler::{PctScheduler, RandomScheduler};

pub use mutex::{Mutex, MutexGuard};
// The sources of `quota` name each other from the root of their crate.
pub use quota::*;

/// Orders in which each scene runs unless `ISOBAR_TEST_SCHEDULES` says otherwise.
const SCHEDULES: usize = 2_000;

/// Preemptions of a schedule that switches threads rarely.
const PREEMPTIONS: usize = 3;

/// Runs a scene in many orders: half of them random at each step, and half with few preemptions at random steps, which
/// let a thread run far ahead of the others.
pub fn in_many_orders(scene: impl Fn() + Send + Sync + Clone + 'static) {
    let schedules = std::env::var("ISOBAR_TEST_SCHEDULES").ok().and_then(|number| number.parse().ok());
    let half = schedules.unwrap_or(SCHEDULES).div_ceil(2);
    Runner::new(RandomScheduler::new(half), Config::new()).run(scene.clone());
    Runner::new(PctScheduler::new(PREEMPTIONS, half), Config::new()).run(scene);
}
