//! Applies the pending changes of a device to its row from the registry.

use std::sync::Arc;

use isobar_model::alarm::ListedAlarms;
use isobar_model::device::Device;
use isobar_model::ids::DeviceId;
use isobar_model::json::RawJson;
use isobar_model::setting::SettingRecord;

use super::device_queue::DeviceQueue;
use super::work::{DeviceFindings, SettingWork};

/// The pending changes of a device, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingChanges {
    found: [Option<Arc<DeviceFindings>>; 2],
    settings: Vec<Arc<SettingWork>>,
}

impl PendingChanges {
    pub(crate) fn of(waits: &DeviceQueue) -> Self {
        let in_hand = waits.in_hand.as_ref();
        let settings = in_hand.into_iter().flat_map(|in_hand| &in_hand.settings).map(Arc::clone);
        let settings = settings.chain(waits.settings.iter().map(|setting| Arc::clone(&setting.what)));
        Self { settings: settings.collect(), ..Self::of_device_alone(waits) }
    }

    /// Takes the pending changes of the device itself, without its settings, which may be many.
    pub(super) fn of_device_alone(waits: &DeviceQueue) -> Self {
        let earlier = waits.in_hand.as_ref().and_then(|in_hand| in_hand.report.clone());
        let later = waits.report.as_ref().map(|report| Arc::clone(&report.found));
        Self { found: [earlier, later], settings: Vec::new() }
    }

    /// Applies the changes to a device.
    pub(crate) fn apply_to(&self, device: &mut Device) {
        for found in self.found.iter().flatten() {
            found.report.over(device, found.at);
        }
    }

    /// Applies the changes to the alarms that the list shows as active.
    pub(crate) fn apply_to_alarms(&self, listed: &mut ListedAlarms) {
        for found in self.found.iter().flatten() {
            let cleared = found.alarm_changes.iter().filter(|change| change.clears);
            cleared.for_each(|change| listed.remove(&change.element, &change.key));
            found.alarms.iter().for_each(|finding| listed.apply(finding));
        }
    }

    /// Applies the changes to the present settings; the result has no order.
    pub(crate) fn apply_to_settings(&self, device: DeviceId, records: &mut Vec<SettingRecord>) {
        for setting in &self.settings {
            let record = SettingRecord {
                id: setting.id,
                device,
                name: setting.name.clone(),
                value: setting.value.as_ref().map(|text| RawJson::trusted(text.clone().into())),
                created_at: setting.id.minted_at(),
                changed_at: None,
                changed_to: None,
                changed_by: None,
            };
            match records.iter_mut().find(|present| present.name == record.name) {
                // The registry has no newer setting: pending ones are always newer.
                Some(present) => *present = record,
                None => records.push(record),
            }
        }
    }
}
