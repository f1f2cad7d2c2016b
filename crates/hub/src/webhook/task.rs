//! Defines the work of a delivery for one device.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use isobar_model::ids::{DeviceId, ProjectId};
use isobar_model::json::RawJson;
use isobar_store::registry::{Provisioned, TagCarrier};

use super::Provision;

const AMBIGUOUS: &str = "several devices carry the tag in other cases, and none in this one";
pub(super) const NO_SUCH_PROJECT: &str = "no device carries the tag, and the project for it does not exist";

/// The work for one device.
#[derive(Clone, Debug)]
pub(super) struct Task {
    /// The third party's identifier of the device.
    pub tag_value: String,
    /// The project in which the device is created, if any is named.
    pub project: Option<ProjectId>,
    /// The blocks to process, in order.
    pub blocks: Vec<Block>,
}

/// An event block of a device.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Its index among all blocks of the delivery.
    pub index: usize,
    pub payload: RawJson,
    /// Its idempotency key.
    pub key: Option<String>,
    /// The reason for its refusal. A refused block is only stored in the device's history, with the reason.
    pub refused: Option<String>,
}

/// The device of a task, or for an unknown device the part that all spellings of its name share.
#[derive(PartialEq, Eq, Hash)]
pub(super) enum TaskDevice {
    Known(DeviceId),
    Unknown(String),
}

impl Task {
    /// Returns true if anything is to be processed.
    pub fn has_events(&self) -> bool {
        self.events().next().is_some()
    }

    /// Returns the blocks that are not refused.
    pub fn events(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| block.refused.is_none())
    }
}

/// Known devices, by the third party's identifier.
pub(super) type Known = HashMap<String, TagCarrier>;

/// A running task.
pub(super) struct TaskRun {
    pub task: Task,
    pub device: Option<DeviceId>,
    /// True if no device has the tag and there are events, so that a device must be created.
    pub is_missing: bool,
    pub provisioned: Option<Provision>,
    pub errors: Vec<String>,
}

impl TaskRun {
    pub fn begin(task: Task, known: &Known) -> Self {
        let carrier = known.get(&task.tag_value).copied();
        let (device, is_missing) = (carrier.and_then(TagCarrier::device), carrier.is_none() && task.has_events());
        let device = device.map(|device| device.id);
        let mut run = Self { task, device, is_missing, provisioned: None, errors: Vec::new() };
        if carrier == Some(TagCarrier::Ambiguous) {
            run.fail(AMBIGUOUS);
        }
        run
    }

    /// Records a failure for each of its blocks.
    pub fn fail(&mut self, why: &str) {
        let indexes = self.task.events().map(|block| block.index);
        self.errors.extend(indexes.map(|index| format!("event block {index}: {why}")));
    }

    /// Refuses its blocks: they are stored in history, with the reason.
    pub fn refuse(&mut self, why: &str) {
        self.fail(why);
        self.task.blocks.iter_mut().for_each(|block| {
            block.refused.get_or_insert_with(|| why.to_owned());
        });
    }

    /// Records that the device cannot get the delivery's labels, if `refused` is given.
    pub fn has_no_room(&mut self, refused: Option<&'static str>) {
        if let Some(most) = refused {
            self.fail(&format!("the device does not get its labels: its metadata holds {most}"));
        }
    }

    /// Records the outcome of creating the device.
    pub fn take(&mut self, made: Provisioned, provision: Provision) {
        match made {
            Provisioned::Made(device) => {
                self.device = Some(device.id);
                self.provisioned = Some(provision);
            }
            Provisioned::Known(device) => self.device = Some(device.id),
            Provisioned::Ambiguous => self.fail(AMBIGUOUS),
            Provisioned::NoRoom => {
                self.fail("the device limit of the organization is reached: no device was provisioned")
            }
            Provisioned::NoProject => self.fail(NO_SUCH_PROJECT),
        }
    }
}

/// Merges tasks for the same device, which may have several names at the third party.
pub(super) fn merge(tasks: Vec<Task>, device: impl Fn(&Task) -> TaskDevice) -> Vec<Task> {
    let (mut merged, mut places) = (Vec::<Task>::with_capacity(tasks.len()), HashMap::new());
    for task in tasks {
        match places.entry(device(&task)) {
            Entry::Vacant(place) => {
                place.insert(merged.len());
                merged.push(task);
            }
            Entry::Occupied(place) => {
                if let Some(first) = merged.get_mut(*place.get()) {
                    first.project = first.project.or(task.project);
                    first.blocks.extend(task.blocks);
                }
            }
        }
    }
    merged.iter_mut().for_each(|task| task.blocks.sort_by_key(|block| block.index));
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_one_device_are_merged_in_order() {
        let task = |tag_value: &str, indexes: &[usize]| Task {
            tag_value: tag_value.to_owned(),
            project: None,
            blocks: indexes
                .iter()
                .map(|index| Block { index: *index, payload: RawJson::trusted("1".into()), key: None, refused: None })
                .collect(),
        };
        let tasks = vec![task("AB", &[0, 3]), task("cd", &[1]), task("ab", &[2, 4])];
        let merged = merge(tasks, |task| TaskDevice::Unknown(task.tag_value.to_ascii_lowercase()));
        let shown: Vec<_> = merged
            .iter()
            .map(|task| (&*task.tag_value, task.blocks.iter().map(|block| block.index).collect::<Vec<_>>()))
            .collect();
        assert_eq!(shown, [("AB", vec![0, 2, 3, 4]), ("cd", vec![1])]);
    }
}
