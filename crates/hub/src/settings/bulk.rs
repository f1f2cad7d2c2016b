//! Settings of many devices at once (specification: Device settings, rules 1 and 2).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use isobar_design::Plan;
use isobar_model::access::{self, Action, Caller, CanRead, Lineage};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceRef, ProjectId};
use isobar_model::setting::SettingItem;

use crate::Hub;
use crate::cache::entries::DeviceEntry;
use crate::designs::HeldByRun;
use crate::error::is_ours;
use crate::ingest::design_runs::{DesignRuns, RunsEstimate};
use crate::settings::device::{CHANGES_AT_ONCE, Declared, DeviceSetting, in_one_commit, set};
use crate::settings::{held_by_changes, no_room};
use isobar_quota::TenantShare;

/// Devices that are changed at the same time by one bulk operation.
const BULK_DEVICES_AT_ONCE: usize = 256;
/// Devices looked up in one query of the registry.
const LOOKED_UP_AT_ONCE: usize = 1_000;

/// The outcome of a bulk change.
#[derive(Clone, Debug, Default)]
pub struct SettingsOutcome {
    /// The changed settings, in the order of their items.
    pub changed: Vec<DeviceSetting>,
    /// The reasons for which the others were not changed, in the order of their items.
    pub errors: Vec<String>,
}

/// The settings that a project gives its devices.
#[derive(Clone, Debug)]
pub struct ProjectDefaults {
    /// The project.
    pub project: ProjectId,
    /// The version that the devices name.
    pub version: Option<String>,
    /// The listed devices of this project.
    pub devices: Vec<DeviceId>,
    /// The names of the settings, and the design's declaration of each, by listOrder and then name. A project has them
    /// once, whatever versions its devices name.
    pub settings: Arc<[(Arc<str>, Declared)]>,
}

/// A refusal to return defaults.
#[derive(Clone, Debug)]
pub struct DefaultsRefusal {
    /// The reason.
    pub message: String,
    /// The project, if the device could be found.
    pub project: Option<ProjectId>,
    /// Its version.
    pub version: Option<String>,
}

/// The defaults of the projects of some devices.
#[derive(Clone, Debug, Default)]
pub struct DefaultsOutcome {
    /// The defaults, once for each project and version.
    pub defaults: Vec<ProjectDefaults>,
    /// The refusals.
    pub refused: Vec<DefaultsRefusal>,
}

/// The items of one device, by their place in the request.
type DeviceItems<'i> = Vec<(usize, &'i SettingItem)>;

/// The outcome of one item.
type ItemResult = std::result::Result<DeviceSetting, String>;

