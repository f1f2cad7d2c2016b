//! Notices a transaction that does not end and holds event streams back: a prepared one that was forgotten, or a session that
//! stands still.

use std::time::{Duration, Instant};

use isobar_model::time::Clock;
use parking_lot::Mutex;

/// Time for which streams have to stand behind a transaction until that is told.
const STALLED_AFTER: Duration = Duration::from_secs(10);

/// The first transaction that has not ended, if there are later ones.
#[derive(Debug, Default)]
pub struct StreamStall(Mutex<Option<WaitedFor>>);

/// A transaction for which streams wait.
#[derive(Debug)]
struct WaitedFor {
    transaction: i64,
    since: Instant,
    is_told: bool,
}

impl StreamStall {
    /// Notes the first transaction that has not ended, of those that may write events, and the first that has not begun. Logs
    /// one that stands for long.
    pub fn note(&self, ends: i64, next: i64) {
        let mut stall = self.0.lock();
        let before = stall.take().filter(|before| before.transaction == ends);
        if ends >= next {
            return;
        }
        let begins = || WaitedFor { transaction: ends, since: Clock::System.instant(), is_told: false };
        let mut waited_for = before.unwrap_or_else(begins);
        if !waited_for.is_told && Clock::System.elapsed(waited_for.since) >= STALLED_AFTER {
            waited_for.is_told = true;
            tracing::error!(
                transaction = ends,
                "event streams stand behind a transaction that does not end: see pg_prepared_xacts and pg_stat_activity"
            );
        }
        *stall = Some(waited_for);
    }

    /// Returns for how long streams have been waiting for a transaction, if that is long.
    pub fn lasts(&self) -> Option<Duration> {
        let lasts = self.0.lock().as_ref().map(|waited_for| Clock::System.elapsed(waited_for.since));
        lasts.filter(|time| *time >= STALLED_AFTER)
    }
}
