//! Paces long work on a serving thread: it runs in pieces, so that no call waits for more than one piece of it.

use std::time::{Duration, Instant};

use isobar_model::time::Clock;
use tokio::sync::Mutex;

/// The pace of concurrent pieces of work.
#[derive(Default)]
pub(crate) struct Pace(Mutex<()>);

impl Pace {
    /// Waits until the next piece may begin: when all other ready tasks have had their turn since the last piece.
    pub(crate) async fn next(&self) {
        let _turn = self.0.lock().await;
        tokio::task::yield_now().await;
    }
}

/// Groups pieces that are much shorter than a call may wait into slices. The slices of one pace follow one another, and
/// between two of them all other ready tasks have their turn, however many works there are.
pub(crate) struct Slices<'p> {
    pace: &'p Pace,
    lasts: Duration,
    began: parking_lot::Mutex<Option<Instant>>,
}

impl<'p> Slices<'p> {
    /// Makes slices of this length.
    pub(crate) fn of(pace: &'p Pace, lasts: Duration) -> Self {
        Self { pace, lasts, began: parking_lot::Mutex::new(None) }
    }

    /// Waits until the next piece may begin: at once within a slice.
    pub(crate) async fn next(&self) {
        let goes_on = self.began.lock().is_some_and(|began| Clock::System.elapsed(began) < self.lasts);
        if !goes_on {
            self.pace.next().await;
            *self.began.lock() = Some(Clock::System.instant());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::StreamExt as _;
    use futures::stream;

    use super::*;

    #[tokio::test]
    async fn other_tasks_run_after_each_slice() {
        let pace = Pace::default();
        let is_pending = async |slices: &Slices<'_>| futures::poll!(Box::pin(slices.next())).is_pending();
        let (short, long) = (Slices::of(&pace, Duration::ZERO), Slices::of(&pace, Duration::MAX));
        for slices in [&short, &long] {
            assert!(is_pending(slices).await, "a first slice is no sooner than those of others");
            slices.next().await;
        }
        assert!(is_pending(&short).await && !is_pending(&long).await);
    }

    #[tokio::test]
    async fn other_tasks_run_between_two_pieces() {
        let (pace, pieces, most) = (Pace::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        let work = stream::iter(0..200).map(|_| async {
            pace.next().await;
            pieces.fetch_add(1, Ordering::Relaxed);
        });
        let work = work.buffer_unordered(64).collect::<Vec<()>>();
        let other = async {
            let mut seen = 0;
            while seen < 200 {
                tokio::task::yield_now().await;
                let now = pieces.load(Ordering::Relaxed);
                most.fetch_max(now - seen, Ordering::Relaxed);
                seen = now;
            }
        };
        futures::join!(work, other);
        assert_eq!(most.into_inner(), 1);
    }
}
