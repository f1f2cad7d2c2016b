//! The clock: tells moments, measures durations, and waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::Timestamp;
use super::jumps::JumpGuard;

/// A clock that is passed in, so that tests can move it.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// The machine's clock, which is not followed where it jumps ahead by days.
    Guarded(Arc<JumpGuard>),
    /// A clock moved by a test.
    Manual(Arc<ManualTime>),
}

/// The time of a manual clock. Its moments change only by [`Clock::advance_seconds`] and [`Clock::jump_seconds`], its
/// measured time by [`Clock::pass`] and, if it runs, with the machine's.
#[derive(Debug)]
pub struct ManualTime {
    /// Milliseconds since the epoch.
    moment: AtomicI64,
    /// Milliseconds by which it has jumped while no time passed.
    jumped: AtomicI64,
    guard: JumpGuard,
    /// The measured time at which the clock stood when it was made. `None` if its measured time runs.
    stands_at: Option<Instant>,
    /// Time that was added to measured time.
    ahead: watch::Sender<Duration>,
}

impl ManualTime {
    fn new(start: Timestamp, stands_at: Option<Instant>) -> Arc<Self> {
        let (moment, jumped) = (AtomicI64::new(start.millis()), AtomicI64::new(0));
        let guard = JumpGuard::new(start.millis(), start.millis());
        Arc::new(Self { moment, jumped, guard, stands_at, ahead: watch::Sender::new(Duration::ZERO) })
    }
}

/// The error of a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("did not happen in time")]
pub struct Late;

#[allow(clippy::disallowed_methods, reason = "the one place where the machine's clock is read")]
impl Clock {
    /// Makes a clock that stands still until it is moved: its moments and its measured time.
    pub fn manual(start: Timestamp) -> Self {
        Self::Manual(ManualTime::new(start, Some(Self::System.instant())))
    }

    /// Makes a clock whose moments stay at `start` until it is moved, and whose measured time runs as the machine's, so
    /// that workers which sleep continue in a test that moves nothing.
    pub fn manual_moments(start: Timestamp) -> Self {
        Self::Manual(ManualTime::new(start, None))
    }

    /// Makes the clock of a process that has no other one to compare the machine's with.
    pub fn guarded() -> Self {
        let (clock, passed) = Self::System.readings();
        Self::Guarded(Arc::new(JumpGuard::new(clock, passed)))
    }

    /// Returns what the clock shows, trusted or not, and the time that has passed since some moment, both in milliseconds.
    fn readings(&self) -> (i64, i64) {
        match self {
            Self::System | Self::Guarded(_) => {
                let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
                // Goes on while the machine sleeps.
                let passed = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
                let passed = passed.tv_sec.saturating_mul(1_000).saturating_add(passed.tv_nsec / 1_000_000);
                (i64::try_from(since.as_millis()).unwrap_or(i64::MAX), passed)
            }
            Self::Manual(time) => {
                let passed = time.moment.load(Ordering::Relaxed);
                (passed.saturating_add(time.jumped.load(Ordering::Relaxed)), passed)
            }
        }
    }

    /// Returns the milliseconds by which what the clock shows is ahead of the time that has passed since some moment. They
    /// change only when the clock is set.
    pub fn lead(&self) -> i64 {
        let (clock, passed) = self.readings();
        clock.saturating_sub(passed)
    }

    /// Returns the time by which the clock is ahead of the moments that are trusted: zero, but after a jump of days.
    pub fn distrusted(&self) -> Duration {
        let guard = match self {
            Self::System => return Duration::ZERO,
            Self::Guarded(guard) => guard,
            Self::Manual(time) => &time.guard,
        };
        let (clock, passed) = self.readings();
        let ahead = clock.saturating_sub(guard.trusted(clock, passed));
        Duration::from_millis(u64::try_from(ahead).unwrap_or_default())
    }

