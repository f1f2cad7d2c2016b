//! The clock: it tells moments, measures how long things take, and waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::Timestamp;

/// Tells the time, measures it and waits for it. It enters by the door, so that a test may move it.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// A clock that a test moves.
    Manual(Arc<ManualTime>),
}

/// Where a clock stands that a test moves. Its moments stand still until it is moved ([`Clock::advance_seconds`]); the time that it
/// measures and waits for is the machine's, and what it was moved on ([`Clock::pass`]): no worker hangs on a test that moves nothing.
#[derive(Debug)]
pub struct ManualTime {
    /// Milliseconds since the epoch.
    moment: AtomicI64,
    /// How far measured time is ahead of the machine's.
    ahead: watch::Sender<Duration>,
}

/// Something did not happen in the time that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("did not happen in time")]
pub struct Late;

#[allow(clippy::disallowed_methods, reason = "the one place where the machine's clock is read")]
impl Clock {
    /// A clock whose moments stand at `start` until it is moved.
    pub fn manual(start: Timestamp) -> Self {
        let moment = AtomicI64::new(start.millis());
        Self::Manual(Arc::new(ManualTime { moment, ahead: watch::Sender::new(Duration::ZERO) }))
    }

    /// Returns the present moment.
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => {
                let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
                Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
            Self::Manual(time) => Timestamp::from_millis(time.moment.load(Ordering::Relaxed)),
        }
    }

    /// Returns where measured time stands, which never goes back.
    pub fn instant(&self) -> Instant {
        // Of the runtime's clock, which a test may pause.
        let machine = tokio::time::Instant::now().into_std();
        match self {
            Self::System => machine,
            Self::Manual(time) => machine + *time.ahead.borrow(),
        }
    }

    /// Returns how long ago that was.
    pub fn elapsed(&self, since: Instant) -> Duration {
        self.instant().saturating_duration_since(since)
    }

    /// Waits for so long.
    pub async fn sleep(&self, duration: Duration) {
        match self {
            Self::System => tokio::time::sleep(duration).await,
            // What is too long to be said is longer than anybody waits.
            Self::Manual(_) => match self.instant().checked_add(duration) {
                Some(until) => self.sleep_until(until).await,
                None => std::future::pending().await,
            },
        }
    }

    /// Waits until measured time stands there.
    pub async fn sleep_until(&self, until: Instant) {
        let Self::Manual(time) = self else { return tokio::time::sleep_until(until.into()).await };
        let mut moved = time.ahead.subscribe();
        loop {
            // Read before the machine's time is: a move in between is seen by `changed`.
            let ahead = *moved.borrow_and_update();
            let on_machine = until.checked_sub(ahead).map(tokio::time::Instant::from_std);
            let Some(on_machine) = on_machine.filter(|at| *at > tokio::time::Instant::now()) else { return };
            tokio::select! {
                () = tokio::time::sleep_until(on_machine) => return,
                _ = moved.changed() => {}
            }
        }
    }

    /// Waits for something, at most for so long.
    ///
    /// # Errors
    /// [`Late`]: it has not happened by then.
    pub async fn timeout<T>(&self, duration: Duration, something: impl Future<Output = T>) -> Result<T, Late> {
        match self {
            Self::System => tokio::time::timeout(duration, something).await.map_err(|_| Late),
            Self::Manual(_) => {
                tokio::select! {
                    biased;
                    happened = something => Ok(happened),
                    () = self.sleep(duration) => Err(Late),
                }
            }
        }
    }

    /// Moves the moments of a manual clock; the machine's clock stays as it is.
    pub fn advance_seconds(&self, seconds: i64) {
        if let Self::Manual(time) = self {
            time.moment.fetch_add(seconds * 1000, Ordering::Relaxed);
        }
    }

    /// Has a manual clock's measured time pass: who waits for less goes on. The machine's clock stays as it is.
    pub fn pass(&self, duration: Duration) {
        if let Self::Manual(time) = self {
            time.ahead.send_modify(|ahead| *ahead += duration);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn sleeper_wakes_when_its_time_has_passed() {
        let clock = Clock::manual(Timestamp::from_millis(0));
        let begun = clock.instant();
        let mut sleeping = std::pin::pin!(clock.sleep(HOUR));
        assert_eq!(clock.timeout(Duration::ZERO, &mut sleeping).await, Err(Late));
        clock.pass(HOUR / 2);
        assert_eq!(clock.timeout(Duration::ZERO, &mut sleeping).await, Err(Late));
        clock.pass(HOUR / 2);
        sleeping.await;
        assert!(clock.elapsed(begun) >= HOUR);
        assert_eq!(clock.now(), Timestamp::from_millis(0));
    }

    #[tokio::test]
    async fn timeout_ends_when_its_time_has_passed() {
        let clock = Clock::manual(Timestamp::from_millis(0));
        let never = std::future::pending::<()>();
        let (late, ()) = tokio::join!(clock.timeout(HOUR, never), async { clock.pass(HOUR) });
        assert_eq!(late, Err(Late));
        assert_eq!(clock.timeout(Duration::ZERO, async { 1 }).await, Ok(1));
    }

    #[tokio::test]
    async fn endless_sleep_is_no_panic() {
        let clock = Clock::manual(Timestamp::from_millis(0));
        assert_eq!(clock.timeout(Duration::ZERO, clock.sleep(Duration::MAX)).await, Err(Late));
    }
}
