//! Detects peers that read a response too slowly (contract: Behind a proxy, and without one).

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use isobar_model::time::Clock;

use crate::request::time_for;

/// Time without unsent data after which a peer's measurement restarts.
const RECOVERY_TIME: Duration = Duration::from_secs(1);

/// Measures if a peer reads what is sent to it fast enough. Only time with unsent data counts.
pub(super) struct SlowPeer {
    time: Duration,
    began: Instant,
    taken: usize,
    /// Time since when all data is taken.
    all_taken: Option<Instant>,
    /// Deadline of the peer, and the timer for it.
    over: Option<(Instant, BoxFuture<'static, ()>)>,
    clock: Clock,
}

impl SlowPeer {
    /// Begins to measure: data waits for the peer from now on.
    pub fn new(time: Duration, clock: Clock) -> Self {
        Self { time, began: clock.instant(), taken: 0, all_taken: None, over: None, clock }
    }

    /// Notes that the peer took `bytes` more.
    pub fn took(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_add(bytes);
    }

    /// Notes that the peer has taken all data.
    pub fn has_all(&mut self) {
        self.all_taken.get_or_insert_with(|| self.clock.instant());
    }

    /// Notes that data waits for the peer. Ready when the peer has been too slow.
    pub fn poll_waits(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(caught_up) = self.all_taken.take().map(|since| self.clock.elapsed(since)) {
            if caught_up >= RECOVERY_TIME {
                (self.began, self.taken) = (self.clock.instant(), 0);
            } else {
                self.began += caught_up;
            }
        }
        let over = self.began + time_for(self.taken, self.time);
        let wait = match self.over.take().filter(|(until, _)| *until == over) {
            Some(wait) => wait,
            None => {
                let clock = self.clock.clone();
                (over, Box::pin(async move { clock.sleep_until(over).await }) as BoxFuture<'static, ()>)
            }
        };
        self.over.insert(wait).1.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use futures::future::poll_fn;
    use tokio::time::advance;

    use super::*;
    use crate::request::TRANSFER_TIME;

    async fn too_slow(peer: &mut SlowPeer) -> bool {
        poll_fn(|cx| Poll::Ready(peer.poll_waits(cx).is_ready())).await
    }

    #[tokio::test(start_paused = true)]
    async fn peer_that_takes_little_becomes_too_slow() {
        let mut peer = SlowPeer::new(TRANSFER_TIME, Clock::System);
        for _ in 0..59 {
            assert!(!too_slow(&mut peer).await);
            peer.took(1_000);
            advance(Duration::from_secs(1)).await;
        }
        assert!(!too_slow(&mut peer).await);
        advance(Duration::from_secs(2)).await;
        assert!(too_slow(&mut peer).await);
    }

    #[tokio::test(start_paused = true)]
    async fn peer_that_keeps_up_has_no_time_limit() {
        let mut peer = SlowPeer::new(TRANSFER_TIME, Clock::System);
        for _ in 0..1_000 {
            assert!(!too_slow(&mut peer).await);
            peer.took(20_000);
            advance(Duration::from_secs(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_without_unsent_data_does_not_count() {
        let mut peer = SlowPeer::new(TRANSFER_TIME, Clock::System);
        // A peer that takes everything at once, with pauses below the recovery time, is not too slow.
        for _ in 0..1_000 {
            assert!(!too_slow(&mut peer).await);
            peer.has_all();
            advance(Duration::from_millis(900)).await;
        }
        // Slowness before the recovery is forgotten.
        advance(Duration::from_secs(50)).await;
        assert!(!too_slow(&mut peer).await);
        advance(Duration::from_secs(50)).await;
        peer.has_all();
        advance(RECOVERY_TIME).await;
        assert!(!too_slow(&mut peer).await);
        advance(Duration::from_secs(50)).await;
        assert!(!too_slow(&mut peer).await);
        advance(Duration::from_secs(11)).await;
        assert!(too_slow(&mut peer).await);
    }
}