impl Hub {
    /// Changes settings of many devices, each item separately; those of one device in their order.
    ///
    /// Needs `SettingUpdate` on each device. All changes in `changed` are durable when this returns, with all effects
    /// of the designs.
    ///
    /// # Errors
    /// `Forbidden` if the role is too low for any device. `NoRoom`: waiting changes and runs use all the memory they
    /// may. A fault of one item is in the outcome.
    pub async fn settings_update(&self, caller: &Caller, items: &[SettingItem]) -> Result<SettingsOutcome> {
        self.0.identity.allow(caller, Action::SettingUpdate).await?;
        let bytes = items.iter().map(held_by_item).sum();
        let _held = held_by_changes(&self.0.designs, HeldByRun { tenant: caller.lineage.top(), bytes })?;
        let ids: Vec<_> = items.iter().filter_map(|item| item.device.parse().ok()).collect();
        let mut entries = self.entries_in_reach(caller, &ids).await?;
        let (mut shares, mut done) = (HashMap::<DeviceId, DeviceItems<'_>>::new(), Vec::with_capacity(items.len()));
        for (index, item) in items.iter().enumerate() {
            match item.device.parse().ok().filter(|id| entries.contains_key(id)) {
                Some(id) => shares.entry(id).or_default().push((index, item)),
                None => done.push((index, Err(unknown_device(index)))),
            }
        }
        let (mut shares, mut working) = (shares.into_iter().peekable(), FuturesUnordered::new());
        loop {
            while working.len() < BULK_DEVICES_AT_ONCE
                && let Some((id, _)) = shares.peek()
                && let Some(entry) = entries.get(id)
            {
                let held = self.0.designs.hold(entry.held_by_run(0));
                // Where there is no room for one more device, others of this call are done first.
                if held.is_err() && !working.is_empty() {
                    break;
                }
                let Some((entry, (_, share))) = entries.remove(id).zip(shares.next()) else { break };
                working.push(self.change_items(caller, entry, share, held.map_err(|_| no_room())));
            }
            match working.next().await {
                Some(part) => done.extend(part),
                None => break,
            }
        }
        done.sort_unstable_by_key(|(index, _)| *index);
        let mut outcome = SettingsOutcome::default();
        for (_, done) in done {
            match done {
                Ok(setting) => outcome.changed.push(setting),
                Err(message) => outcome.errors.push(message),
            }
        }
        Ok(outcome)
    }

    /// Changes settings of one device, if there is memory for these changes.
    async fn change_items(
        &self,
        caller: &Caller,
        entry: Arc<DeviceEntry>,
        share: DeviceItems<'_>,
        held: Result<TenantShare>,
    ) -> Vec<(usize, ItemResult)> {
        if let Err(error) = &held {
            return share.iter().map(|(index, _)| (*index, Err(failed(*index, error)))).collect();
        }
        let mut done = Vec::with_capacity(share.len());
        let mut left = share.as_slice();
        while !left.is_empty() {
            let items = left.get(..CHANGES_AT_ONCE).unwrap_or(left);
            let own: Vec<(usize, SettingItem)> = items.iter().map(|(index, item)| (*index, (*item).clone())).collect();
            let work = move |runs: &mut DesignRuns<'_>, entry: &DeviceEntry| -> Vec<(usize, ItemResult)> {
                in_one_commit(runs, &own, |runs, (index, item)| (*index, set_item(runs, entry, *index, item)))
            };
            let values = || items.iter().map(|(_, item)| (&*item.name, item.value.bytes().len()));
            let estimate = |plan: &Plan| RunsEstimate::of_changes(plan, values());
            let permit = access::write(caller, Action::SettingUpdate, entry.device, &entry.lineage);
            let changed = match permit {
                Ok(permit) => self.changed(&permit, Arc::clone(&entry), estimate, work).await,
                Err(refusal) => Err(refusal.into_error("device")),
            };
            let before = done.len();
            match changed {
                Ok(changed) => done.extend(changed),
                Err(error) => {
                    if let Error::Internal(cause) = &error {
                        tracing::error!(%cause, "an item of a bulk change failed");
                    }
                    // After a failure of ours no later item is changed: sent again, the failed ones would come last.
                    let failing = if is_ours(&error) { left } else { items };
                    done.extend(failing.iter().map(|(index, _)| (*index, Err(failed(*index, &error)))));
                }
            }
            left = left.get(done.len() - before..).unwrap_or_default();
        }
        done
    }

