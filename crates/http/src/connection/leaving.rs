//! Paces connections that clients end: a client may end many at once.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Connections closed before the thread serves other tasks: closing them takes the kernel some hundred microseconds.
const ENDED_AT_ONCE: usize = 16;

/// Semaphore that lets connections close a few at a time.
#[derive(Clone, Debug)]
pub(super) struct Leaving(Arc<Semaphore>);

impl Leaving {
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(ENDED_AT_ONCE)))
    }

    /// Waits until a connection that its client has ended may close, and lets other tasks run in between.
    pub async fn turn(self) {
        let _turn = self.0.acquire().await;
        // Yields to tasks that are ready and to those whose bytes have arrived.
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use isobar_hub::spawn_guarded;

    use super::*;

    #[tokio::test]
    async fn many_ending_connections_yield() {
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
            // One batch may end where the next begins.
            assert!(now - before <= 2 * ENDED_AT_ONCE, "{} ended without a turn for anybody else", now - before);
            before = now;
            passes += 1;
        }
        assert!(passes >= ENDING / (2 * ENDED_AT_ONCE), "{passes}");
    }
}
