//! Divides the processors among threads. Linux has a scheduling policy for each thread; other systems treat all threads
//! alike.

mod gathering;
mod giving;
mod pace;
mod policy;
mod serving;

use std::time::Duration;

pub use gathering::Gathering;
pub use giving::GivingThreads;
pub use pace::{Pace, let_others_in, rest_at_times};
use policy::Policy;
pub use serving::{begin, serve, serve_no_more, serves};

/// Time slice of threads on which others wait.
const SOON: Duration = Duration::from_micros(300);
/// Time slice of threads that yield. It is the longest: any other thread preempts them as soon as it is woken.
const GIVING: Duration = Duration::from_millis(20);

/// Schedules this thread as one on which others wait: when woken, it preempts a thread with a longer time slice, and
/// runs for a short slice. Both still get their share of the processor.
pub fn come_soon() {
    policy::follow(Policy::Usual, Some(SOON));
}

/// Schedules this thread as usual. Threads inherit the scheduling of the thread that started them until it is set.
pub(crate) fn come_in_turn() {
    policy::follow(Policy::Usual, None);
}

/// Makes this thread yield to less nice ones, by a niceness of nice(2), and lets each of them preempt it as soon as it
/// is woken.
pub fn give_way(niceness: i32) {
    policy::be_nice(niceness, GIVING);
    pace::begin();
}
