//! Lists and changes alarms: those that designs have raised, with the users' changes to them.

use std::collections::HashMap;
use std::sync::Arc;

use isobar_design::{Plan, Trigger};
use isobar_model::access::{Action, Caller, CanWrite};
use isobar_model::alarm::{Alarm, AlarmChange, AlarmEntry, AlarmState, AlarmSummary};
use isobar_model::check::Patch;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{AlarmId, DeviceKey, DeviceRef, UserId};
use isobar_model::json::RawJson;
use isobar_model::page::{ListRequest, Page};
use isobar_model::role::Role;
use isobar_store::registry::{AlarmFilter, Assigned};
use parking_lot::Mutex;

use super::devices::DECISIONS_MAX;
use crate::cache::entries::DeviceEntry;
use crate::error::if_there;
use crate::ingest::design_runs::{DesignRuns, RunsEstimate};
use crate::outbox::Shown;
use crate::outbox::work::AlarmChangeWork;
use crate::{Hub, TreeQuery};

const ALARM: &str = "alarm";

/// An alarm with its history.
#[derive(Clone, Debug)]
pub struct AlarmView {
    /// The alarm.
    pub alarm: Alarm,
    /// Its changes, the newest last.
    pub history: Vec<AlarmEntry>,
}

impl Hub {
    /// Lists the alarms that pass the filters: by default the active ones first, among these the most severe, then the
    /// newest.
    ///
    /// Needs `AlarmRead` on that part of the tree. Waits up to a second for pending changes of designs, and for a slot
    /// among the lists.
    ///
    /// # Errors
    /// `Busy`: too many lists wait. `Invalid`: the texts of the page are too large together.
    pub async fn alarm_list(
        &self,
        caller: &Caller,
        tree: TreeQuery,
        list: ListRequest,
        filters: Vec<AlarmFilter>,
    ) -> Result<Page<Alarm>> {
        let base = self.0.identity.tree_base(caller, tree.organization).await?;
        let permit = self.0.identity.list_permit(caller, tree, Action::AlarmRead).await?;
        self.0.outbox.caught_up(base.top(), &[Shown::Alarms]).await;
        let hub = self.clone();
        let read = async move { Ok(hub.registry().alarm_list(&permit, &list, &filters).await?) };
        self.0.listing_jobs.drive_for(caller, "alarm_list", read).await
    }

    /// Counts the active alarms of a part of the tree, and the unacknowledged ones.
    ///
    /// Needs `AlarmRead` on that part of the tree. Waits as [`Hub::alarm_list`] does.
    pub async fn alarm_summary(&self, caller: &Caller, tree: TreeQuery) -> Result<AlarmSummary> {
        let base = self.0.identity.tree_base(caller, tree.organization).await?;
        let permit = self.0.identity.list_permit(caller, tree, Action::AlarmRead).await?;
        self.0.outbox.caught_up(base.top(), &[Shown::Alarms]).await;
        let hub = self.clone();
        let read = async move { Ok(hub.registry().alarm_summary(&permit).await?) };
        self.0.listing_jobs.drive_for(caller, "alarm_summary", read).await
    }

    /// Fetches an alarm with its history.
    ///
    /// Needs `AlarmRead`. Waits as [`Hub::alarm_list`] does.
    pub async fn alarm_fetch(&self, caller: &Caller, id: AlarmId) -> Result<AlarmView> {
        let (permit, entry) = self.alarm_permit(caller, id, Action::AlarmRead).await?;
        self.0.outbox.caught_up(entry.lineage.top(), &[Shown::Alarms]).await;
        self.alarm_view(&permit, id).await
    }

    /// Checks that the caller may perform this action on an alarm.
    ///
    /// # Errors
    /// `Missing` before `Forbidden`.
    pub async fn allow_alarm(&self, caller: &Caller, id: AlarmId, action: Action) -> Result<()> {
        self.alarm_permit(caller, id, action).await.map(|_| ())
    }

