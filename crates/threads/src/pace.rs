//! How long work lets others in.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use crate::policy;

/// How long a thread that gives way works without a rest.
const PIECE: Duration = Duration::from_micros(500);
/// How long it rests then, and how exactly: long enough that whoever waits for its processor gets it.
const REST: Duration = Duration::from_micros(20);
const SLACK: Duration = Duration::from_micros(1);
/// Steps of long work between two looks at the clock.
const STEPS_A_LOOK: u32 = 256;

thread_local! {
    /// When a thread that gives way has rested last; none: it does not.
    static RESTED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// This thread gives way.
pub(crate) fn begin() {
    policy::wake_within(SLACK);
    RESTED.set(Some(Instant::now()));
}

/// Lets whoever waits for this processor have it. Long work says it every tenth of a millisecond, so that nobody waits for
/// the system's next look, which comes every 4 ms on many a machine: whoever has just had more than his share is passed over
/// until then, even where a thread that gives way has the processor.
///
/// A thread that gives way rests for a moment, now and then, and keeps its share of the processor: had it yielded, it would
/// have waited until all others were done for as long as it may work at a time (Linux, since 6.18). Any other thread yields:
/// it pushes nobody aside, and where nobody waits that costs less than a microsecond.
pub fn let_others_in() {
    if RESTED.get().is_some() {
        rest();
    } else {
        thread::yield_now();
    }
}

/// Rests, if this thread gives way and it is time.
fn rest() {
    if RESTED.get().is_some_and(|since| since.elapsed() >= PIECE) {
        thread::sleep(REST);
        RESTED.set(Some(Instant::now()));
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::give_way;

    /// How often this thread has given its processor away by itself (proc_pid_status(5)).
    fn rests() -> Option<u64> {
        let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse().ok()
    }

    /// Works until it has rested so often, or has worked for so long; how often it rested.
    fn rests_in(enough: u64, most: Duration) -> Option<u64> {
        let (before, begun, mut pace) = (rests()?, Instant::now(), Pace::default());
        while begun.elapsed() < most && rests()? - before < enough {
            (0..STEPS_A_LOOK).for_each(|_| pace.step());
        }
        Some(rests()? - before)
    }

    #[test]
    fn long_work_rests_where_it_gives_way_and_nowhere_else() {
        let giving = || {
            give_way(3);
            rests_in(20, Duration::from_secs(30))
        };
        assert!(thread::spawn(giving).join().unwrap().unwrap() >= 20);
        assert_eq!(thread::spawn(|| rests_in(1, Duration::from_millis(50))).join().unwrap(), Some(0));
    }
}
