//! Deletes values beyond their retention (contract: Beyond the specification). Readers filter such values at once; here
//! they are deleted for good, device by device.
//!
//! Values hidden by a former design stay hidden until they are deleted for all devices: the project remembers the
//! former bounds until then.

use std::sync::Arc;
use std::time::Instant;

use isobar_model::access::{self, CanRead, CanWrite};
use isobar_model::device::Device;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceKey, DeviceRef, ProjectId};
use isobar_model::retention::Kept;
use isobar_model::time::{Clock, Timestamp};
use isobar_store::error::StoreError;
use parking_lot::Mutex;
use tokio::sync::{Notify, RwLock, RwLockReadGuard};

use super::Jobs;
use crate::env::CLOCK_DIFFERS_MAX;

/// Projects, and devices of one project, read at a time.
const PROJECTS_AT_ONCE: u32 = 100;
const DEVICES_AT_ONCE: u32 = 100;
/// Milliseconds by which the clocks of two nodes may differ.
const CLOCKS_APART_MAX: i64 = 2 * CLOCK_DIFFERS_MAX;

/// The jobs' state for deleting values.
#[derive(Default)]
pub(super) struct RetentionState {
    /// Notified when a design has changed.
    pub changed: Notify,
    /// The last trusted time, and the instant at which it was read.
    believed: Mutex<Option<(Timestamp, Instant)>>,
    /// Locked for reading by code that changes a design or a device's project; locked for writing while values are
    /// deleted by them.
    changing: RwLock<()>,
}

impl RetentionState {
    /// Sets the trusted time.
    pub fn believe(&self, now: Timestamp, clock: &Clock) {
        *self.believed.lock() = Some((now, clock.instant()));
    }
}

impl Jobs {
    /// Wakes the worker after a design has changed, so that values it no longer retains are deleted soon.
    pub(crate) fn retention_changed(&self) {
        self.retention.changed.notify_one();
    }