    /// Changes an alarm: fields missing in the body keep their values. Acknowledging or clearing an alarm runs its
    /// design.
    ///
    /// Needs `AlarmUpdate` on its device. Durable when this returns, with all effects of the design. Of several
    /// concurrent calls that acknowledge it one runs the design.
    ///
    /// # Errors
    /// `Busy`: the registry could not be written for ten seconds, the outbox is full, or too many runs wait. `Invalid`:
    /// the alarm is over and cannot become unacknowledged again, or the assignee is not a user whom the caller can see
    /// and who can see the alarm.
    pub async fn alarm_update(&self, caller: &Caller, id: AlarmId, change: AlarmChange) -> Result<AlarmView> {
        let (permit, entry) = self.alarm_permit(caller, id, Action::AlarmUpdate).await?;
        let before = self.alarm_view(&permit, id).await?.alarm;
        let is_over = before.acknowledged && before.state == AlarmState::Cleared;
        if is_over && change.acknowledged == Some(false) {
            return Err(Error::invalid("acknowledged", "must stay true: the alarm is over"));
        }
        if let Patch::Set(assignee) = change.assignee
            && before.assignee != Some(assignee)
        {
            self.check_assignee(caller, assignee, &entry).await?;
        }
        let _turn = self.0.alarm_turns.take(entry.device.key).await;
        for _ in 0..DECISIONS_MAX {
            // Earlier changes are visible from now on: of several concurrent calls that acknowledge the alarm one is the
            // first.
            if !self.0.outbox.written(entry.device.key).await {
                return Err(Error::Busy);
            }
            let entry = self.0.caches.device_entry(entry.device.id).await?.ok_or(Error::Missing(ALARM))?;
            // Read before the alarm: another process may change it in between.
            let revision = entry.revision();
            let found = self.registry().alarm_fetch(&permit.reading(), id).await?;
            let (before, _) = found.ok_or(Error::Missing(ALARM))?;
            if self.change(&permit, (entry, revision), caller.user, &before, change.clone()).await? {
                if matches!(change.assignee, Patch::Set(_)) {
                    // The user or the device may have moved since it was checked.
                    self.alarms_unassign(Assigned::Of(permit.target().key)).await;
                }
                return self.alarm_view(&permit, id).await;
            }
        }
        Err(Error::Busy)
    }

    /// Commits a change of an alarm that was read at this revision of its device, with all effects of the design. Returns
    /// false, without a change, if the device has another revision by then.
    async fn change(
        &self,
        permit: &CanWrite<DeviceRef>,
        (entry, revision): (Arc<DeviceEntry>, u64),
        by: UserId,
        alarm: &Alarm,
        change: AlarmChange,
    ) -> Result<bool> {
        let device = entry.device.key;
        let said = serde_json::json!({"key": alarm.key, "comment": change.comment, "by": by});
        let said = RawJson::trusted(said.to_string().into());
        let held = self.0.designs.hold(entry.held_by_run(said.bytes().len()));
        let _held = held.map_err(|_| Error::Busy)?;
        let (acknowledges, element) = (change.acknowledged == Some(true) && !alarm.acknowledged, &*alarm.element);
        let estimate = |plan: &Plan| match plan.raises(element) {
            true => RunsEstimate::of_run(plan, said.bytes().len()),
            false => RunsEstimate::default(),
        };
        let (alarm, payload) = (alarm.clone(), said.clone());
        let work = move |runs: &mut DesignRuns<'_>, _: &DeviceEntry| {
            if runs.revision() != revision {
                return false;
            }
            let event = runs.mint();
            runs.change_alarm(AlarmChangeWork::of(&alarm, change.clone(), by, event));
            if change.clears {
                runs.run(event, Trigger::AlarmCleared { element: &alarm.element, key: &alarm.key }, &payload);
            }
            if acknowledges {
                runs.run(event, Trigger::AlarmAcknowledged { element: &alarm.element }, &payload);
            }
            true
        };
        let is_changed = self.changed(permit, entry, estimate, work).await?;
        match is_changed && !self.0.outbox.written(device).await {
            true => Err(Error::Busy),
            false => Ok(is_changed),
        }
    }

    /// Takes alarms from assignees who cannot see them, after a change of a user, a device or an organization. What fails
    /// is done by the hourly removal of old data.
    pub(crate) async fn alarms_unassign(&self, of: Assigned) {
        let told = async {
            let alarms = self.registry().alarms_unassign(of, self.now()).await?;
            // Where other nodes serve, the alarms of all come back as changes of the registry.
            match self.0.env.config().has_other_nodes {
                true => Ok(()),
                false => self.0.delivery.tell_of_changed_alarms(&alarms).await,
            }
        };
        if let Err(error) = told.await {
            tracing::warn!(%error, "cannot take alarms from users who no longer see them, will retry within the hour");
        }
    }

    /// Checks that an alarm can be assigned to a user: one whom the caller can see, and who can see its device.
    async fn check_assignee(&self, caller: &Caller, assignee: UserId, entry: &DeviceEntry) -> Result<()> {
        let unknown = || Error::invalid("assigneeId", "no such user, or none who can see the alarm");
        let user = if_there(self.user_fetch(caller, assignee).await)?.ok_or_else(unknown)?;
        let reaches = user.role == Role::SystemAdmin || entry.lineage.contains(user.organization);
        if user.disabled || !reaches { Err(unknown()) } else { Ok(()) }
    }

    async fn alarm_view(&self, permit: &CanWrite<DeviceRef>, id: AlarmId) -> Result<AlarmView> {
        let found = self.registry().alarm_fetch(&permit.reading(), id).await?;
        let (alarm, history) = found.ok_or(Error::Missing(ALARM))?;
        Ok(AlarmView { alarm, history })
    }

    /// Returns the permit for an action on an alarm of a device, and that device.
    async fn alarm_permit(
        &self,
        caller: &Caller,
        id: AlarmId,
        action: Action,
    ) -> Result<(CanWrite<DeviceRef>, Arc<DeviceEntry>)> {
        let device = self.registry().alarm_device(id).await?.ok_or(Error::Missing(ALARM))?;
        let permit = self.0.identity.user_device_write(caller, device, action).await;
        // An alarm of a hidden device is hidden too.
        if_there(permit)?.ok_or(Error::Missing(ALARM))
    }
}

