//! How slowly bytes may come and go (contract: Behind a proxy, and without one): a while is everybody's, and who has much
//! to send or to take gets longer, at a rate that any line reaches.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// The time that everybody has.
pub(crate) const TIME: Duration = Duration::from_secs(60);
/// Bytes a second that are enough beyond it.
const BYTES_A_SECOND: u64 = 16 << 10;
/// A peer that has taken everything, and to which nothing went for so long, begins anew.
const REST: Duration = Duration::from_secs(1);

/// How long so many bytes may be under way, where everybody has `time`.
pub(crate) fn time_for(bytes: usize, time: Duration) -> Duration {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    time.max(Duration::from_millis(bytes.saturating_mul(1_000) / BYTES_A_SECOND))
}

/// A peer that does not take what is sent to it as fast as it is made. Only the time counts in which something waits for it.
pub(crate) struct SlowPeer {
    time: Duration,
    began: Instant,
    taken: usize,
    /// Since when nothing waits for it.
    rests: Option<Instant>,
    over: Pin<Box<Sleep>>,
}

impl SlowPeer {
    /// Something waits for a peer from now on.
    pub fn new(time: Duration) -> Self {
        let began = Instant::now();
        Self { time, began, taken: 0, rests: None, over: Box::pin(sleep_until(began + time)) }
    }

    /// It took so many bytes.
    pub fn took(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_add(bytes);
    }

    /// It has taken everything.
    pub fn has_all(&mut self) {
        self.rests.get_or_insert_with(Instant::now);
    }

    /// Something waits for it; ready when it has been too slow.
    pub fn poll_waits(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(rested) = self.rests.take().map(|since| since.elapsed()) {
            if rested >= REST {
                (self.began, self.taken) = (Instant::now(), 0);
            } else {
                self.began += rested;
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

    const MIB: usize = 1 << 20;

    #[test]
    fn who_has_much_to_send_has_longer() {
        assert_eq!(time_for(0, TIME), TIME);
        assert_eq!(time_for(960 << 10, TIME), TIME);
        assert_eq!(time_for(5 * MIB, TIME), Duration::from_secs(320));
        assert!(time_for(usize::MAX, TIME) > TIME);
    }

    async fn too_slow(peer: &mut SlowPeer) -> bool {
        poll_fn(|cx| Poll::Ready(peer.poll_waits(cx).is_ready())).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_little_is_too_slow_in_the_end() {
        let mut peer = SlowPeer::new(TIME);
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
        let mut peer = SlowPeer::new(TIME);
        for _ in 0..1_000 {
            assert!(!too_slow(&mut peer).await);
            peer.took(20_000);
            advance(Duration::from_secs(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nothing_waits_does_not_count() {
        let mut peer = SlowPeer::new(TIME);
        // Taken at once, again and again, with less than a rest in between: no word is said against it.
        for _ in 0..1_000 {
            assert!(!too_slow(&mut peer).await);
            peer.has_all();
            advance(Duration::from_millis(900)).await;
        }
        // What was slow before a rest is forgotten.
        advance(Duration::from_secs(50)).await;
        assert!(!too_slow(&mut peer).await);
        advance(Duration::from_secs(50)).await;
        peer.has_all();
        advance(REST).await;
        assert!(!too_slow(&mut peer).await);
        advance(Duration::from_secs(50)).await;
        assert!(!too_slow(&mut peer).await);
        advance(Duration::from_secs(11)).await;
        assert!(too_slow(&mut peer).await);
    }
}
