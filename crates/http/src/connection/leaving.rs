//! Connections that their clients end: one that had many may end all of them at once.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Connections that end before others have their turn on the thread: some hundred microseconds' work, for the system has each
/// end taken leave of.
const ENDED_AT_ONCE: usize = 16;

/// Lets connections end a few at a time.
#[derive(Clone, Debug)]
pub(super) struct Leaving(Arc<Semaphore>);

impl Leaving {
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(ENDED_AT_ONCE)))
    }

    /// Waits until a connection that its client has ended may be closed. Others have theirs in between.
    pub async fn turn(self) {
        let _turn = self.0.acquire().await;
        // Others come first: those who are ready now, and those whose bytes have come.
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use isobar_hub::spawn_guarded;

    use super::*;

    #[tokio::test]
    async fn many_that_end_at_once_leave_others_their_turn() {
        const ENDING: usize = 1_000;
        let (leaving, ended) = (Leaving::new(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..ENDING {
            let (turn, ended) = (leaving.clone().turn(), Arc::clone(&ended));
            spawn_guarded("connection", async move {
                turn.await;
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        let (mut before, mut passes) = (0, 0);
        while before < ENDING {
            tokio::task::yield_now().await;
            let now = ended.load(Ordering::Relaxed);
            // One pass may end where the next begins.
            assert!(now - before <= 2 * ENDED_AT_ONCE, "{} ended without a turn for anybody else", now - before);
            before = now;
            passes += 1;
        }
        assert!(passes >= ENDING / (2 * ENDED_AT_ONCE), "{passes}");
    }
}
