//! Changes labels of devices one by one: of one device, or of many in bulk (contract: Beyond the specification).

use std::collections::{HashMap, HashSet};

use isobar_model::access::{self, Action, Caller};
use isobar_model::device::Device;
use isobar_model::error::{Error, Result};
use isobar_model::ids::DeviceId;
use isobar_model::meta::{MetaItem, MetaPatch};
use isobar_store::registry::{MetaChange, MetaChanged};

use super::devices::DECISIONS_MAX;
use crate::error::{OrderedItems, if_there, is_ours, of_one_of_many};
use crate::support::scope_guard::ScopeGuard;
use crate::{DeviceView, Hub, LastChoice};

/// Items changed in one transaction: other writers have their turn in between.
const ITEMS_OF_A_TRANSACTION: usize = 50;

/// The outcome of a bulk change of labels.
#[derive(Clone, Debug, Default)]
pub struct LabelsOutcome {
    /// The devices of the changed items, in the order of the items.
    pub changed: Vec<DeviceId>,
    /// The reasons for the failures of the others, in the order of the items.
    pub errors: Vec<String>,
}

/// The outcome of one item: its device, or the reason for its failure.
type LabelsResult = std::result::Result<DeviceId, String>;

/// Devices of which an item failed for a reason of ours: later items of them fail too, so that their order stays the same
/// when all are sent again.
#[derive(Default)]
struct StoppedDevices(HashMap<DeviceId, OrderedItems>);

impl StoppedDevices {
    fn note(&mut self, device: Option<DeviceId>, error: &Error) {
        if let Some(device) = device {
            self.0.entry(device).or_default().note(error);
        }
    }

    fn failure(&self, device: Option<DeviceId>) -> Option<Error> {
        self.0.get(&device?)?.failure()
    }
}

impl Hub {
    /// Changes labels of a device. Labels that the patch does not name stay, including concurrent changes by others.
    ///
    /// Needs `DeviceUpdate`. Durable when this returns; the next event sees it. Waits up to ten seconds for pending
    /// changes of the device's design.
    ///
    /// # Errors
    /// `Invalid`: the metadata would become too large. `Busy`: pending changes of the design could not be written in
    /// that time, or the device kept moving between organizations; nothing was changed.
    pub async fn meta_update(
        &self,
        caller: &Caller,
        id: DeviceId,
        patch: MetaPatch,
        last: LastChoice,
    ) -> Result<DeviceView> {
        for _ in 0..DECISIONS_MAX {
            let (permit, entry) = self.0.identity.user_device_write(caller, id, Action::DeviceUpdate).await?;
            let reading = permit.reading();
            let change = MetaChange { permit, decided_in: entry.lineage.own(), patches: vec![&patch] };
            let Some(done) = self.metas_patch(&[change]).await?.pop().flatten() else { continue };
            if let Some(most) = done.refused.into_iter().flatten().next() {
                return Err(Error::invalid("meta", must_hold(most)));
            }
            return self.with_last(done.device, Some(&entry), &reading, &last).await;
        }
        Err(Error::Busy)
    }

    /// Changes labels of many devices, each item by itself; items of one device in their order. The work continues if
    /// the caller disconnects.
    ///
    /// Needs `DeviceUpdate` on each device. Items in `changed` are durable when this returns. Waits for a slot among
    /// the bulk creations; writes in transactions of 50 items.
    ///
    /// # Errors
    /// `Forbidden`: the role is too low for any device. `Busy`: too many bulk operations wait, or a store does not
    /// answer; nothing was changed. Faults of one item are part of the outcome.
    pub async fn metas_update(&self, caller: &Caller, items: Vec<MetaItem>) -> Result<LabelsOutcome> {
        self.0.identity.allow(caller, Action::DeviceUpdate).await?;
        let (hub, user) = (self.clone(), caller.clone());
        let steps = async move { hub.metas_update_by_turns(&user, &items).await };
        self.0.creation_jobs.drive_for(caller, "metas_update", steps).await
    }

    /// Returns a changed device as it is now; `None` if it was deleted or moved out of reach.
    pub async fn device_changed_now(&self, caller: &Caller, id: DeviceId) -> Result<Option<Device>> {
        let now = async {
            let (permit, entry) = self.0.identity.user_device_read(caller, id).await?;
            self.0.caches.device_now(&permit, &entry).await
        };
        if_there(now.await)
    }

    async fn metas_update_by_turns(&self, caller: &Caller, items: &[MetaItem]) -> Result<LabelsOutcome> {
        let (mut outcome, mut stopped) = (LabelsOutcome::default(), StoppedDevices::default());
        for (items, first) in items.chunks(ITEMS_OF_A_TRANSACTION).zip((0..).step_by(ITEMS_OF_A_TRANSACTION)) {
            let done = match self.metas_update_together(caller, items, first, &mut stopped).await {
                // Nothing was changed yet, and the next items would only wait as long.
                Err(error) if outcome.changed.is_empty() && is_ours(&error) => return Err(error),
                Err(error) => {
                    items.iter().for_each(|item| stopped.note(item.device.parse().ok(), &error));
                    (first..).take(items.len()).map(|index| Err(failed(index, &error))).collect()
                }
                Ok(done) => done,
            };
            for item in done {
                match item {
                    Ok(id) => outcome.changed.push(id),
                    Err(message) => outcome.errors.push(message),
                }
            }
        }
        Ok(outcome)
    }