    /// Locks designs and the projects of devices for a change: no values are deleted while the guard lives.
    pub(crate) async fn retention_changes(&self) -> RwLockReadGuard<'_, ()> {
        self.retention.changing.read().await
    }

    /// Returns the time, but no later than a trusted clock would say, so that a clock that jumps deletes nothing.
    /// Returns `None` if no time was trusted yet.
    pub(super) fn believed_now(&self) -> Option<Timestamp> {
        let (then, since) = (*self.retention.believed.lock())?;
        let ran = i64::try_from(self.env.clock().elapsed(since).as_millis()).unwrap_or(i64::MAX);
        let expected = Timestamp::from_millis(then.millis().saturating_add(ran));
        Some(expected.min(self.env.now()))
    }

    /// Deletes the values of all devices that are beyond their retention. A failure of one device does not stop the
    /// others.
    pub(super) async fn drop_values(&self, now: Timestamp) -> std::result::Result<(), StoreError> {
        let (mut after, mut ended) = (None, Ok(()));
        loop {
            let projects = self.env.registry().retention_projects(after, PROJECTS_AT_ONCE).await?;
            let Some(last) = projects.last().copied() else { return ended };
            for project in projects {
                ended = ended.and(self.drop_values_of(project, now).await);
            }
            after = Some(last);
        }
    }

    async fn drop_values_of(&self, project: ProjectId, now: Timestamp) -> std::result::Result<(), StoreError> {
        self.env.reaches("value_retention");
        let permit = access::system(project, "what a project's designs do not keep is dropped").reading();
        let bounds = self.env.registry().retention_fetch(&permit).await?;
        let (mut after, mut ended) = (DeviceKey(0), Ok(()));
        if bounds.remembers() {
            // Events from before the former bounds ended must be durable to be counted.
            ended = self.env.telemetry().sync().await;
        }
        while let Some((last, dropped)) = self.drop_values_of_some(&permit, after, now).await? {
            (after, ended) = (last, ended.and(dropped));
        }
        ended?;
        // Former bounds may still hide more values, if only a clock ahead of the trusted one says that they have ended.
        if bounds.remembers() && bounds.have_ended(now, self.env.now()) {
            // A later design finds the bounds settled, and an earlier one has other bounds.
            let _alone = self.retention.changing.write().await;
            if let Some(settled) = self.env.registry().retention_settled(&permit, bounds).await? {
                self.caches.retention_settled(project, settled);
            }
        }
        Ok(())
    }

    /// Deletes values of the next devices of a project, and returns the last device with the outcome. `None` means that
    /// there are no more devices.
    async fn drop_values_of_some(
        &self,
        permit: &CanRead<ProjectId>,
        after: DeviceKey,
        now: Timestamp,
    ) -> std::result::Result<Option<(DeviceKey, std::result::Result<(), StoreError>)>, StoreError> {
        let _alone = self.retention.changing.write().await;
        let (bounds, devices) = loop {
            let bounds = self.env.registry().retention_fetch(permit).await?;
            let devices = self.env.registry().retention_devices(permit, after, DEVICES_AT_ONCE).await?;
            // Another node may have changed the design: the devices may have come into the project since.
            if self.env.registry().retention_fetch(permit).await? == bounds {
                break (bounds, devices);
            }
        };
        let Some(last) = devices.last().map(|device| device.key) else { return Ok(None) };
        let (mut kept, exactly, mut ended) = (bounds.all_kept(now), bounds.remembers(), Ok(()));
        if self.env.config().has_other_nodes {
            // Another node may loosen the bounds from here on: what comes by then must not count.
            let before = Timestamp::from_millis(now.millis() - CLOCKS_APART_MAX);
            kept = kept.into_iter().map(|(element, kept)| (element, kept.as_of(before))).collect();
        }
        for device in devices {
            let permit = access::system(device, "what its design does not keep is dropped");
            match self.env.telemetry().series_retain(&permit, kept.clone(), exactly).await {
                Ok(true) => self.count_again(device).await,
                // What is hidden and too little to be dropped does not count either.
                Ok(false) => match self.is_any_hidden(&permit.reading(), kept.clone()).await {
                    Ok(true) => self.count_again(device).await,
                    Ok(false) => {}
                    Err(error) => ended = ended.and(Err(error)),
                },
                Err(error) => ended = ended.and(Err(error)),
            }
        }
        Ok(Some((last, ended)))
    }

    async fn is_any_hidden(
        &self,
        permit: &CanRead<DeviceRef>,
        kept: Vec<(Arc<str>, Kept)>,
    ) -> std::result::Result<bool, StoreError> {
        let telemetry = self.env.telemetry();
        Ok(telemetry.visible_bytes(permit, kept).await? < telemetry.visible_bytes(permit, Vec::new()).await?)
    }

    /// Counts a device's stored bytes again after some were hidden or deleted.
    async fn count_again(&self, device: DeviceRef) {
        match self.caches.device_entry(device.id).await {
            Ok(Some(entry)) => self.usage.touch(&entry),
            Ok(None) => {}
            // The count is corrected with the device's next value.
            Err(error) => tracing::warn!(%error, "what a device has stored is counted later"),
        }
    }

    /// Prepares a device to leave its project for another: deletes the values that the old project's former designs
    /// have hidden, so that they stay hidden. Former designs of the new project have no effect on the device's older
    /// values. The guard must live until the device has moved.
    ///
    /// # Errors
    /// Returns `Busy` if the other project's former bounds are not settled yet.
    pub(crate) async fn leave_retention(
        &self,
        permit: &CanWrite<DeviceRef>,
        device: &Device,
        to: ProjectId,
    ) -> Result<RwLockReadGuard<'_, ()>> {
        let moving = self.retention_changes().await;
        let reading = access::system(to, "a device comes into the project").reading();
        if self.env.registry().retention_fetch(&reading).await?.remembers() {
            self.retention_changed();
            return Err(Error::Busy);
        }
        let now = self.believed_now().unwrap_or_else(|| self.env.now());
        let leaving = access::system(device.project, "a device leaves the project").reading();
        let kept = self.env.registry().retention_fetch(&leaving).await?.all_kept(now);
        if !kept.is_empty() && self.env.telemetry().series_retain(permit, kept, true).await? {
            self.count_again(device.reference()).await;
        }
        Ok(moving)
    }
}

#[cfg(test)]
mod tests {
    use isobar_model::check::Faults;
    use isobar_model::device::DeviceInput;
    use isobar_model::json::parse;
    use isobar_model::project::SpecificationInput;
    use isobar_model::retention::ProjectRetention;
    use isobar_store::telemetry::ValueQuery;

    use super::*;
    use crate::LastChoice;
    use crate::stage::Stage;

