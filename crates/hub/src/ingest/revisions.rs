//! Runs whose entry is outdated, where processes share the telemetry store: the next entry must show the revision that the
//! commit follows.

use std::time::Duration;

use isobar_model::access::CanWrite;
use isobar_model::error::{Error, Result};
use isobar_model::ids::DeviceRef;
use isobar_store::telemetry::Turn;

use super::Ingest;
use super::run_commit::TurnFailure;
use crate::cache::entries::DeviceEntry;

/// Time for which a run waits for the work of others, before it keeps them from making more.
const WORK_PATIENCE: Duration = Duration::from_millis(200);
/// Longest time for which it waits after that.
const WORK_WAIT_MAX: Duration = Duration::from_secs(10);

impl Ingest {
    /// Ends a turn that found its entry outdated. Where another process has changed the device, what this one knows of it
    /// is dropped.
    pub(super) fn outdated(&self, mut turn: Turn, entry: &DeviceEntry) -> TurnFailure {
        if !entry.is_at(turn.memory().revision()) {
            self.caches.device_changed(entry.device.id);
            turn.forget();
        }
        TurnFailure::Outdated
    }

    /// Waits until the next entry of a device can be one for runs: the registry has the work of all runs before.
    ///
    /// # Errors
    /// `Busy` if that takes too long.
    pub(super) async fn settle_outdated(&self, permit: &CanWrite<DeviceRef>) -> Result<()> {
        let store = self.env.telemetry();
        let Some(shared) = store.shared() else { return Ok(()) };
        let any = [(permit.target().key, u64::MAX)];
        if self.outbox.settled(shared, &any, WORK_PATIENCE).await? {
            return Ok(());
        }
        // Others have to load their entries anew, and wait for the same: no more work is added meanwhile.
        self.outbox.revise(store, permit, Vec::new()).await?;
        if self.outbox.settled(shared, &any, WORK_WAIT_MAX).await? { Ok(()) } else { Err(Error::Busy) }
    }

    /// Waits until a repeated event may be acknowledged again: the registry has what its first run found, whoever ran it.
    ///
    /// # Errors
    /// `Busy` if that takes too long.
    pub(super) async fn settle_repeated(&self, permit: &CanWrite<DeviceRef>) -> Result<()> {
        let Some(shared) = self.env.telemetry().shared() else { return Ok(()) };
        let device = permit.target().key;
        let standing = shared.standing(device).await?;
        let later = [(device, standing.revision.saturating_add(1))];
        if self.outbox.settled(shared, &later, WORK_WAIT_MAX).await? { Ok(()) } else { Err(Error::Busy) }
    }
}