    /// Returns the settings that the projects of these devices give them, once for each project and version.
    ///
    /// Needs `DeviceRead` on each device; the others are among the refused.
    pub async fn setting_defaults(&self, caller: &Caller, named: &[String]) -> Result<DefaultsOutcome> {
        let ids: Vec<DeviceId> = named.iter().filter_map(|text| text.parse().ok()).collect();
        let mut found = HashMap::new();
        for ids in distinct(&ids).chunks(LOOKED_UP_AT_ONCE) {
            let permits = self.permits_in_reach(caller, ids).await?;
            let devices = self.registry().device_versions(&permits).await?;
            found.extend(devices.into_iter().map(|(device, project, version)| (device, (project, version))));
        }
        let (mut groups, mut outcome) = (Vec::<ProjectDefaults>::new(), DefaultsOutcome::default());
        let (mut places, mut seen) = (HashMap::new(), HashSet::new());
        for (index, text) in named.iter().enumerate() {
            let Some((id, of)) = text.parse().ok().and_then(|id| Some((id, found.get(&id)?))) else {
                let message = format!("[{index}]: no such device");
                outcome.refused.push(DefaultsRefusal { message, project: None, version: None });
                continue;
            };
            let place = *places.entry(of).or_insert_with(|| {
                let (project, version) = of.clone();
                groups.push(ProjectDefaults { project, version, devices: Vec::new(), settings: Arc::default() });
                groups.len() - 1
            });
            if let Some(group) = groups.get_mut(place).filter(|_| seen.insert(id)) {
                group.devices.push(id);
            }
        }
        let mut declared = HashMap::new();
        for mut group in groups {
            group.settings = match declared.get(&group.project) {
                Some(settings) => Arc::clone(settings),
                None => {
                    let plan = self.0.caches.plan_of_project(group.project).await?;
                    let settings = plan.settings().iter();
                    let settings = settings.map(|definition| (definition.name.clone(), Declared::from(definition)));
                    Arc::clone(declared.entry(group.project).or_insert(settings.collect()))
                }
            };
            if group.settings.is_empty() {
                let message = format!("the project {} has no settings and so no defaults", group.project);
                let (project, version) = (Some(group.project), group.version);
                outcome.refused.push(DefaultsRefusal { message, project, version });
            } else {
                outcome.defaults.push(group);
            }
        }
        Ok(outcome)
    }

    /// Returns the entries of the listed devices that the caller can see.
    async fn entries_in_reach(&self, caller: &Caller, ids: &[DeviceId]) -> Result<HashMap<DeviceId, Arc<DeviceEntry>>> {
        let mut entries = HashMap::new();
        let mut unknown = Vec::new();
        for id in distinct(ids) {
            match self.0.caches.cached_device(id) {
                Some(entry) if caller.reaches(&entry.lineage) => drop(entries.insert(id, entry)),
                Some(_) => {}
                None => unknown.push(id),
            }
        }
        let permit = |device, lineage: &Lineage| access::read(caller, Action::DeviceRead, device, lineage).ok();
        for ids in unknown.chunks(LOOKED_UP_AT_ONCE) {
            let loaded = self.0.caches.device_entries(ids, permit).await?;
            entries.extend(loaded.into_iter().map(|entry| (entry.device.id, entry)));
        }
        Ok(entries)
    }

    /// Returns permits for the listed devices that the caller can see.
    pub(crate) async fn permits_in_reach(&self, caller: &Caller, ids: &[DeviceId]) -> Result<Vec<CanRead<DeviceRef>>> {
        let placed = self.registry().device_placements(ids).await?.into_iter();
        Ok(placed.filter_map(|(device, of)| access::read(caller, Action::DeviceRead, device, &of).ok()).collect())
    }
}

/// Returns the bytes that an item and its outcome hold in memory.
fn held_by_item(item: &SettingItem) -> usize {
    let texts = item.device.len() + 2 * item.name.len() + item.value.bytes().len();
    size_of::<SettingItem>() + size_of::<DeviceSetting>() + texts
}

fn set_item(runs: &mut DesignRuns<'_>, entry: &DeviceEntry, index: usize, item: &SettingItem) -> ItemResult {
    let plan = runs.plan();
    let definition = plan.setting(&item.name).ok_or_else(|| format!("[{index}].name: no such setting"))?;
    set(runs, entry, definition, item.value.clone()).map_err(|fault| format!("[{index}].value: {fault}"))
}

/// Returns the message for a device that does not exist, which is also that for one that the caller cannot see.
fn unknown_device(index: usize) -> String {
    format!("[{index}].deviceId: no such device")
}

/// Returns the message of a failed item.
fn failed(index: usize, error: &Error) -> String {
    match error {
        Error::Missing(_) => unknown_device(index),
        _ => format!("[{index}]: {error}"),
    }
}

fn distinct(ids: &[DeviceId]) -> Vec<DeviceId> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    ids
}
