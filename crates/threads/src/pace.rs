//! Makes long work yield to other threads at intervals.

#![expect(clippy::disallowed_methods, reason = "how threads share the machine's processors goes by the machine's time")]

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use crate::{policy, serves};

/// Working time of a thread after which it rests.
const PIECE: Duration = Duration::from_micros(500);
/// Length of a rest, and (next constant) its precision: long enough for a thread that waits for the processor to get
/// it.
const REST: Duration = Duration::from_micros(20);
const SLACK: Duration = Duration::from_micros(1);
/// Steps of long work between two reads of the clock.
const STEPS_A_LOOK: u32 = 256;

thread_local! {
    /// Moment of the last check of a thread that rests; `None` if it does not rest.
    static LOOKED: Cell<Option<Instant>> = const { Cell::new(None) };
    /// Processor time that the thread had used at its last rest.
    static WORKED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Makes this thread rest at intervals from here on.
pub(crate) fn begin() {
    policy::wake_within(SLACK);
    rested();
}

fn rested() {
    LOOKED.set(Some(Instant::now()));
    WORKED.set(policy::processor_time().unwrap_or_default());
}

/// Lets a thread that waits for this processor have it. Long work calls this every tenth of a millisecond, so that
/// other threads need not wait for the system's next check, which comes every 4 ms on many machines: a thread that has
/// just exceeded its share is skipped until then, even if a thread that yields has the processor.
///
/// A thread that yields by niceness sleeps for a moment at intervals, and keeps its share of the processor:
/// `sched_yield` would make it wait for all others for a whole time slice (Linux, since 6.18). Any other thread calls
/// `sched_yield`: it displaces no thread, and costs less than a microsecond if none waits.
pub fn let_others_in() {
    if LOOKED.get().is_some() {
        rest();
    } else {
        thread::yield_now();
    }
}

/// Lets a thread that waits for this processor have it, on a thread that is as nice as serving ones and may block: from
/// the first call on it rests like one that yields, because `sched_yield` costs it as much (see [`let_others_in`]). A
/// serving thread does nothing.
pub fn rest_at_times() {
    if !serves() {
        if LOOKED.get().is_none() {
            begin();
        }
        rest();
    }
}

/// Rests if this thread does so and the time has come. Time spent waiting counts as rest: only processor time makes a
/// rest due.
fn rest() {
    if LOOKED.get().is_none_or(|since| since.elapsed() < PIECE) {
        return;
    }
    if policy::processor_time().is_some_and(|worked| worked < WORKED.get() + PIECE) {
        LOOKED.set(Some(Instant::now()));
    } else {
        thread::sleep(REST);
        rested();
    }
}

/// Counter of steps in work that is long on some threads and short on others: it rests on threads that yield, and does
/// nothing on others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace(u32);

impl Pace {
    /// Counts a step, of about a tenth of a microsecond.
    #[inline]
    pub fn step(&mut self) {
        self.0 += 1;
        if self.0 == STEPS_A_LOOK {
            self.0 = 0;
            rest();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{give_way, serve};

    /// Returns true if a thread that does this work is one that rests.
    fn rests(work: impl FnOnce() + Send + 'static) -> bool {
        let work = move || {
            work();
            LOOKED.get().is_some()
        };
        thread::spawn(work).join().unwrap()
    }

    fn long_work() {
        let mut pace = Pace::default();
        (0..STEPS_A_LOOK).for_each(|_| pace.step());
    }

    #[test]
    fn long_work_rests_where_it_gives_way_and_nowhere_else() {
        assert!(rests(|| {
            give_way(3);
            long_work();
        }));
        assert!(!rests(long_work));
    }

    #[test]
    fn thread_that_may_block_rests_and_one_that_serves_never() {
        assert!(rests(rest_at_times));
        assert!(!rests(|| {
            serve();
            rest_at_times();
        }));
    }
}
