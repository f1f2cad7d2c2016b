//! Changes of devices by persons, in the registry: after all findings of runs so far, and while no run can make more. A run
//! that others overtake takes part in the same way.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use isobar_model::access::CanWrite;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceKey, DeviceRef};
use isobar_store::telemetry::{OutboxChange, SharedTelemetry};
use tokio::task::JoinSet;

use super::{Delivery, FirstInLine};
use crate::outbox::RegistryWork;
use crate::supervisor::spawn_guarded_in;

/// Time for which a change of several devices waits for findings of other processes, times the number of the try: two that
/// wait for each other withdraw.
const FINDINGS_WAIT: Duration = Duration::from_secs(1);
const FINDINGS_TRIES: u32 = 4;
/// Time for which a change of one device waits, which keeps its place: nobody before it waits for it.
const ONE_DEVICE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Time between two tries to withdraw a change that was given up, and the time after which any process takes it over as work
/// that was left.
const WITHDRAW_PAUSE: Duration = Duration::from_millis(100);
const WITHDRAWN_AFTER_MAX: Duration = Duration::from_secs(15);

/// Devices whose findings are in the registry. Where processes share the telemetry store, each has an entry in the outbox
/// until [`SettledDevices::end`]: runs wait for it in every process, and for what is written until then.
#[must_use = "the devices do not run until this ends"]
pub(crate) struct SettledDevices {
    delivery: Arc<Delivery>,
    announced: Vec<AnnouncedChange>,
    /// `None` in a process that has the telemetry store for itself.
    line: Option<FirstInLine>,
}

struct AnnouncedChange {
    permit: CanWrite<DeviceRef>,
    /// Number of its entry in the outbox, and the revision that the entry has made.
    number: u64,
    revision: u64,
}

impl SettledDevices {
    /// Ends the change: runs see what was written.
    pub(crate) async fn end(mut self) -> Result<()> {
        self.delivery.withdraw(&self.announced).await?;
        // Only now: whoever leaves before that leaves it to be done.
        self.announced.clear();
        Ok(())
    }

    /// Returns true if these devices are still those of this change: no other process has taken its entries over, because
    /// this one seemed to be gone.
    pub(crate) async fn is_first(&self) -> Result<bool> {
        let Some(shared) = self.delivery.env.telemetry().shared() else { return Ok(true) };
        let devices: Vec<DeviceKey> = self.announced.iter().map(|change| change.permit.target().key).collect();
        let standings = shared.standings(&devices).await?;
        let oldest = standings.into_iter().map(|standing| standing.and_then(|standing| standing.pending));
        Ok(oldest.eq(self.announced.iter().map(|change| Some(change.revision))))
    }
}

impl Drop for SettledDevices {
    fn drop(&mut self) {
        let (delivery, announced) = (Arc::clone(&self.delivery), std::mem::take(&mut self.announced));
        let line = self.line.take();
        if announced.is_empty() {
            return;
        }
        // The call has failed, or its caller has gone.
        let withdraws = async move {
            delivery.withdraw_at_last(&announced).await;
            drop(line);
        };
        let mut tasks = JoinSet::new();
        spawn_guarded_in(&mut tasks, "settled_devices", withdraws);
        tasks.detach_all();
    }
}

impl Delivery {
    /// Waits until the registry knows all changes that designs have made to these devices so far, and no crash can apply any
    /// of them again: a later write by the caller is final.
    ///
    /// # Errors
    /// Returns [`Error::Busy`] if it takes too long.
    pub(crate) async fn settle_findings(
        self: &Arc<Self>,
        devices: impl Iterator<Item = &CanWrite<DeviceRef>> + Clone,
    ) -> Result<SettledDevices> {
        let store = self.env.telemetry();
        if let Some(shared) = store.shared() {
            let line = self.line_up(devices.clone().map(|device| device.target().key)).await?;
            return self.settle_shared(shared, devices, line).await;
        }
        for device in devices {
            if !self.outbox.written(device.target().key).await {
                return Err(Error::Busy);
            }
        }
        self.remove_needless().await?;
        store.sync().await?;
        Ok(SettledDevices { delivery: Arc::clone(self), announced: Vec::new(), line: None })
    }

    /// Waits as [`Delivery::settle_findings`] does, for one that is the first in the line of its devices.
    pub(crate) async fn settle_shared(
        self: &Arc<Self>,
        shared: &dyn SharedTelemetry,
        devices: impl Iterator<Item = &CanWrite<DeviceRef>> + Clone,
        line: FirstInLine,
    ) -> Result<SettledDevices> {
        // Made first: what was announced is withdrawn, whoever fails or leaves meanwhile.
        let mut settled = SettledDevices { delivery: Arc::clone(self), announced: Vec::new(), line: Some(line) };
        let is_one = devices.clone().nth(1).is_none();
        for tries in 1..=FINDINGS_TRIES {
            let number = || self.env.telemetry().outbox_number();
            let announced = devices.clone().map(|permit| (permit.clone(), number()));
            let announced = announced.map(|(permit, number)| AnnouncedChange { permit, number, revision: 0 });
            settled.announced = announced.collect();
            let befores = try_join_all(settled.announced.iter().map(|change| self.announce(change))).await?;
            for (change, (_, revision)) in settled.announced.iter_mut().zip(&befores) {
                change.revision = *revision;
            }
            let most = if is_one { ONE_DEVICE_WAIT_MAX } else { FINDINGS_WAIT * tries };
            if self.outbox.settled(shared, &befores, most).await? {
                return Ok(settled);
            }
            if is_one {
                break;
            }
            self.withdraw(&settled.announced).await?;
            settled.announced.clear();
            self.env.pause_by_chance(FINDINGS_WAIT).await;
        }
        Err(Error::Busy)
    }

    /// Adds an entry without work to the outbox of a device. Returns the device, and the revision that this makes.
    async fn announce(&self, change: &AnnouncedChange) -> Result<(DeviceKey, u64)> {
        let AnnouncedChange { permit, number, .. } = change;
        let nothing = RegistryWork::of(permit.target().id, self.env.now()).bytes();
        let changes = vec![OutboxChange::Put { number: *number, work: nothing }];
        let revision = self.outbox.revise(self.env.telemetry(), permit, changes).await?;
        Ok((permit.target().key, revision))
    }

    /// Withdraws changes that were given up, as soon as the store can. All calls of these devices wait for that.
    async fn withdraw_at_last(&self, announced: &[AnnouncedChange]) {
        let (clock, begun) = (self.env.clock(), self.env.clock().instant());
        while let Err(error) = self.withdraw(announced).await {
            if clock.elapsed(begun) >= WITHDRAWN_AFTER_MAX {
                tracing::warn!(%error, "runs of a device wait for a change that was given up, until it is taken over");
                return;
            }
            clock.sleep(WITHDRAW_PAUSE).await;
        }
    }

    async fn withdraw(&self, announced: &[AnnouncedChange]) -> Result<()> {
        let store = self.env.telemetry();
        let withdrawn = announced.iter().map(|AnnouncedChange { permit, number, .. }| {
            self.outbox.revise(store, permit, vec![OutboxChange::Done(*number)])
        });
        try_join_all(withdrawn).await.map(drop)
    }
}
