//! Work of other processes that share the telemetry store: who changes a device waits until the registry has it.

use std::time::Duration;

use isobar_model::access::CanWrite;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceKey, DeviceRef};
use isobar_store::error::StoreError;
use isobar_store::telemetry::{Commit, OutboxChange, SharedTelemetry, TURNS_MAX, Telemetry};

use super::{Outbox, WORK_MAX};

/// Pause between two looks at work that another process is to write.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

impl Outbox {
    /// Waits until the registry has all changes of these devices before the given revisions, whoever made them; returns
    /// false if it takes longer than `most`.
    pub(crate) async fn settled(
        &self,
        shared: &dyn SharedTelemetry,
        devices: &[(DeviceKey, u64)],
        most: Duration,
    ) -> Result<bool> {
        let mut left = devices.to_vec();
        let looks = async {
            loop {
                let keys: Vec<DeviceKey> = left.iter().map(|(device, _)| *device).collect();
                let mut standings = shared.standings(&keys).await?.into_iter();
                left.retain(|(_, before)| {
                    let standing = standings.next().flatten();
                    // A device whose database does not answer may have such changes.
                    standing.is_none_or(|standing| standing.pending.is_some_and(|pending| pending < *before))
                });
                if left.is_empty() {
                    return Ok::<_, Error>(());
                }
                self.hurry.notify_one();
                self.clock.sleep(LOOK_PAUSE).await;
            }
        };
        self.clock.timeout(most, looks).await.map_or(Ok(false), |settled| settled.map(|()| true))
    }

    /// Commits changes of a device's outbox, and a new revision, which is returned.
    ///
    /// # Errors
    /// Returns `Busy` where too many commits conflict.
    pub(crate) async fn revise(
        &self,
        store: &dyn Telemetry,
        permit: &CanWrite<DeviceRef>,
        changes: Vec<OutboxChange>,
    ) -> Result<u64> {
        for _ in 0..TURNS_MAX {
            let mut turn = store.turn(permit).await?;
            let committed = turn.commit(Commit { outbox: changes.clone(), touches: true, ..Commit::default() });
            let revision = turn.memory().revision();
            drop(turn);
            match committed {
                Err(StoreError::Conflict) => {}
                committed => match committed?.durable.wait().await {
                    Err(StoreError::Conflict) => {}
                    outcome => return Ok(outcome.map(|()| revision)?),
                },
            }
        }
        Err(Error::Busy)
    }

    /// Waits until the registry has the changes that a committed run of the device has made, whoever writes them; returns
    /// false if it takes too long.
    pub(crate) async fn findings_visible(&self, store: &dyn Telemetry, device: DeviceKey) -> Result<bool> {
        if !self.written(device).await {
            return Ok(false);
        }
        match store.shared().filter(|_| self.queue.lock().is_overtaken(device)) {
            Some(shared) => self.settled(shared, &[(device, u64::MAX)], WORK_MAX).await,
            None => Ok(true),
        }
    }

    /// Removes what this process still has of a device's work of revisions up to this one, though the store has none.
    pub(crate) fn forget_overtaken(&self, device: DeviceKey, revision: u64) {
        let is_less = self.queue.lock().forget_overtaken(device, revision);
        if is_less {
            self.done.notify_waiters();
        }
    }

    /// Returns true if this process has work of the device, or has written some whose entries it has not removed yet.
    pub(crate) fn has_work(&self, device: DeviceKey) -> bool {
        let queue = self.queue.lock();
        queue.of(device).is_some() || queue.has_needless(device)
    }
}