    const DAY: i64 = 86_400;

    /// Returns a design that stores the events of `reading` in `log`, with these properties.
    fn keeping(properties: &str) -> String {
        format!(
            r#"{{"reading": {{"type": "deviceEvent", "triggers": {{"eventReceived": [{{"element": "log", "ability": "store"}}]}}}},
                "log": {{"type": "storage", "properties": {properties}}}}}"#
        )
    }

    async fn redesigns(stage: &Stage, device: &Device, properties: &str) -> Result<()> {
        let text = format!(r#"{{"name":"p","planes":{{"cloud":{{"elements":{}}}}}}}"#, keeping(properties));
        let input: (_, Faults) = SpecificationInput::read(&parse(&text).unwrap()).unwrap();
        stage.hub.specification_write(&stage.admin, device.project, input, None).await.map(|_| ())
    }

    async fn shown(stage: &Stage, device: &Device) -> u64 {
        stage.hub.values(&stage.admin, device.id, "log", ValueQuery::default()).await.unwrap().total
    }

    async fn bounds(stage: &Stage, device: &Device) -> ProjectRetention {
        let permit = access::system(device.project, "a test looks at its bounds").reading();
        stage.hub.0.env.registry().retention_fetch(&permit).await.unwrap()
    }

    async fn moves(stage: &Stage, device: &Device, to: ProjectId) -> Result<()> {
        let body = format!(r#"{{"name":"d","projectUuid":"{to}"}}"#);
        let input = DeviceInput::read(&parse(&body).unwrap()).unwrap();
        stage.hub.device_update(&stage.admin, device.id, input, LastChoice::None).await.map(|_| ())
    }

    // Holds: c13.retentionStays
    #[tokio::test]
    async fn values_hidden_by_a_former_design_stay_hidden() {
        let stage = Stage::set().await;
        let device = stage.device(&keeping(r#"{"valuesMax": 2}"#)).await;
        for _ in 0..5 {
            stage.posts(&device, "1").await;
        }
        assert_eq!(shown(&stage, &device).await, 2);
        redesigns(&stage, &device, r#"{"valuesMax": 100}"#).await.unwrap();
        redesigns(&stage, &device, "{}").await.unwrap();
        stage.clock.advance_seconds(1);
        stage.posts(&device, "1").await;
        assert_eq!(shown(&stage, &device).await, 3);
        let stage = stage.restarts().await;
        assert_eq!(shown(&stage, &device).await, 3);
        let jobs = &stage.hub.0.jobs;
        let now = stage.clock.now();
        // A clock behind the one that changed the designs settles nothing.
        jobs.drop_values(now.plus_seconds(-2)).await.unwrap();
        assert!(bounds(&stage, &device).await.remembers());
        let held = stage.entry(&device).await;
        jobs.drop_values(now).await.unwrap();
        assert_eq!(bounds(&stage, &device).await, ProjectRetention::default());
        assert_eq!(*held.plan.retention().unwrap(), ProjectRetention::default());
        stage.posts(&device, "1").await;
        assert_eq!(shown(&stage, &device).await, 4);
        stage.over().await;
    }

    #[tokio::test]
    async fn retention_days_are_counted_by_a_trusted_clock() {
        let stage = Stage::set().await;
        let device = stage.device(&keeping(r#"{"retentionDays": 10}"#)).await;
        stage.posts(&device, "1").await;
        let hour = std::time::Duration::from_secs(3_600);
        stage.hub.0.jobs.remove_what_is_old(hour).await;
        // A clock set to next year by mistake hides the value; it is shown again once the clock is right.
        stage.clock.advance_seconds(365 * DAY);
        stage.hub.0.jobs.remove_what_is_old(hour).await;
        assert_eq!(shown(&stage, &device).await, 0);
        stage.clock.advance_seconds(-365 * DAY);
        assert_eq!(shown(&stage, &device).await, 1);
        stage.clock.advance_seconds(11 * DAY);
        stage.hub.0.jobs.remove_what_is_old(std::time::Duration::from_secs(11 * DAY as u64)).await;
        redesigns(&stage, &device, "{}").await.unwrap();
        stage.hub.0.jobs.drop_values(stage.clock.now()).await.unwrap();
        assert_eq!(bounds(&stage, &device).await, ProjectRetention::default());
        assert_eq!(shown(&stage, &device).await, 0);
        assert_eq!(stage.stored(&device, "log").await.as_deref(), Some("1"));
        stage.over().await;
    }

    #[tokio::test]
    async fn bound_loosened_by_a_wrong_clock_ends_when_it_is_right() {
        let stage = Stage::set().await;
        let device = stage.device(&keeping(r#"{"retentionDays": 10}"#)).await;
        let other = stage.device(&keeping("{}")).await;
        stage.posts(&device, "1").await;
        let hour = std::time::Duration::from_secs(3_600);
        stage.hub.0.jobs.remove_what_is_old(hour).await;
        stage.clock.advance_seconds(365 * DAY);
        redesigns(&stage, &device, "{}").await.unwrap();
        // Until the clock is known to be wrong, the values that the bound has hidden stay hidden, and are not deleted.
        stage.hub.0.jobs.remove_what_is_old(hour).await;
        assert!(bounds(&stage, &device).await.remembers());
        assert_eq!(shown(&stage, &device).await, 0);
        assert!(matches!(moves(&stage, &other, device.project).await, Err(Error::Busy)));
        stage.clock.advance_seconds(-365 * DAY);
        stage.hub.0.jobs.remove_what_is_old(hour).await;
        assert_eq!(bounds(&stage, &device).await, ProjectRetention::default());
        moves(&stage, &other, device.project).await.unwrap();
        // The former bound has no effect any more.
        stage.clock.advance_seconds(20 * DAY);
        assert_eq!(shown(&stage, &device).await, 1);
        stage.over().await;
    }

    #[tokio::test]
    async fn values_hidden_after_a_long_pause_stay_hidden() {
        let stage = Stage::set().await;
        let device = stage.device(&keeping(r#"{"retentionDays": 10}"#)).await;
        stage.posts(&device, "1").await;
        let hour = std::time::Duration::from_secs(3_600);
        stage.hub.0.jobs.remove_what_is_old(hour).await;
        // The clock is right, but not trusted yet.
        stage.clock.advance_seconds(12 * DAY);
        redesigns(&stage, &device, "{}").await.unwrap();
        for _ in 0..3 {
            stage.hub.0.jobs.remove_what_is_old(hour).await;
            assert_eq!(shown(&stage, &device).await, 0);
        }
        // By now as much time has passed, and the value is deleted.
        stage.hub.0.jobs.remove_what_is_old(std::time::Duration::from_secs(12 * DAY as u64)).await;
        assert_eq!(bounds(&stage, &device).await, ProjectRetention::default());
        assert_eq!(shown(&stage, &device).await, 0);
        stage.over().await;
    }

    // Holds: c13.retentionStays
    #[tokio::test]
    async fn device_moved_to_another_project_shows_the_same_values() {
        let stage = Stage::set().await;
        let device = stage.device(&keeping(r#"{"valuesMax": 2}"#)).await;
        let other = stage.device(&keeping(r#"{"valuesMax": 1}"#)).await;
        for _ in 0..5 {
            stage.posts(&device, "1").await;
        }
        redesigns(&stage, &other, "{}").await.unwrap();
        // The other project's former design has hidden values of its own devices only.
        assert!(matches!(moves(&stage, &device, other.project).await, Err(Error::Busy)));
        assert_eq!(shown(&stage, &device).await, 2);
        stage.hub.0.jobs.drop_values(stage.clock.now()).await.unwrap();
        moves(&stage, &device, other.project).await.unwrap();
        assert_eq!(shown(&stage, &device).await, 2);
        stage.posts(&device, "1").await;
        assert_eq!(shown(&stage, &device).await, 3);
        stage.over().await;
    }

    #[tokio::test]
    async fn bounds_loosened_too_often_wait_until_settled() {
        let stage = Stage::set().await;
        let device = stage.device(&keeping(r#"{"valuesMax": 1}"#)).await;
        let mut loosened = 1;
        while let Ok(()) = redesigns(&stage, &device, &format!(r#"{{"valuesMax": {}}}"#, loosened + 1)).await {
            loosened += 1;
            assert!(loosened < 100);
        }
        stage.hub.0.jobs.drop_values(stage.clock.now()).await.unwrap();
        redesigns(&stage, &device, r#"{"valuesMax": 1000}"#).await.unwrap();
        stage.over().await;
    }
}
