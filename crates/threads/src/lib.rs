//! How threads share the processors. Linux knows a policy for each thread; elsewhere all are alike.

mod gathering;
mod giving;
mod pace;
mod policy;
mod serving;

use std::io;
use std::thread;
use std::time::Duration;

pub use gathering::Gathering;
pub use giving::GivingThreads;
pub use pace::{Pace, let_others_in, rest_at_times};
use policy::Policy;
pub use serving::{begin, serve, serve_no_more, serves};

/// How long those that others wait for have a processor at a time.
const SOON: Duration = Duration::from_micros(300);
/// The same of those that give way. It is the longest: anybody else takes the processor from them as soon as he is woken.
const GIVING: Duration = Duration::from_millis(20);

/// Others wait for this thread: woken, it takes the processor from a thread that had it for longer, and has it for a short
/// time then. Both still get their share of it.
pub fn come_soon() {
    policy::follow(Policy::Usual, Some(SOON));
}

/// This thread comes when it is its turn, as is usual. Whoever is not told otherwise is scheduled like the thread that started
/// it.
pub(crate) fn come_in_turn() {
    policy::follow(Policy::Usual, None);
}

/// This thread gives way to those less nice, so far as a niceness of nice(2) says, and to each of them as soon as it is woken.
pub fn give_way(niceness: i32) {
    policy::be_nice(niceness, GIVING);
    pace::begin();
}

/// Starts work on a thread of its own that gets only what others leave of the processors: whoever wants one takes it away
/// at once. That may be next to nothing for as long as all are busy, so nobody should wait for the work without end.
///
/// # Errors
/// There can be no further thread at present; nothing was done.
pub fn start_with_what_is_left(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let alone = || {
        policy::follow(Policy::Idle, None);
        work();
    };
    thread::Builder::new().name(name.to_owned()).spawn(alone).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_with_what_is_left_is_done() {
        let (tell, told) = std::sync::mpsc::channel();
        start_with_what_is_left("left", move || tell.send(7).unwrap()).unwrap();
        assert_eq!(told.recv().unwrap(), 7);
    }
}
