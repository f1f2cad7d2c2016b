//! Tells how old the caches may be. A node that shares its registry with others is as old as its last read of what they
//! have changed; nobody gets in by rights that are older than a second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use isobar_model::error::{Error, Fault, Result};
use isobar_model::time::Clock;
use tokio::sync::Notify;

/// Oldest caches by which callers are authenticated; with older ones they wait for the next read.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// Age of the caches from which callers are refused at once, and the node is not ready.
const STALE_AFTER: Duration = Duration::from_secs(2);
/// Age of the caches, as a gauge.
const AGE_GAUGE: &str = "isobar_changes_age_seconds";
/// Stands for the time of the last read where no other node changes anything.
const ALONE: u64 = u64::MAX;

/// The time at which this node last read what others have changed.
pub(crate) struct Freshness {
    clock: Clock,
    begun: Instant,
    /// Time at which the last successful read was begun, in milliseconds after `begun`; or [`ALONE`].
    read_at: AtomicU64,
    read: Notify,
}

impl Freshness {
    /// Begins with empty caches, which are as good as read.
    pub(crate) fn new(clock: Clock, has_other_nodes: bool) -> Self {
        let read_at = AtomicU64::new(if has_other_nodes { 0 } else { ALONE });
        Self { begun: clock.instant(), clock, read_at, read: Notify::new() }
    }

    /// Notes that everything is known that others had changed at this time.
    pub(crate) fn note_read(&self, asked: Instant) {
        let millis = asked.saturating_duration_since(self.begun).as_millis();
        self.read_at.store(u64::try_from(millis).unwrap_or(ALONE - 1), Ordering::Release);
        self.read.notify_waiters();
    }

    /// Returns the age of the caches, or `None` if no other node changes anything.
    fn age(&self) -> Option<Duration> {
        let read_at = self.read_at.load(Ordering::Acquire);
        (read_at != ALONE).then(|| self.clock.elapsed(self.begun).saturating_sub(Duration::from_millis(read_at)))
    }

    /// Returns true if callers may be authenticated by the caches as they are.
    pub(crate) fn is_fresh(&self) -> bool {
        self.age().is_none_or(|age| age <= FRESH_FOR)
    }

    /// Waits until the caches are fresh.
    ///
    /// # Errors
    /// `Busy`: others' changes have not been read for two seconds.
    pub(crate) async fn fresh(&self) -> Result<()> {
        if self.is_fresh() {
            return Ok(());
        }
        // Boxed, because a wait is rare and its future large.
        Box::pin(self.next_read()).await
    }

    async fn next_read(&self) -> Result<()> {
        let reads = async {
            loop {
                let mut read = std::pin::pin!(self.read.notified());
                // Enabled first, so that a read during the look below is noticed.
                read.as_mut().enable();
                if self.is_fresh() {
                    return;
                }
                read.await;
            }
        };
        let left = STALE_AFTER.saturating_sub(self.age().unwrap_or_default());
        self.clock.timeout(left, reads).await.map_err(|_| Error::Busy)
    }

    /// Returns the fault of a node that does not learn what others change, named after the worker that reads it.
    pub(crate) fn matter(&self, worker: &'static str) -> Option<Fault> {
        let is_stale = self.age().is_some_and(|age| age > STALE_AFTER);
        let why = || format!("has not read for {} s what other nodes have changed", STALE_AFTER.as_secs());
        is_stale.then(|| Fault::new(worker, why()))
    }

    /// Publishes the age as a gauge.
    pub(crate) fn measure(&self) {
        if let Some(age) = self.age() {
            metrics::gauge!(AGE_GAUGE).set(age.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use isobar_model::time::Timestamp;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at_start(has_other_nodes: bool) -> (Clock, Freshness) {
        let clock = Clock::manual(Timestamp::from_millis(0));
        (clock.clone(), Freshness::new(clock, has_other_nodes))
    }

    // Holds: c17.away, c17.cached
    #[tokio::test]
    async fn caller_waits_after_a_second_and_is_refused_after_two() {
        let (clock, freshness) = at_start(true);
        freshness.fresh().await.unwrap();
        clock.pass(SECOND + SECOND / 2);
        assert!(!freshness.is_fresh() && freshness.matter("changes").is_none());
        let (waited, ()) = tokio::join!(freshness.fresh(), async { freshness.note_read(clock.instant()) });
        waited.unwrap();
        // A read that began before does not count.
        let before = clock.instant();
        clock.pass(SECOND + SECOND / 2);
        let late = async {
            freshness.note_read(before);
            clock.pass(SECOND);
        };
        let (waited, ()) = tokio::join!(freshness.fresh(), late);
        assert!(matches!(waited, Err(Error::Busy)));
        assert!(matches!(freshness.fresh().await, Err(Error::Busy)));
        assert!(freshness.matter("changes").is_some());
        freshness.note_read(clock.instant());
        freshness.fresh().await.unwrap();
        assert!(freshness.matter("changes").is_none());
    }

    #[tokio::test]
    async fn caches_of_a_single_node_are_always_fresh() {
        let (clock, freshness) = at_start(false);
        clock.pass(3_600 * SECOND);
        assert!(freshness.is_fresh() && freshness.matter("changes").is_none());
        freshness.fresh().await.unwrap();
    }
}