    /// Returns the present moment.
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => {
                let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
                Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
            Self::Guarded(guard) => {
                let (clock, passed) = self.readings();
                Timestamp::from_millis(guard.trusted(clock, passed))
            }
            Self::Manual(time) => {
                let (clock, passed) = self.readings();
                Timestamp::from_millis(time.guard.trusted(clock, passed))
            }
        }
    }

    /// Returns the current measured time, which never goes back.
    pub fn instant(&self) -> Instant {
        // The runtime's clock, which a test may pause.
        let machine = || tokio::time::Instant::now().into_std();
        match self {
            Self::System | Self::Guarded(_) => machine(),
            Self::Manual(time) => time.stands_at.unwrap_or_else(machine) + *time.ahead.borrow(),
        }
    }

    /// Returns the time since an instant.
    pub fn elapsed(&self, since: Instant) -> Duration {
        self.instant().saturating_duration_since(since)
    }

    /// Waits for a duration.
    pub async fn sleep(&self, duration: Duration) {
        match self {
            Self::System | Self::Guarded(_) => tokio::time::sleep(duration).await,
            // A duration that overflows never ends.
            Self::Manual(_) => match self.instant().checked_add(duration) {
                Some(until) => self.sleep_until(until).await,
                None => std::future::pending().await,
            },
        }
    }

    /// Waits until an instant of measured time.
    pub async fn sleep_until(&self, until: Instant) {
        let Self::Manual(time) = self else { return tokio::time::sleep_until(until.into()).await };
        let mut moved = time.ahead.subscribe();
        loop {
            // Marked as seen before the time is read, so that `changed` sees a move in between.
            moved.mark_unchanged();
            let left = until.saturating_duration_since(self.instant());
            if left.is_zero() {
                return;
            }
            let runs_out = async {
                match time.stands_at {
                    Some(_) => std::future::pending().await,
                    None => tokio::time::sleep(left).await,
                }
            };
            tokio::select! {
                () = runs_out => return,
                _ = moved.changed() => {}
            }
        }
    }

    /// Awaits a future, for a limited time.
    ///
    /// # Errors
    /// [`Late`] if the time is over before.
    pub async fn timeout<T>(&self, duration: Duration, something: impl Future<Output = T>) -> Result<T, Late> {
        match self {
            Self::System | Self::Guarded(_) => tokio::time::timeout(duration, something).await.map_err(|_| Late),
            Self::Manual(_) => {
                tokio::select! {
                    biased;
                    happened = something => Ok(happened),
                    () = self.sleep(duration) => Err(Late),
                }
            }
        }
    }

    /// Moves the moments of a manual clock; no effect on the machine's clock.
    pub fn advance_seconds(&self, seconds: i64) {
        if let Self::Manual(time) = self {
            time.moment.fetch_add(seconds * 1000, Ordering::Relaxed);
        }
    }

    /// Sets a manual clock to another moment while no time passes; no effect on the machine's clock.
    pub fn jump_seconds(&self, seconds: i64) {
        if let Self::Manual(time) = self {
            time.jumped.fetch_add(seconds * 1000, Ordering::Relaxed);
        }
    }

    /// Adds to the measured time of a manual clock, which wakes sleepers that are due; no effect on the machine's
    /// clock.
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
        assert_eq!((clock.elapsed(begun), clock.now()), (HOUR, Timestamp::from_millis(0)));
    }

    #[tokio::test]
    async fn timeout_ends_when_its_time_has_passed() {
        let clock = Clock::manual(Timestamp::from_millis(0));
        let never = std::future::pending::<()>();
        let (late, ()) = tokio::join!(clock.timeout(HOUR, never), async { clock.pass(HOUR) });
        assert_eq!(late, Err(Late));
        assert_eq!(clock.timeout(Duration::ZERO, async { 1 }).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn manual_clock_stands_still_while_the_machine_pauses() {
        let clock = Clock::manual(Timestamp::from_millis(0));
        let begun = clock.instant();
        let mut sleeping = std::pin::pin!(clock.sleep(HOUR));
        assert_eq!(Clock::System.timeout(2 * HOUR, &mut sleeping).await, Err(Late));
        assert_eq!((clock.instant(), clock.now()), (begun, Timestamp::from_millis(0)));
        clock.pass(HOUR);
        sleeping.await;
        assert_eq!(clock.elapsed(begun), HOUR);
    }

    #[tokio::test(start_paused = true)]
    async fn measured_time_runs_beside_manual_moments() {
        let clock = Clock::manual_moments(Timestamp::from_millis(0));
        let (begun, machine) = (clock.instant(), Clock::System.instant());
        clock.pass(HOUR);
        clock.sleep(HOUR).await;
        assert_eq!((clock.elapsed(begun), Clock::System.elapsed(machine)), (2 * HOUR, HOUR));
        assert_eq!(clock.timeout(HOUR, std::future::pending::<()>()).await, Err(Late));
        assert_eq!(clock.now(), Timestamp::from_millis(0));
    }

    #[tokio::test]
    async fn endless_sleep_is_no_panic() {
        for clock in [Clock::manual(Timestamp::from_millis(0)), Clock::manual_moments(Timestamp::from_millis(0))] {
            assert_eq!(clock.timeout(Duration::ZERO, clock.sleep(Duration::MAX)).await, Err(Late));
        }
    }
}
