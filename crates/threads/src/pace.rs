//! How long work lets others in.

#![expect(clippy::disallowed_methods, reason = "how threads share the machine's processors goes by the machine's time")]

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use crate::{policy, serves};

/// How long a thread that rests works before it does.
const PIECE: Duration = Duration::from_micros(500);
/// How long it rests then, and how exactly: long enough that whoever waits for its processor gets it.
const REST: Duration = Duration::from_micros(20);
const SLACK: Duration = Duration::from_micros(1);
/// Steps of long work between two looks at the clock.
const STEPS_A_LOOK: u32 = 256;

thread_local! {
    /// When a thread that rests was looked at last; none: it does not rest.
    static LOOKED: Cell<Option<Instant>> = const { Cell::new(None) };
    /// How long it had worked when it rested last.
    static WORKED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// This thread rests from here on.
pub(crate) fn begin() {
    policy::wake_within(SLACK);
    rested();
}

fn rested() {
    LOOKED.set(Some(Instant::now()));
    WORKED.set(policy::processor_time().unwrap_or_default());
}

/// Lets whoever waits for this processor have it. Long work says it every tenth of a millisecond, so that nobody waits for
/// the system's next look, which comes every 4 ms on many a machine: whoever has just had more than his share is passed over
/// until then, even where a thread that gives way has the processor.
///
/// A thread that gives way rests for a moment, now and then, and keeps its share of the processor: had it yielded, it would
/// have waited until all others were done for as long as it may work at a time (Linux, since 6.18). Any other thread yields:
/// it pushes nobody aside, and where nobody waits that costs less than a microsecond.
pub fn let_others_in() {
    if LOOKED.get().is_some() {
        rest();
    } else {
        thread::yield_now();
    }
}

/// Lets whoever waits for this processor have it, on a thread that is as nice as those that serve and may block: from the first
/// time on it rests like one that gives way, for yielding costs it as much (see [`let_others_in`]). One that serves does nothing.
pub fn rest_at_times() {
    if !serves() {
        if LOOKED.get().is_none() {
            begin();
        }
        rest();
    }
}

/// Rests, if this thread does and it is time. What it has waited for others counts as rest: only work makes it long.
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

/// The pace of work that is long on some threads and short on others, step by step: where it gives way it lets others in,
/// elsewhere it goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace(u32);

impl Pace {
    /// Another step, of a tenth of a microsecond or so.
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
