//! Settings of many devices at once (specification: Device settings, rules 1 and 2).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use isobar_model::access::{self, Action, Caller, CanRead, Lineage};
use isobar_model::device::Device;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceRef, ProjectId};
use isobar_model::setting::{SettingItem, SettingRecord};

use crate::Hub;
use crate::cache::entries::{DeviceEntry, entry_of};
use crate::error::Told as _;
use crate::ingest::design_runs::SideRuns;
use crate::settings::device::{CHANGES_AT_ONCE, Declared, DeviceSetting, in_one_commit, set};

/// Devices that are changed at the same time by one bulk operation.
const DEVICES_AT_ONCE: usize = 256;
/// Devices looked up in one question to the registry.
const LOOKED_UP_AT_ONCE: usize = 1_000;

/// What came of a bulk change.
#[derive(Clone, Debug, Default)]
pub struct SettingsOutcome {
    /// The changed settings, in the order of their items.
    pub changed: Vec<DeviceSetting>,
    /// Why the others were not changed, in the order of their items.
    pub errors: Vec<String>,
}

/// The settings that a project gives its devices.
#[derive(Clone, Debug)]
pub struct ProjectDefaults {
    /// The project.
    pub project: ProjectId,
    /// The version that the devices name.
    pub version: Option<String>,
    /// Those of the listed devices that are of it.
    pub devices: Vec<DeviceId>,
    /// The names of the settings, and what the design says about each; by listOrder, then name.
    pub settings: Vec<(Arc<str>, Declared)>,
}

/// Why there are no defaults.
#[derive(Clone, Debug)]
pub struct DefaultsRefusal {
    /// Why.
    pub message: String,
    /// The project, if the device could be found.
    pub project: Option<ProjectId>,
    /// Its version.
    pub version: Option<String>,
}

/// The defaults of the projects of some devices.
#[derive(Clone, Debug, Default)]
pub struct DefaultsOutcome {
    /// Once for each project and version.
    pub defaults: Vec<ProjectDefaults>,
    /// What could not be found.
    pub refused: Vec<DefaultsRefusal>,
}

/// The items of one device, by their place in the request.
type Share<'i> = Vec<(usize, &'i SettingItem)>;

/// What came of one item.
type Done = std::result::Result<DeviceSetting, String>;

