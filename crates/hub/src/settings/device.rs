//! Settings of a device (specification: Device setting; contract: Settings).
//!
//! A change is a run next to the device's events: the new value, the outbox entry that makes its record in the
//! registry, and all effects of the design are one commit of the telemetry store. So an acknowledged change is durable,
//! its trigger has run exactly once, and changes by users and by designs have one order.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use isobar_design::{DeviceView, Effect, Plan, SettingDefinition, Trigger};
use isobar_model::access::{Action, Caller, CanRead, CanWrite};
use isobar_model::check::Faults;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceRef, SettingId};
use isobar_model::json::RawJson;
use isobar_model::page::{ListRequest, Page, SortKey};
use isobar_model::setting::{SettingRecord, unset_id};
use isobar_model::time::Timestamp;

use crate::Hub;
use crate::cache::entries::DeviceEntry;
use crate::designs::Admission;
use crate::identity::authentication::Principal;
use crate::ingest::design_runs::{DesignRuns, RunsEstimate};
use crate::ingest::{LinePlace, RUNS_MAX};
use crate::settings::held_by_changes;
use crate::support::sorting::by_fields;

const SETTING: &str = "setting";
/// Changes of one device in one commit: the device's events wait for their runs.
pub(crate) const CHANGES_AT_ONCE: usize = 64;

/// A setting of a device: a record of it, and the design's declaration.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSetting {
    /// The record's identifier.
    pub id: SettingId,
    /// The device.
    pub device: DeviceId,
    /// Time of the record, or of the device's creation if the setting was never set.
    pub created_at: Timestamp,
    /// Time at which the record was replaced.
    pub changed_at: Option<Timestamp>,
    /// The record that replaced it.
    pub changed_to: Option<SettingId>,
    /// The user that replaced it, or the device itself.
    pub changed_by: Option<String>,
    /// The setting's name.
    pub name: String,
    /// Its value: the device's own, or else the default.
    pub value: RawJson,
    /// The design's declaration; empty if the design no longer has the setting.
    pub declared: Declared,
}

/// A design's declaration of a setting, in the JSON text of the design.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// The name for users.
    pub title: RawJson,
    /// The purpose.
    pub description: RawJson,
    /// The kind of its values.
    pub input_type: Option<&'static str>,
    /// Properties of its input field.
    pub input_type_properties: RawJson,
    /// The value of a device that has no value of its own.
    pub default_value: RawJson,
    /// Its place in a list.
    pub list_order: i64,
}

impl From<&SettingDefinition> for Declared {
    fn from(definition: &SettingDefinition) -> Self {
        Self {
            title: definition.title.clone(),
            description: definition.description.clone(),
            input_type: Some(definition.input_type.name()),
            input_type_properties: definition.input_type_properties.clone(),
            default_value: definition.default_value.clone(),
            list_order: definition.list_order,
        }
    }
}

impl Declared {
    fn nothing() -> Self {
        let null = || RawJson::trusted(Bytes::from_static(b"null"));
        Self {
            title: null(),
            description: null(),
            input_type: None,
            input_type_properties: null(),
            default_value: null(),
            list_order: 0,
        }
    }
}

impl DeviceSetting {
    /// Returns a setting that was never set.
    fn unset(device: DeviceId, definition: &SettingDefinition) -> Self {
        Self::made(unset_id(device, &definition.name), device, definition, None)
    }

    /// Returns a setting whose newest record was just made.
    pub(crate) fn made(
        id: SettingId,
        device: DeviceId,
        definition: &SettingDefinition,
        value: Option<RawJson>,
    ) -> Self {
        Self {
            id,
            device,
            created_at: id.minted_at(),
            changed_at: None,
            changed_to: None,
            changed_by: None,
            name: definition.name.to_string(),
            value: value.unwrap_or_else(|| definition.default_value.clone()),
            declared: definition.into(),
        }
    }

    fn recorded(record: SettingRecord, plan: &Plan) -> Self {
        let declared = plan.setting(&record.name).map_or_else(Declared::nothing, Declared::from);
        Self {
            id: record.id,
            device: record.device,
            created_at: record.created_at,
            changed_at: record.changed_at,
            changed_to: record.changed_to,
            changed_by: record.changed_by,
            name: record.name,
            value: record.value.unwrap_or_else(|| declared.default_value.clone()),
            declared,
        }
    }

