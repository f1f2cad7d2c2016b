//! The end of values that are no longer kept (contract: Beyond the specification). Readers leave them out from the moment at which they are
//! not; here they are dropped for good, device by device.
//!
//! What a former design has hidden stays hidden until it is dropped everywhere: the project remembers its bounds until then.

use std::time::Instant;

use isobar_model::access::{self, CanRead, CanWrite};
use isobar_model::device::Device;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceKey, DeviceRef, ProjectId};
use isobar_model::time::{Clock, Timestamp};
use isobar_store::error::StoreError;
use parking_lot::Mutex;
use tokio::sync::{Notify, RwLock, RwLockReadGuard};

use super::Jobs;

/// Projects, and devices of one, that are asked for at a time.
const PROJECTS_AT_ONCE: u32 = 100;
const DEVICES_AT_ONCE: u32 = 100;

/// What the jobs remember of it.
#[derive(Default)]
pub(super) struct RetentionState {
    /// Notified when a design has changed.
    pub changed: Notify,
    /// What the time was, as far as the clock was believed, and when.
    believed: Mutex<Option<(Timestamp, Instant)>>,
    /// Held by who changes a design, or a device's project; alone by who drops by what these say.
    changing: RwLock<()>,
}

impl RetentionState {
    /// The time is this, as far as the clock is believed.
    pub fn believe(&self, now: Timestamp, clock: &Clock) {
        *self.believed.lock() = Some((now, clock.instant()));
    }
}

impl Jobs {
    /// A design has changed: what it no longer keeps is dropped soon.
    pub(crate) fn retention_changed(&self) {
        self.retention.changed.notify_one();
    }