/// Serializes changes of a device's alarms: each waits for those before.
#[derive(Default)]
pub(crate) struct AlarmTurns(Mutex<HashMap<DeviceKey, Arc<tokio::sync::Mutex<()>>>>);

/// Number of devices above which unused turns are removed.
const TURNS_LOOKED_AT: usize = 1_024;

impl AlarmTurns {
    /// Waits for a turn at a device.
    async fn take(&self, device: DeviceKey) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock();
            if turns.len() >= TURNS_LOOKED_AT {
                turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            Arc::clone(turns.entry(device).or_default())
        };
        turn.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use isobar_model::device::Device;
    use isobar_model::time::Timestamp;

    use super::*;
    use crate::outbox::PARKED_AFTER;
    use crate::stage::Stage;

    const FRIDGE: &str = r#"{
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [{"element": "isWarm", "ability": "evaluate"}]}},
        "isWarm": {"type": "condition", "properties": {"expression": "payload > 8"}, "triggers": {
            "true": [{"element": "warm", "ability": "raise"}], "false": [{"element": "isCold", "ability": "evaluate"}]}},
        "isCold": {"type": "condition", "properties": {"expression": "payload < 6"}, "triggers": {
            "true": [{"element": "warm", "ability": "clear"}]}},
        "warm": {"type": "alarm", "properties": {"title": "{{ payload }} degrees", "severity": "critical"}}
    }"#;
    const WARM: &str = "9";
    /// Neither raises the alarm nor clears it.
    const MILD: &str = "7";
    const COLD: &str = "4";

    /// Posts a second after what was before, and returns the alarm as it is listed then.
    async fn posted(stage: &Stage, device: &Device, payload: &'static str) -> Option<Alarm> {
        stage.clock.advance_seconds(1);
        stage.posts(device, payload).await;
        listed(stage, device).await
    }

    async fn listed(stage: &Stage, device: &Device) -> Option<Alarm> {
        stage.hub.0.delivery.work_off_now().await.unwrap();
        let alarms = stage.hub.registry().alarms_at(&[(device.key, "warm", "")]).await.unwrap();
        alarms.into_iter().map(|(alarm, _)| alarm).next()
    }

    fn told(alarm: Option<Alarm>) -> Option<(AlarmState, u64, Timestamp)> {
        alarm.map(|alarm| (alarm.state, alarm.count, alarm.raised_at))
    }

    #[tokio::test]
    async fn alarm_that_an_earlier_registry_lacks_is_listed_again() {
        let stage = Stage::set().await;
        let device = stage.device(FRIDGE).await;
        let stage = stage.restarts_after(|folder| folder.keep("registry")).await;
        let raised = posted(&stage, &device, WARM).await.unwrap();
        let stage = stage.restarts_after(|folder| folder.restore("registry")).await;
        assert_eq!(listed(&stage, &device).await, None);
        let listed = posted(&stage, &device, MILD).await.unwrap();
        assert_eq!(
            (listed.id, listed.raised_at, listed.count, &*listed.title, listed.value),
            (raised.id, raised.raised_at, 1, "warm", None)
        );
        let again = posted(&stage, &device, WARM).await.unwrap();
        assert_eq!(
            (again.id, again.raised_at, again.count, &*again.title),
            (raised.id, raised.raised_at, 2, "9 degrees")
        );
        let cleared = posted(&stage, &device, COLD).await;
        assert_eq!(told(cleared), Some((AlarmState::Cleared, 2, raised.raised_at)));
        stage.over().await;
    }

    #[tokio::test]
    async fn alarm_that_an_earlier_registry_shows_as_active_is_cleared() {
        let stage = Stage::set().await;
        let device = stage.device(FRIDGE).await;
        let raised = posted(&stage, &device, WARM).await.unwrap();
        let stage = stage.restarts_after(|folder| folder.keep("registry")).await;
        posted(&stage, &device, COLD).await.unwrap();
        let stage = stage.restarts_after(|folder| folder.restore("registry")).await;
        assert_eq!(told(listed(&stage, &device).await), Some((AlarmState::Active, 1, raised.raised_at)));
        assert_eq!(told(posted(&stage, &device, COLD).await), Some((AlarmState::Cleared, 1, raised.raised_at)));
        let later = posted(&stage, &device, WARM).await.unwrap();
        assert_eq!((later.id, later.state, later.count), (raised.id, AlarmState::Active, 2));
        stage.over().await;
    }

    #[tokio::test]
    async fn alarm_whose_findings_were_parked_is_listed_when_the_registry_takes_them() {
        let stage = Stage::set().await;
        let device = stage.device(FRIDGE).await;
        let refuses = "CREATE TRIGGER no BEFORE INSERT ON alarms BEGIN SELECT RAISE(ABORT, 'no'); END";
        sqlx::raw_sql(refuses).execute(&stage.sql().await).await.unwrap();
        for payload in [WARM, COLD, WARM] {
            assert_eq!(posted(&stage, &device, payload).await, None);
        }
        for _ in 0..=PARKED_AFTER {
            assert_eq!(listed(&stage, &device).await, None);
        }
        let left = stage.hub.0.env.telemetry().outbox(0, 9).await.unwrap();
        assert!(left.iter().any(|entry| entry.parked.is_some()));
        let stage = stage.restarts().await;
        stage.takes_again().await;
        let shown = posted(&stage, &device, COLD).await.unwrap();
        assert_eq!((shown.state, shown.count), (AlarmState::Cleared, 2));
        stage.over().await;
    }

    #[tokio::test]
    async fn alarm_of_earlier_telemetry_is_active_again_at_its_next_raise() {
        let stage = Stage::set().await;
        let device = stage.device(FRIDGE).await;
        let raised = posted(&stage, &device, WARM).await.unwrap();
        let stage = stage.restarts_after(|folder| folder.keep("telemetry")).await;
        posted(&stage, &device, COLD).await.unwrap();
        let stage = stage.restarts_after(|folder| folder.restore("telemetry")).await;
        assert_eq!(told(posted(&stage, &device, WARM).await), Some((AlarmState::Active, 2, raised.raised_at)));
        assert_eq!(told(posted(&stage, &device, COLD).await), Some((AlarmState::Cleared, 2, raised.raised_at)));
        stage.over().await;
    }

    #[tokio::test]
    async fn alarm_unknown_to_earlier_telemetry_is_cleared() {
        let stage = Stage::set().await;
        let device = stage.device(FRIDGE).await;
        let stage = stage.restarts_after(|folder| folder.keep("telemetry")).await;
        let raised = posted(&stage, &device, WARM).await.unwrap();
        let stage = stage.restarts_after(|folder| folder.restore("telemetry")).await;
        assert_eq!(told(posted(&stage, &device, COLD).await), Some((AlarmState::Cleared, 1, raised.raised_at)));
        assert_eq!(posted(&stage, &device, WARM).await.unwrap().state, AlarmState::Active);
        stage.over().await;
    }
}