    /// Returns the time at which the record was last changed.
    pub fn updated_at(&self) -> Timestamp {
        self.changed_at.unwrap_or(self.created_at)
    }
}

impl Hub {
    /// Lists the settings of a device that its design declares, by listOrder and name by default.
    ///
    /// Needs `DeviceRead`; a device reads its own.
    pub async fn setting_list(
        &self,
        principal: &Principal,
        id: DeviceId,
        request: ListRequest,
    ) -> Result<Page<DeviceSetting>> {
        let (permit, entry) = self.0.identity.device_read(principal, id).await?;
        let mut settings = self.settings_now(&permit, &entry).await?;
        // The plan has its settings in the default order already.
        if !request.sort.is_empty() {
            settings.sort_by(|left, right| by_keys(&request.sort, left, right));
        }
        Ok(Page::of(settings, request.page))
    }

    /// Returns one setting of a device.
    ///
    /// Needs `DeviceRead`; a device reads its own.
    ///
    /// # Errors
    /// `Missing`: there is no such device or setting.
    pub async fn setting_fetch(&self, principal: &Principal, id: DeviceId, name: &str) -> Result<DeviceSetting> {
        let (permit, entry) = self.0.identity.device_read(principal, id).await?;
        let settings = self.settings_now(&permit, &entry).await?;
        settings.into_iter().find(|setting| setting.name == name).ok_or(Error::Missing(SETTING))
    }

    /// Lists the replaced records of a device's settings since the beginning of history, newest first by default.
    ///
    /// Needs `DeviceRead`. Waits up to ten seconds until the records of acknowledged changes are written, and for its
    /// turn among the lists.
    ///
    /// # Errors
    /// `Busy`: they could not be written in that time, or too many lists wait. `Invalid`: the values of the page are
    /// too large together.
    pub async fn setting_history(
        &self,
        caller: &Caller,
        id: DeviceId,
        request: ListRequest,
    ) -> Result<Page<DeviceSetting>> {
        let (permit, entry) = self.0.identity.user_device_read(caller, id).await?;
        // An acknowledged change must be visible in the history.
        if !self.0.outbox.written(entry.device.key).await {
            return Err(Error::Busy);
        }
        let (hub, begins) = (self.clone(), self.0.jobs.history_begins());
        let read = async move { Ok(hub.registry().setting_history(&permit, begins, &request).await?) };
        let page = self.0.listing_jobs.drive_for(caller, "setting_history", read).await?;
        let plan = self.0.caches.plan_of_device(&entry).await?;
        Ok(page.map(|record| DeviceSetting::recorded(record, &plan)))
    }

    /// Checks that the caller may change a setting: 404 of device or setting comes before 403.
    ///
    /// # Errors
    /// `Missing` of device or setting, before `Forbidden`.
    pub async fn allow_setting(&self, caller: &Caller, id: DeviceId, name: &str) -> Result<()> {
        self.setting_write(caller, id, name).await.map(|_| ())
    }

    /// Changes a setting.
    ///
    /// Needs `SettingUpdate`. Durable when this returns, with all that the design has done about it.
    ///
    /// # Errors
    /// `Invalid`: it is no value of this setting, or the device has no room for it. `NoRoom`: what changes and runs hold that
    /// wait is as much as it may be. `Busy`: the outbox is full, or too many runs wait.
    pub async fn setting_update(
        &self,
        caller: &Caller,
        id: DeviceId,
        name: &str,
        body: Bytes,
    ) -> Result<DeviceSetting> {
        let (permit, entry) = self.setting_write(caller, id, name).await?;
        let bytes = body.len();
        let _held = held_by_changes(&self.0.designs, entry.held_by_run(bytes))?;
        let mut faults = Faults::new();
        let read = self.0.env.bodies().payload(Some(caller.lineage.top()), &body, &mut faults).await?;
        let Some((value, _)) = read else { return Err(faults.into_error()) };
        let estimate = |plan: &Plan| RunsEstimate::of_changes(plan, [(name, bytes)]);
        let named: Arc<str> = Arc::from(name);
        let changed = self.changed(&permit, entry, estimate, move |runs, entry| {
            let plan = runs.plan();
            let definition = plan.setting(&named).ok_or(Error::Missing(SETTING))?;
            set(runs, entry, definition, value.clone()).map_err(|fault| Error::invalid("body", fault))
        });
        changed.await?
    }

