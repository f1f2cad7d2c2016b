//! How threads share the processors. Linux knows a policy for each thread; elsewhere all are alike.

mod policy;

use std::io;
use std::panic::resume_unwind;
use std::thread;

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

/// Does work on a thread of its own that gets only what others leave of the processors, while this thread waits. Whoever
/// wants a processor takes it away from the work at once, so the work must not hold anything that others wait for.
///
/// # Errors
/// There can be no further thread at present; nothing was done.
pub fn with_what_is_left<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let on_its_own = || {
            policy::follow(Policy::Idle);
            work()
        };
        let spawned = thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, on_its_own)?;
        Ok(spawned.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_on_a_thread_of_its_own_and_its_outcome_is_given_back() {
        let here = thread::current().id();
        let text = String::from("seen");
        let (there, told) = with_what_is_left("left", || (thread::current().id(), format!("{text} there"))).unwrap();
        assert_ne!(here, there);
        assert_eq!(told, "seen there");
    }

    #[test]
    fn what_the_work_panics_with_goes_on_here() {
        let outcome = std::panic::catch_unwind(|| with_what_is_left("left", || assert_eq!(1, 2)));
        assert!(outcome.is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_is_scheduled_as_it_asked_for() {
        let policy = || policy::of_this_thread();
        assert_eq!(with_what_is_left("left", policy).unwrap(), Some(Policy::Idle));
        let batch = thread::spawn(move || {
            let_others_finish();
            policy()
        });
        assert_eq!(batch.join().unwrap(), Some(Policy::Batch));
        assert_eq!(policy(), None);
    }
}
