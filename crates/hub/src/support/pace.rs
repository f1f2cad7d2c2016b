//! Much work on a thread that serves calls: it goes piece by piece, so that no call waits for more than one piece of it.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// The pace of work that has many pieces side by side.
#[derive(Default)]
pub(crate) struct Pace(Mutex<()>);

impl Pace {
    /// Waits until the next piece may begin: when everything else that is ready has had its turn since the piece before.
    pub(crate) async fn next(&self) {
        let _turn = self.0.lock().await;
        tokio::task::yield_now().await;
    }
}

/// The pace of work whose pieces are much shorter than what a call may wait: others have their turn after a slice of it.
pub(crate) struct Slices {
    lasts: Duration,
    began: parking_lot::Mutex<Instant>,
}

impl Slices {
    /// Slices of this length. The first begins now.
    pub(crate) fn of(lasts: Duration) -> Self {
        Self { lasts, began: parking_lot::Mutex::new(Instant::now()) }
    }

    /// Waits until the next piece may begin: at once within a slice, else when everything else that is ready has had its turn.
    pub(crate) async fn next(&self) {
        if self.began.lock().elapsed() >= self.lasts {
            tokio::task::yield_now().await;
            *self.began.lock() = Instant::now();
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
    async fn after_a_slice_others_have_their_turn() {
        let is_pending = async |slices: &Slices| futures::poll!(Box::pin(slices.next())).is_pending();
        assert!(is_pending(&Slices::of(Duration::ZERO)).await);
        assert!(!is_pending(&Slices::of(Duration::MAX)).await);
    }

    #[tokio::test]
    async fn between_two_pieces_others_have_their_turn() {
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