    /// Resets a setting to its default.
    ///
    /// Needs `SettingUpdate`. Durable when this returns, with all effects of the design.
    ///
    /// # Errors
    /// `Missing`: there is no such device or setting.
    pub async fn setting_reset(&self, caller: &Caller, id: DeviceId, name: &str) -> Result<()> {
        let (permit, entry) = self.setting_write(caller, id, name).await?;
        let _held = held_by_changes(&self.0.designs, entry.held_by_run(0))?;
        let estimate = |plan: &Plan| RunsEstimate::of_resets(plan, [name]);
        let named: Arc<str> = Arc::from(name);
        self.changed(&permit, entry, estimate, move |runs, _| reset(runs, &named)).await
    }

    /// Resets every setting to its default. Values of settings that the design no longer declares are removed too,
    /// because they take room.
    ///
    /// Needs `SettingUpdate`. Durable when this returns, in commits of up to 64 changes.
    pub async fn settings_reset(&self, caller: &Caller, id: DeviceId) -> Result<()> {
        let (permit, entry) = self.0.identity.user_device_write(caller, id, Action::SettingUpdate).await?;
        let _held = held_by_changes(&self.0.designs, entry.held_by_run(0))?;
        let view = self.0.caches.device_view(&entry).await?;
        let names = resettable(&*self.0.caches.plan_of_device(&entry).await?, &view);
        let mut left = names.as_slice();
        while !left.is_empty() {
            let next = left.get(..CHANGES_AT_ONCE).unwrap_or(left);
            let estimate = |plan: &Plan| RunsEstimate::of_resets(plan, next.iter().map(|name| &**name));
            let names = next.to_vec();
            let work = move |runs: &mut DesignRuns<'_>, _: &DeviceEntry| {
                in_one_commit(runs, &names, |runs, name| reset(runs, name)).len()
            };
            let done = self.changed(&permit, Arc::clone(&entry), estimate, work).await?;
            left = left.get(done..).unwrap_or_default();
        }
        Ok(())
    }

    /// Lets `work` change settings of a device, by its newest entry. What it has done is durable when this returns. `estimate`
    /// tells what its runs may cost.
    pub(crate) async fn changed<T: Send + 'static>(
        &self,
        permit: &CanWrite<DeviceRef>,
        mut entry: Arc<DeviceEntry>,
        estimate: impl Fn(&Plan) -> RunsEstimate + Send + Sync,
        work: impl Fn(&mut DesignRuns<'_>, &DeviceEntry) -> T + Send + Sync + 'static,
    ) -> Result<T> {
        let (work, mut place) = (Arc::new(work), LinePlace::default());
        for _ in 0..RUNS_MAX {
            let estimate = entry.plan().map(|plan| estimate(&plan));
            if let Some(estimate) = estimate {
                let (work, of) = (Arc::clone(&work), Arc::clone(&entry));
                let runs = move |runs: &mut DesignRuns<'_>| work(runs, &of);
                let estimate = (Admission::Part, estimate);
                if let Some(done) = self.0.ingest.design_runs(permit, &entry, estimate, &mut place, runs).await? {
                    return Ok(done);
                }
            }
            entry = self.0.caches.device_entry(entry.device.id).await?.ok_or(Error::Missing("device"))?;
        }
        Err(Error::Busy)
    }

    /// Returns the permit to change an existing setting, and the device's entry.
    async fn setting_write(
        &self,
        caller: &Caller,
        id: DeviceId,
        name: &str,
    ) -> Result<(CanWrite<DeviceRef>, Arc<DeviceEntry>)> {
        let (_, entry) = self.0.identity.user_device_read(caller, id).await?;
        self.0.caches.plan_of_device(&entry).await?.setting(name).ok_or(Error::Missing(SETTING))?;
        self.0.identity.user_device_write(caller, id, Action::SettingUpdate).await
    }

    /// Returns the current settings, in the order of the design.
    async fn settings_now(&self, permit: &CanRead<DeviceRef>, entry: &DeviceEntry) -> Result<Vec<DeviceSetting>> {
        let pending = self.0.outbox.pending_shown(entry.device.key).await?;
        let mut records = self.registry().settings_of(permit).await?;
        pending.apply_to_settings(entry.device.id, &mut records);
        let plan = self.0.caches.plan_of_device(entry).await?;
        let setting =
            |definition: &SettingDefinition| match records.iter().position(|record| *record.name == *definition.name) {
                Some(at) => DeviceSetting::recorded(records.swap_remove(at), &plan),
                None => DeviceSetting::unset(entry.device.id, definition),
            };
        Ok(plan.settings().iter().map(setting).collect())
    }
}

