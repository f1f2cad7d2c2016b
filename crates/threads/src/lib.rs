//! How threads share the processors. Linux knows a policy for each thread; elsewhere all are alike.

mod giving;
mod policy;

use std::io;
use std::thread;

pub use giving::GivingThreads;
use policy::Policy;

/// This thread works on what has gathered: it does not push aside the thread that woke it, which would only have gathered
/// more. Both still get their share of the processors.
pub fn let_others_finish() {
    policy::follow(Policy::Batch);
}

/// This thread gives way to those less nice, so far as a niceness of nice(2) says.
pub fn give_way(niceness: i32) {
    policy::be_nice(niceness);
}

/// Lets whoever waits for this processor have it first. Those that write gather ([`let_others_finish`]) and push nobody aside:
/// beside work that goes on and on they would wait for the end of its time on the processor, some milliseconds each time.
/// Where nobody waits it costs less than a microsecond, so that long work may say it every tenth of a millisecond.
pub fn let_others_in() {
    thread::yield_now();
}

/// Starts work on a thread of its own that gets only what others leave of the processors: whoever wants one takes it away
/// at once. That may be next to nothing for as long as all are busy, so nobody should wait for the work without end.
///
/// # Errors
/// There can be no further thread at present; nothing was done.
pub fn start_with_what_is_left(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let alone = || {
        policy::follow(Policy::Idle);
        work();
    };
    thread::Builder::new().name(name.to_owned()).spawn(alone).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_is_scheduled_as_it_asked_for() {
        let policy = || policy::of_this_thread();
        let (tell, told) = std::sync::mpsc::channel();
        start_with_what_is_left("left", move || tell.send(policy()).unwrap()).unwrap();
        assert_eq!(told.recv().unwrap(), Some(Policy::Idle));
        let batch = thread::spawn(move || {
            let_others_finish();
            policy()
        });
        assert_eq!(batch.join().unwrap(), Some(Policy::Batch));
        assert_eq!(policy(), None);
    }
}