    /// Neither designs nor devices' projects are read to drop values by until this is dropped: they change.
    pub(crate) async fn retention_changes(&self) -> RwLockReadGuard<'_, ()> {
        self.retention.changing.read().await
    }

    /// What the time is, no later than a believed clock says: a clock that jumps drops nothing. None: that was never found out.
    pub(super) fn believed_now(&self) -> Option<Timestamp> {
        let (then, since) = (*self.retention.believed.lock())?;
        let ran = i64::try_from(self.env.clock().elapsed(since).as_millis()).unwrap_or(i64::MAX);
        let expected = Timestamp::from_millis(then.millis().saturating_add(ran));
        Some(expected.min(self.env.now()))
    }

    /// Drops what is no longer kept of the values of all devices. What fails for one holds up none of the others.
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
        if bounds.remembers() {
            // What had come before the former bounds ended is there to be counted.
            self.env.telemetry().sync().await?;
        }
        let (mut after, mut ended) = (DeviceKey(0), Ok(()));
        while let Some((last, dropped)) = self.drop_values_of_some(&permit, after, now).await? {
            (after, ended) = (last, ended.and(dropped));
        }
        ended?;
        // Bounds that a clock ahead of the believed one has ended have not hidden all that they will, unless that clock was wrong.
        if bounds.remembers() && bounds.have_ended(now, self.env.now()) {
            // A design that comes after this finds them settled, and one that came before has other bounds.
            let _alone = self.retention.changing.write().await;
            if let Some(settled) = self.env.registry().retention_settled(&permit, bounds).await? {
                self.caches.retention_settled(project, settled);
            }
        }
        Ok(())
    }

    /// Drops values of the next devices of a project: the last of them, and how it went. None: there are no more.
    async fn drop_values_of_some(
        &self,
        permit: &CanRead<ProjectId>,
        after: DeviceKey,
        now: Timestamp,
    ) -> std::result::Result<Option<(DeviceKey, std::result::Result<(), StoreError>)>, StoreError> {
        let _alone = self.retention.changing.write().await;
        let bounds = self.env.registry().retention_fetch(permit).await?;
        let devices = self.env.registry().retention_devices(permit, after, DEVICES_AT_ONCE).await?;
        let Some(last) = devices.last().map(|device| device.key) else { return Ok(None) };
        let (kept, exactly, mut ended) = (bounds.all_kept(now), bounds.remembers(), Ok(()));
        for device in devices {
            let permit = access::system(device, "what its design does not keep is dropped");
            match self.env.telemetry().series_retain(&permit, kept.clone(), exactly).await {
                Ok(true) => self.count_again(device).await,
                Ok(false) => {}
                Err(error) => ended = ended.and(Err(error)),
            }
        }
        Ok(Some((last, ended)))
    }

    /// A device has less stored than before.
    async fn count_again(&self, device: DeviceRef) {
        match self.caches.device_entry(device.id).await {
            Ok(Some(entry)) => self.usage.touch(&entry),
            Ok(None) => {}
            // It is right again with the device's next value.
            Err(error) => tracing::warn!(%error, "what a device has stored is counted later"),
        }
    }

    /// A device leaves its project, which is that of `device`, for another: what the designs of the one have hidden is dropped,
    /// so that it stays hidden. What those of the other have hidden before the device came is none of its business. To be held
    /// until it has moved.
    ///
    /// # Errors
    /// `Busy`: the other project's former bounds are not settled yet.
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

    /// The events of `reading` are stored in `log`, of which this is kept.
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

    #[tokio::test]
    async fn what_a_former_design_has_hidden_stays_hidden_and_is_forgotten_when_it_is_dropped() {
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
        // By a clock that is behind the one by which the designs were changed nothing is settled.
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
    async fn days_are_counted_by_a_clock_that_is_believed() {
        let stage = Stage::set().await;
        let device = stage.device(&keeping(r#"{"retentionDays": 10}"#)).await;
        stage.posts(&device, "1").await;
        let hour = std::time::Duration::from_secs(3_600);
        stage.hub.0.jobs.remove_what_is_old(hour).await;
        // Set to next year by mistake: nobody sees it, and it is there when the clock is right again.
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
    async fn a_bound_that_is_loosened_while_the_clock_is_wrong_ends_when_it_is_right_again() {
        let stage = Stage::set().await;
        let device = stage.device(&keeping(r#"{"retentionDays": 10}"#)).await;
        let other = stage.device(&keeping("{}")).await;
        stage.posts(&device, "1").await;
        let hour = std::time::Duration::from_secs(3_600);
        stage.hub.0.jobs.remove_what_is_old(hour).await;
        stage.clock.advance_seconds(365 * DAY);
        redesigns(&stage, &device, "{}").await.unwrap();
        // As long as nobody knows that the clock is wrong, what the bound has hidden stays hidden, and is not removed.
        stage.hub.0.jobs.remove_what_is_old(hour).await;
        assert!(bounds(&stage, &device).await.remembers());
        assert_eq!(shown(&stage, &device).await, 0);
        assert!(matches!(moves(&stage, &other, device.project).await, Err(Error::Busy)));
        stage.clock.advance_seconds(-365 * DAY);
        stage.hub.0.jobs.remove_what_is_old(hour).await;
        assert_eq!(bounds(&stage, &device).await, ProjectRetention::default());
        moves(&stage, &other, device.project).await.unwrap();
        // The former bound is in force no more.
        stage.clock.advance_seconds(20 * DAY);
        assert_eq!(shown(&stage, &device).await, 1);
        stage.over().await;
    }

    #[tokio::test]
    async fn what_a_bound_has_hidden_after_a_long_pause_stays_hidden_when_it_is_loosened() {
        let stage = Stage::set().await;
        let device = stage.device(&keeping(r#"{"retentionDays": 10}"#)).await;
        stage.posts(&device, "1").await;
        let hour = std::time::Duration::from_secs(3_600);
        stage.hub.0.jobs.remove_what_is_old(hour).await;
        // The clock is right; that it is, nobody has said.
        stage.clock.advance_seconds(12 * DAY);
        redesigns(&stage, &device, "{}").await.unwrap();
        for _ in 0..3 {
            stage.hub.0.jobs.remove_what_is_old(hour).await;
            assert_eq!(shown(&stage, &device).await, 0);
        }
        // By then as much time has run, and the value is gone for good.
        stage.hub.0.jobs.remove_what_is_old(std::time::Duration::from_secs(12 * DAY as u64)).await;
        assert_eq!(bounds(&stage, &device).await, ProjectRetention::default());
        assert_eq!(shown(&stage, &device).await, 0);
        stage.over().await;
    }

    #[tokio::test]
    async fn a_device_that_goes_to_another_project_takes_along_what_it_shows() {
        let stage = Stage::set().await;
        let device = stage.device(&keeping(r#"{"valuesMax": 2}"#)).await;
        let other = stage.device(&keeping(r#"{"valuesMax": 1}"#)).await;
        for _ in 0..5 {
            stage.posts(&device, "1").await;
        }
        redesigns(&stage, &other, "{}").await.unwrap();
        // What the other project's former design has hidden, it has hidden of its own devices alone.
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
    async fn bounds_that_are_loosened_again_and_again_wait_until_they_are_settled() {
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