/// Makes as many of the changes as fit into one commit, at least one, and returns their outcomes.
pub(crate) fn in_one_commit<'i, I, T>(
    runs: &mut DesignRuns<'_>,
    changes: &'i [I],
    mut change: impl FnMut(&mut DesignRuns<'_>, &'i I) -> T,
) -> Vec<T> {
    let mut done = Vec::with_capacity(changes.len());
    for next in changes {
        done.push(change(runs, next));
        if runs.is_full() {
            break;
        }
    }
    done
}

/// Sets a setting to a value, or returns the reason for which the value or its size is refused.
pub(crate) fn set(
    runs: &mut DesignRuns<'_>,
    entry: &DeviceEntry,
    definition: &SettingDefinition,
    value: RawJson,
) -> std::result::Result<DeviceSetting, String> {
    definition.check(&value.tree())?;
    runs.check_room(&definition.name, &value)?;
    let id = put(runs, definition, Some(value.clone()));
    Ok(DeviceSetting::made(id, entry.device.id, definition, Some(value)))
}

/// Returns the names of the settings that a design declares, and of those of former designs that have a value on the
/// device.
fn resettable(plan: &Plan, view: &DeviceView) -> Vec<Arc<str>> {
    let declared = plan.settings().iter().map(|definition| &definition.name);
    let former = view.settings.iter().map(|(name, _)| name).filter(|name| plan.setting(name).is_none());
    declared.chain(former).cloned().collect()
}

/// Resets a setting to its default. A setting without a value of its own is left unchanged.
fn reset(runs: &mut DesignRuns<'_>, name: &str) {
    let plan = runs.plan();
    let own = runs.view().settings.iter().find(|(own, _)| **own == *name).map(|(own, _)| own.clone());
    match (own, plan.setting(name)) {
        (None, _) => {}
        (Some(_), Some(definition)) => {
            put(runs, definition, None);
        }
        // A design that does not declare the setting has no reaction to it.
        (Some(own), None) => {
            runs.set(own, None);
        }
    }
}

/// Records a change and applies its effects: the new location of the device, and the run of the design.
fn put(runs: &mut DesignRuns<'_>, definition: &SettingDefinition, value: Option<RawJson>) -> SettingId {
    let event = runs.mint();
    let now = value.clone().unwrap_or_else(|| definition.default_value.clone());
    let id = runs.set(definition.name.clone(), value);
    // A geolocation moves the device (contract: Resources); a default that is no place leaves it where it is.
    if let Some(place) = definition.location(&now.tree()) {
        runs.effects(event, vec![Effect::SetLocation(place)]);
    }
    if runs.plan().reacts_to(&definition.name) {
        runs.run(event, Trigger::SettingChanged { name: &definition.name }, &now);
    }
    id
}

fn by_keys(keys: &[SortKey], left: &DeviceSetting, right: &DeviceSetting) -> Ordering {
    let by_field = |field: &str| match field {
        "name" => left.name.cmp(&right.name),
        "createdAt" => left.created_at.cmp(&right.created_at),
        "updatedAt" => left.updated_at().cmp(&right.updated_at()),
        _ => left.declared.list_order.cmp(&right.declared.list_order),
    };
    by_fields(keys, by_field, left.id.cmp(&right.id))
}
