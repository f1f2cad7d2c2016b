//! Finds peers that take a response too slowly (contract: Behind a proxy, and without one).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::request::time_for;

/// A peer that has taken everything, and to which nothing was sent for so long, begins anew.
const RECOVERY_TIME: Duration = Duration::from_secs(1);

/// A peer that does not take what is sent to it as fast as it is made. Only the time counts in which something waits for
/// the peer.
pub(super) struct SlowPeer {
    time: Duration,
    began: Instant,
    taken: usize,
    /// Since when nothing waits for it.
    all_taken: Option<Instant>,
    over: Pin<Box<Sleep>>,
}

impl SlowPeer {
    /// Something waits for the peer from now on.
    pub fn new(time: Duration) -> Self {
        let began = Instant::now();
        Self { time, began, taken: 0, all_taken: None, over: Box::pin(sleep_until(began + time)) }
    }

    /// The peer took so many bytes.
    pub fn took(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_add(bytes);
    }

    /// The peer has taken everything.
    pub fn has_all(&mut self) {
        self.all_taken.get_or_insert_with(Instant::now);
    }

    /// Something waits for the peer; ready when it has been too slow.
    pub fn poll_waits(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(caught_up) = self.all_taken.take().map(|since| since.elapsed()) {
            if caught_up >= RECOVERY_TIME {
                (self.began, self.taken) = (Instant::now(), 0);
            } else {
                self.began += caught_up;
            }
        }
        let over = self.began + time_for(self.taken, self.time);
        if self.over.deadline() != over {
            self.over.as_mut().reset(over);
        }
        self.over.as_mut().poll(cx)
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
    async fn a_peer_that_takes_little_is_too_slow_in_the_end() {
        let mut peer = SlowPeer::new(TRANSFER_TIME);
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
    async fn one_that_keeps_up_may_take_for_ever() {
        let mut peer = SlowPeer::new(TRANSFER_TIME);
        for _ in 0..1_000 {
            assert!(!too_slow(&mut peer).await);
            peer.took(20_000);
            advance(Duration::from_secs(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nothing_waits_does_not_count() {
        let mut peer = SlowPeer::new(TRANSFER_TIME);
        // Taken at once, again and again, with less than the recovery time in between: it is not too slow.
        for _ in 0..1_000 {
            assert!(!too_slow(&mut peer).await);
            peer.has_all();
            advance(Duration::from_millis(900)).await;
        }
        // What was slow before the recovery is forgotten.
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
