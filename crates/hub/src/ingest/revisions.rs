//! Runs whose entry is outdated, where processes share the telemetry store: the next entry must show the revision that the
//! commit follows. A run that was overtaken lines up behind those that wait already, so that it is made at last.

use std::time::Duration;

use isobar_model::access::CanWrite;
use isobar_model::error::{Error, Result};
use isobar_model::ids::DeviceRef;
use isobar_store::telemetry::Turn;

use super::Ingest;
use super::run_commit::TurnFailure;
use crate::cache::entries::{DeviceEntry, UNSETTLED};
use crate::delivery::FirstInLine;
use crate::delivery::settled_devices::SettledDevices;

/// Time for which a run waits for the work of others, before it announces itself: all others wait for it then.
const WORK_PATIENCE: Duration = Duration::from_millis(60);
/// Longest time for which a repeated event waits for the work of its first run.
const WORK_WAIT_MAX: Duration = Duration::from_secs(10);

/// The place of a run among those that change its device: none before it was overtaken, and none where no other process
/// shares the telemetry store.
#[derive(Default)]
pub(crate) struct LinePlace(Option<Box<Place>>);

enum Place {
    /// First in this process.
    First { line: FirstInLine, has_looked: bool },
    /// First of all processes: nobody else changes the device.
    Announced(SettledDevices),
}

impl LinePlace {
    /// Returns true if others wait for the run.
    pub(super) fn is_taken(&self) -> bool {
        self.0.is_some()
    }

    /// Leaves the line of this process once the run is committed: the next one sees it.
    pub(super) fn committed(&mut self) {
        if matches!(self.0.as_deref(), Some(Place::First { .. })) {
            self.0 = None;
        }
    }
}

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

    /// Returns the revision that the entry of a run must show in a turn of a device at this revision: the same, unless others
    /// wait for the run. Then it is an entry that was loaded since, whatever changes were announced meanwhile.
    pub(super) async fn revision_of_run(&self, revision: u64, place: &LinePlace) -> Result<u64> {
        match place.0.as_deref() {
            // Asked in the turn: if another process takes the place over later, the commit conflicts.
            Some(Place::Announced(settled)) if settled.is_first().await? => Ok(UNSETTLED),
            _ => Ok(revision),
        }
    }

    /// Waits until the next entry of a device can be one for runs: the registry has the work of all runs and changes before.
    ///
    /// # Errors
    /// `Busy` if that takes too long.
    pub(super) async fn settle_outdated(&self, permit: &CanWrite<DeviceRef>, place: &mut LinePlace) -> Result<()> {
        let store = self.env.telemetry();
        let Some(shared) = store.shared() else { return Ok(()) };
        let device = permit.target();
        let line = match place.0.take().map(|place| *place) {
            // Whatever else has changed is read with the next entry.
            Some(Place::Announced(settled)) if settled.is_first().await? => {
                place.0 = Some(Box::new(Place::Announced(settled)));
                return Ok(());
            }
            Some(Place::First { line, has_looked: true }) => line,
            Some(Place::First { line, has_looked: false }) => {
                if self.is_settled_soon(permit).await? {
                    place.0 = Some(Box::new(Place::First { line, has_looked: true }));
                    return Ok(());
                }
                line
            }
            taken_over => {
                // Another process has taken it over. Its place in the line goes first, or the run would wait for itself.
                drop(taken_over);
                let line = self.delivery.line_up(std::iter::once(device.key)).await?;
                // Those before have probably loaded an entry that is good for this run too.
                let has_waited = line.has_waited;
                if has_waited || self.is_settled_soon(permit).await? {
                    place.0 = Some(Box::new(Place::First { line, has_looked: !has_waited }));
                    return Ok(());
                }
                line
            }
        };
        let settled = self.delivery.settle_shared(shared, std::iter::once(permit), line).await?;
        // The next entry is loaded from now on.
        self.caches.device_changed(device.id);
        place.0 = Some(Box::new(Place::Announced(settled)));
        Ok(())
    }

    /// Waits a little for the work of others; returns true if there is none left.
    async fn is_settled_soon(&self, permit: &CanWrite<DeviceRef>) -> Result<bool> {
        let Some(shared) = self.env.telemetry().shared() else { return Ok(true) };
        self.outbox.settled(shared, &[(permit.target().key, u64::MAX)], WORK_PATIENCE).await
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
