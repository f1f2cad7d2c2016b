//! What time takes away: history and notifications after six months, sessions after their end (specification: Limits).

use std::time::{Duration, Instant};

use isobar_model::time::Timestamp;
use tokio::sync::watch;

use crate::{Hub, pause};

/// How often old things are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// Six months: half of a mean Gregorian year, in seconds.
const HISTORY_SECONDS: i64 = 15_778_476;

impl Hub {
    /// History before this moment is gone.
    pub(crate) fn history_begins(&self) -> Timestamp {
        self.0.clock.now().plus_seconds(-HISTORY_SECONDS)
    }

    /// Removes what is over, every hour. How late it is the telemetry store says: it does not believe a clock that jumps.
    pub(crate) async fn run_retention(self, mut stop: watch::Receiver<bool>) {
        let mut last = Instant::now();
        loop {
            let running = std::mem::replace(&mut last, Instant::now()).elapsed();
            match self.0.telemetry.retain(self.0.clock.now(), running, HISTORY_SECONDS).await {
                Ok(now) => self.sweep_registry(now).await,
                Err(error) => tracing::warn!(%error, "old history could not be removed"),
            }
            if pause(&mut stop, LOOK_EVERY).await {
                return;
            }
        }
    }

    async fn sweep_registry(&self, now: Timestamp) {
        if let Err(error) = self.sweep_sessions(now).await {
            tracing::warn!(%error, "ended sessions could not be removed");
        }
        if let Err(error) = self.sweep_notices(now.plus_seconds(-HISTORY_SECONDS)).await {
            tracing::warn!(%error, "old notifications could not be removed");
        }
    }

    async fn sweep_sessions(&self, now: Timestamp) -> Result<(), isobar_store::error::StoreError> {
        self.0.registry.sessions_sweep(now).await?;
        self.0.tokens.forget_ended(now);
        Ok(())
    }
}