impl Hub {
    /// Changes settings of many devices, each item by itself; those of one device in their order.
    pub async fn settings_update(&self, caller: &Caller, items: &[SettingItem]) -> Result<SettingsOutcome> {
        self.allow(caller, Action::SettingUpdate).await?;
        let ids: Vec<_> = items.iter().filter_map(|item| item.device.parse().ok()).collect();
        let entries = self.entries_in_reach(caller, &ids).await?;
        let (mut shares, mut done) = (HashMap::<DeviceId, Share<'_>>::new(), Vec::with_capacity(items.len()));
        for (index, item) in items.iter().enumerate() {
            match item.device.parse().ok().filter(|id| entries.contains_key(id)) {
                Some(id) => shares.entry(id).or_default().push((index, item)),
                None => done.push((index, Err(unknown_device(index)))),
            }
        }
        let (mut shares, mut working) = (shares.into_iter(), FuturesUnordered::new());
        loop {
            while working.len() < DEVICES_AT_ONCE
                && let Some((id, share)) = shares.next()
            {
                working.extend(entries.get(&id).map(|entry| self.change_share(caller, Arc::clone(entry), share)));
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

    /// Changes settings of one device.
    async fn change_share(&self, caller: &Caller, entry: Arc<DeviceEntry>, share: Share<'_>) -> Vec<(usize, Done)> {
        let mut done = Vec::with_capacity(share.len());
        let mut left = share.as_slice();
        while !left.is_empty() {
            let items = left.get(..CHANGES_AT_ONCE).unwrap_or(left);
            let work = |runs: &mut SideRuns<'_>, entry: &DeviceEntry| -> Vec<(usize, Done)> {
                in_one_commit(runs, items, |runs, (index, item)| (*index, set_item(runs, entry, *index, item)))
            };
            let pass = access::write(caller, Action::SettingUpdate, entry.device, &entry.lineage);
            let changed = match pass {
                Ok(pass) => self.changed(&pass, Arc::clone(&entry), work).await,
                Err(refusal) => Err(refusal.into_error("device")),
            };
            let before = done.len();
            match changed {
                Ok(changed) => done.extend(changed),
                Err(error) => done.extend(items.iter().map(|(index, _)| (*index, Err(failed(*index, &error))))),
            }
            left = left.get(done.len() - before..).unwrap_or_default();
        }
        done
    }

    /// The settings that the projects of these devices give them, once for each project and version.
    pub async fn setting_defaults(&self, caller: &Caller, named: &[String]) -> Result<DefaultsOutcome> {
        let ids: Vec<DeviceId> = named.iter().filter_map(|text| text.parse().ok()).collect();
        let mut found = HashMap::new();
        for ids in distinct(&ids).chunks(LOOKED_UP_AT_ONCE) {
            let passes: Vec<_> = self.passes_in_reach(caller, ids).await?.into_iter().map(|(pass, _)| pass).collect();
            let devices = self.0.registry.devices_fetch(&passes).await.told()?;
            found.extend(devices.into_iter().map(|device| (device.id, device)));
        }
        let (mut groups, mut outcome) = (Vec::<ProjectDefaults>::new(), DefaultsOutcome::default());
        let (mut places, mut seen) = (HashMap::new(), HashSet::new());
        for (index, text) in named.iter().enumerate() {
            let Some(device) = text.parse().ok().and_then(|id| found.get(&id)) else {
                let message = format!("[{index}]: no such device");
                outcome.refused.push(DefaultsRefusal { message, project: None, version: None });
                continue;
            };
            let of = (device.project, device.version.clone());
            let place = *places.entry(of).or_insert_with(|| {
                let (project, version) = (device.project, device.version.clone());
                groups.push(ProjectDefaults { project, version, devices: Vec::new(), settings: Vec::new() });
                groups.len() - 1
            });
            if let Some(group) = groups.get_mut(place).filter(|_| seen.insert(device.id)) {
                group.devices.push(device.id);
            }
        }
        for mut group in groups {
            let entry = self.plan_entry(group.project).await?;
            let settings = entry.plan.settings().iter();
            group.settings = settings.map(|definition| (definition.name.clone(), Declared::from(definition))).collect();
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

    /// The entries of those of the devices that the caller can see.
    async fn entries_in_reach(&self, caller: &Caller, ids: &[DeviceId]) -> Result<HashMap<DeviceId, Arc<DeviceEntry>>> {
        let mut entries = HashMap::new();
        let mut unknown = Vec::new();
        for id in distinct(ids) {
            match self.cached_device(id) {
                Some(entry) if caller.reaches(&entry.lineage) => drop(entries.insert(id, entry)),
                Some(_) => {}
                None => unknown.push(id),
            }
        }
        for ids in unknown.chunks(LOOKED_UP_AT_ONCE) {
            let devices = &self.0.entries.devices;
            let loads: HashMap<_, _> = ids.iter().map(|id| (*id, devices.begin(id))).collect();
            for entry in self.load_devices(caller, ids).await? {
                let id = entry.device.id;
                entries.extend(loads.get(&id).map(|load| (id, devices.install(entry, load))));
            }
        }
        Ok(entries)
    }

    /// As one device is loaded, but with one question of each kind for all of them.
    async fn load_devices(&self, caller: &Caller, ids: &[DeviceId]) -> Result<Vec<Arc<DeviceEntry>>> {
        let placed = self.passes_in_reach(caller, ids).await?;
        let mut untold = HashMap::with_capacity(placed.len());
        for (pass, _) in &placed {
            untold.insert(pass.target().id, self.0.outbox.untold_whole(pass.target().key).await?);
        }
        let passes: Vec<_> = placed.iter().map(|(pass, _)| pass.clone()).collect();
        let found = self.0.registry.devices_fetch(&passes).await.told()?;
        let mut found: HashMap<DeviceId, Device> = found.into_iter().map(|device| (device.id, device)).collect();
        let mut settings = HashMap::<DeviceId, Vec<SettingRecord>>::new();
        for record in self.0.registry.settings_of_many(&passes).await.told()? {
            settings.entry(record.device).or_default().push(record);
        }
        let mut entries = Vec::with_capacity(placed.len());
        for (pass, lineage) in placed {
            let device = *pass.target();
            if let Some(mut found) = found.remove(&device.id) {
                let plan = self.plan_entry(found.project).await?;
                let (mut own, quota) =
                    (settings.remove(&device.id).unwrap_or_default(), self.0.usage.quota_of(&lineage));
                if let Some(untold) = untold.get(&device.id) {
                    untold.over(&mut found);
                    untold.over_settings(device.id, &mut own);
                }
                entries.push(entry_of((device, lineage), found, own, plan, quota));
            }
        }
        Ok(entries)
    }

    /// Passes for those of the devices that the caller can see, and where they belong.
    async fn passes_in_reach(&self, caller: &Caller, ids: &[DeviceId]) -> Result<Vec<(CanRead<DeviceRef>, Lineage)>> {
        let placed = self.0.registry.device_placements(ids).await.told()?;
        let pass = |(device, lineage): (DeviceRef, Lineage)| {
            Some((access::read(caller, Action::DeviceRead, device, &lineage).ok()?, lineage))
        };
        Ok(placed.into_iter().filter_map(pass).collect())
    }
}

fn set_item(runs: &mut SideRuns<'_>, entry: &DeviceEntry, index: usize, item: &SettingItem) -> Done {
    let definition = entry.plan.plan.setting(&item.name).ok_or_else(|| format!("[{index}].name: no such setting"))?;
    definition.check(&item.value.tree()).map_err(|fault| format!("[{index}].value: {fault}"))?;
    Ok(set(runs, entry, definition, item.value.clone()))
}

/// The same for a device that is not there and for one that is out of reach.
fn unknown_device(index: usize) -> String {
    format!("[{index}].deviceId: no such device")
}

/// What a failure sounds like among those of other items; its cause is for the log.
fn failed(index: usize, error: &Error) -> String {
    match error {
        Error::Missing(_) => return unknown_device(index),
        Error::Internal(cause) => tracing::error!(%cause, "an item of a bulk change failed"),
        _ => {}
    }
    format!("[{index}]: {error}")
}

fn distinct(ids: &[DeviceId]) -> Vec<DeviceId> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    ids
}
