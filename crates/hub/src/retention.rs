//! What time takes away: history and notifications after six months, sessions after their end (specification: Limits).

use std::time::{Duration, Instant};

use isobar_model::time::Timestamp;
use isobar_store::error::StoreError;

use crate::Hub;
use crate::supervisor::{Shift, guarded};

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
    pub(crate) async fn run_retention(self, mut shift: Shift) {
        let mut last = Instant::now();
        loop {
            self.reaches("retention");
            let running = std::mem::replace(&mut last, Instant::now()).elapsed();
            let retained = self.0.telemetry.retain(self.0.clock.now(), running, HISTORY_SECONDS);
            if let Some(now) = removed("history", retained).await {
                // Each by itself: what fails for one kind of things, in whatever way, keeps none of the others.
                removed("sessions", self.sweep_sessions(now)).await;
                removed("notifications", self.sweep_notices(now.plus_seconds(-HISTORY_SECONDS))).await;
            }
            shift.well();
            if shift.pause(LOOK_EVERY).await {
                return;
            }
        }
    }

    async fn sweep_sessions(&self, now: Timestamp) -> Result<(), StoreError> {
        self.0.registry.sessions_sweep(now).await?;
        self.0.tokens.forget_ended(now);
        Ok(())
    }
}

/// Notes how the removal of old things went. What was not removed is looked for again with the next look.
async fn removed<T>(things: &'static str, removal: impl Future<Output = Result<T, StoreError>>) -> Option<T> {
    match guarded("retention", removal).await? {
        Ok(done) => Some(done),
        Err(error) => {
            tracing::warn!(%error, things, "what is old could not be removed");
            None
        }
    }
}
