//! Collects rows of SQLite in batches.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::Duration;

/// Pause in which more rows gather before the next poll.
const PAUSE: Duration = Duration::from_micros(20);
/// Pauses in a row, after which the reader waits to be woken.
const PAUSES: usize = 10;

/// Polls a future that reads rows in few steps. SQLite's thread hands over row by row and wakes the reader for each: a
/// list of a hundred rows took two hundred thread switches, most of its time. From the first row on, a thread that may
/// block pauses instead until more rows have gathered. A thread that serves requests never pauses.
pub(super) async fn gathered<T>(reading: impl Future<Output = T>) -> T {
    let mut reading = pin!(reading);
    let mut has_begun = false;
    let step = poll_fn(|context| {
        for _ in 0..PAUSES {
            if let Poll::Ready(rows) = reading.as_mut().poll(context) {
                return Poll::Ready(rows);
            }
            // The first row may take long, so no pause waits for it.
            if !std::mem::replace(&mut has_begun, true) || isobar_threads::serves() {
                break;
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "gives the processor to SQLite's thread, for less than a clock measures"
            )]
            thread::sleep(PAUSE);
        }
        Poll::Pending
    });
    step.await
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    /// Polls this often a future that is ready at the fifth poll; returns true if it became ready.
    fn is_done_after(looks: usize) -> bool {
        let mut left = 5;
        let reading = poll_fn(move |_| {
            left -= 1;
            if left == 0 { Poll::Ready(()) } else { Poll::Pending }
        });
        let mut rows = pin!(gathered(reading));
        (0..looks).any(|_| rows.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready())
    }

    #[test]
    fn blocking_thread_polls_again_after_the_first_row() {
        assert!(!is_done_after(1));
        assert!(is_done_after(2));
        let who_serves = || {
            isobar_threads::serve();
            (is_done_after(4), is_done_after(5))
        };
        assert_eq!(thread::spawn(who_serves).join().unwrap(), (false, true));
    }
}