    /// Applies these items, the first of which is at `first`; returns their outcomes in order.
    async fn metas_update_together(
        &self,
        caller: &Caller,
        items: &[MetaItem],
        first: usize,
        stopped: &mut StoppedDevices,
    ) -> Result<Vec<LabelsResult>> {
        let named: Vec<Option<DeviceId>> = items.iter().map(|item| item.device.parse().ok()).collect();
        let earlier = |(at, id): (usize, &Option<DeviceId>)| Some(Err(failed(first + at, &stopped.failure(*id)?)));
        let mut done: Vec<Option<LabelsResult>> = named.iter().enumerate().map(earlier).collect();
        for _ in 0..DECISIONS_MAX {
            let wanted = |at: &usize| done.get(*at).is_some_and(Option::is_none);
            let waiting: Vec<usize> = (0..items.len()).filter(wanted).collect();
            if waiting.is_empty() {
                break;
            }
            let mut ids: Vec<DeviceId> = waiting.iter().filter_map(|at| *named.get(*at)?).collect();
            ids.sort_unstable();
            ids.dedup();
            let (mut changes, mut away) = (HashMap::<DeviceId, MetaChange<'_>>::new(), HashSet::new());
            for (device, lineage) in self.registry().device_placements(&ids).await? {
                if let Ok(permit) = access::write(caller, Action::DeviceUpdate, device, &lineage) {
                    // Its labels would wait for its database, and those of all others with them.
                    if self.telemetry().must_reach(device.key).is_err() {
                        away.insert(device.id);
                        continue;
                    }
                    let decided_in = lineage.own();
                    changes.insert(device.id, MetaChange { permit, decided_in, patches: Vec::new() });
                }
            }
            let mut places: HashMap<DeviceId, Vec<usize>> = HashMap::new();
            for at in waiting {
                let id = named.get(at).copied().flatten();
                if id.is_some_and(|id| away.contains(&id))
                    && let Some(done) = done.get_mut(at)
                {
                    stopped.note(id, &Error::Busy);
                    *done = Some(Err(failed(first + at, &Error::Busy)));
                    continue;
                }
                let change = id.and_then(|id| changes.get_mut(&id));
                match (change, items.get(at), done.get_mut(at)) {
                    (Some(change), Some(item), _) => {
                        change.patches.push(&item.patch);
                        places.entry(change.permit.target().id).or_default().push(at);
                    }
                    (_, _, Some(done)) => *done = Some(Err(unknown_device(first + at))),
                    _ => {}
                }
            }
            let changes: Vec<_> = changes.into_values().collect();
            if changes.is_empty() {
                continue;
            }
            for changed in self.metas_patch(&changes).await?.into_iter().flatten() {
                let id = changed.device.id;
                for (at, refused) in places.remove(&id).into_iter().flatten().zip(changed.refused) {
                    if let Some(done) = done.get_mut(at) {
                        let too_large = |most| format!("[{}].meta: {}", first + at, must_hold(most));
                        *done = Some(refused.map_or(Ok(id), |most| Err(too_large(most))));
                    }
                }
            }
        }
        let mut busy = |index, id| {
            stopped.note(id, &Error::Busy);
            Err(failed(index, &Error::Busy))
        };
        let done = done.into_iter().zip(named).zip(first..);
        Ok(done.map(|((done, id), index)| done.unwrap_or_else(|| busy(index, id))).collect())
    }

    /// Changes labels of devices, each named once, after pending changes of their designs were written.
    async fn metas_patch(&self, changes: &[MetaChange<'_>]) -> Result<Vec<Option<MetaChanged>>> {
        // Earlier changes of the design must not overwrite this one.
        let settled = self.0.delivery.settle_findings(changes.iter().map(|change| &change.permit)).await?;
        let changed = {
            // Done even after a failure, because the write may have succeeded.
            let _changed = ScopeGuard::new(|| {
                changes.iter().for_each(|change| self.0.caches.device_changed(change.permit.target().id));
            });
            self.registry().devices_patch(changes, self.now()).await?
        };
        for (change, done) in changes.iter().zip(&changed) {
            let Some(done) = done else { continue };
            let taken = || change.patches.iter().zip(&done.refused).filter(|(_, refused)| refused.is_none());
            let is_written = |label: &str| taken().any(|(patch, _)| patch.names(label));
            self.0.delivery.drop_parked_labels(&change.permit, &is_written).await?;
        }
        settled.end().await?;
        Ok(changed)
    }
}

fn must_hold(most: &str) -> String {
    format!("must hold {most}")
}

/// Returns the same message for a missing device and for one out of reach.
fn unknown_device(index: usize) -> String {
    format!("[{index}].deviceId: no such device")
}

/// Returns the message of a failed item; its cause goes to the log.
fn failed(index: usize, error: &Error) -> String {
    format!("[{index}]: {}", of_one_of_many(error, "an item of a bulk change", |fault| fault.message.clone()))
}
