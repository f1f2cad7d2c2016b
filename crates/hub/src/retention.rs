//! What time takes away: history and notifications after six months, sessions after their end (specification: Limits).

use std::time::Duration;

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

    /// Removes what is over, every hour.
    pub(crate) async fn run_retention(self, mut shift: Shift) {
        loop {
            self.reaches("retention");
            // Each by itself: what fails for one kind of things, in whatever way, keeps none of the others.
            removed("history", self.0.telemetry.retain(self.history_begins())).await;
            removed("sessions", self.sweep_sessions()).await;
            removed("notifications", self.sweep_notices()).await;
            shift.well();
            if shift.pause(LOOK_EVERY).await {
                return;
            }
        }
    }

    async fn sweep_sessions(&self) -> Result<(), StoreError> {
        let now = self.0.clock.now();
        self.0.registry.sessions_sweep(now).await?;
        self.0.tokens.forget_ended(now);
        Ok(())
    }
}

/// Notes how the removal of old things went. What was not removed is looked for again with the next look.
async fn removed(things: &'static str, removal: impl Future<Output = Result<(), StoreError>>) {
    if let Some(Err(error)) = guarded("retention", removal).await {
        tracing::warn!(%error, things, "what is old could not be removed");
    }
}
