//! The outbox: what a run found out and the registry must learn, done afterwards and until it succeeds.
//! At least once and in order; every piece of work may be done again without harm.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use isobar_model::access;
use isobar_model::device::Location;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceKey, DeviceRef, SettingId, UserId};
use isobar_model::json::RawJson;
use isobar_model::status::Status;
use isobar_model::time::Timestamp;
use isobar_store::error::StoreError;
use isobar_store::registry::{DeviceReport, SettingWrite};
use isobar_store::telemetry::OutboxEntry;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::Hub;
use crate::device_notices::NoticeWork;
use crate::error::Told as _;
use crate::outgoing::CallWork;
use crate::supervisor::{Shift, TRIES_MAX, Tries};

/// Entries taken from the store at a time.
const BATCH: usize = 512;
/// Settings written in one transaction of the registry.
const SETTINGS_AT_ONCE: usize = 1_000;
/// First pause after a failure; it doubles up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Longest pause after a failure.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// How long a read waits for work that would change its answer.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// How long runs of a device wait for the work of earlier ones, when they must know what it changed.
const WORK_MAX: Duration = Duration::from_secs(10);

/// What one run leaves for the registry. JSON values are kept as text.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Work {
    pub device: Option<DeviceId>,
    /// When it came, in milliseconds: done again, it does not seem to have come later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u8>,
    /// What the device, which is missing, gets back when it is heard again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_before: Option<u8>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meta: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<(f64, f64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingWork>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<NoticeWork>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallWork>,
}

/// A setting that was set, or reset when there is no value. The record's id was chosen in the run,
/// so that doing it again makes no second record.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SettingWork {
    pub id: SettingId,
    pub name: String,
    pub value: Option<String>,
    /// The user who changed it; none: the device itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<UserId>,
}

impl Work {
    /// No work yet for this device.
    pub(crate) fn of(device: DeviceId, now: Timestamp) -> Self {
        Self { device: Some(device), at: Some(now.millis()), ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        let is_quiet = self.status.is_none() && self.status_before.is_none() && self.location.is_none();
        let is_silent = self.notices.is_empty() && self.calls.is_empty();
        is_quiet && is_silent && self.meta.is_empty() && self.settings.is_empty()
    }

    /// Its bytes in the store.
    pub(crate) fn bytes(&self) -> Bytes {
        // A struct of texts and numbers always serialises.
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

/// What is waiting to be done.
pub(crate) struct Outbox {
    pending: Mutex<Pending>,
    wake: Notify,
    done: Notify,
    /// How far the worker has come: it outlives a worker that panics.
    place: tokio::sync::Mutex<Place>,
    /// How often the work after an entry was begun in vain.
    tries: Tries<u64>,
}

/// What a run expects of the outbox, until it is known whether it comes. Dropped before that, it never will.
pub(crate) struct Expected {
    outbox: Arc<Outbox>,
    device: DeviceKey,
    is_committed: bool,
}

impl Expected {
    /// The work was committed: it is met when it is done.
    pub(crate) fn comes(mut self) {
        self.is_committed = true;
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        if !self.is_committed {
            self.outbox.met(self.device);
        }
    }
}

/// Runs whose work is not done yet.
#[derive(Default)]
struct Pending {
    devices: HashMap<DeviceKey, OfDevice>,
    /// Runs whose work was done.
    met: u64,
}

/// Those of one device.
struct OfDevice {
    count: u32,
    /// Counts on with each that is done, from `met` of all when the device came in: no later one begins lower.
    met: u64,
}

impl OfDevice {
    /// What `met` is when the work of all runs so far is done.
    fn end(&self) -> u64 {
        self.met + u64::from(self.count)
    }
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self {
            pending: Mutex::default(),
            wake: Notify::new(),
            done: Notify::new(),
            place: tokio::sync::Mutex::default(),
            tries: Tries::new(),
        }
    }

    /// A run is about to leave work. Called while the device's runs are serialised.
    pub(crate) fn expect(self: &Arc<Self>, device: DeviceKey) -> Expected {
        let mut pending = self.pending.lock();
        let met = pending.met;
        pending.devices.entry(device).or_insert(OfDevice { count: 0, met }).count += 1;
        drop(pending);
        Expected { outbox: Arc::clone(self), device, is_committed: false }
    }

    /// Expected work is done, or will never come because its run was not committed.
    pub(crate) fn met(&self, device: DeviceKey) {
        let mut pending = self.pending.lock();
        if let Some(of_device) = pending.devices.get_mut(&device) {
            of_device.count -= 1;
            of_device.met += 1;
            if of_device.count == 0 {
                pending.devices.remove(&device);
            }
            pending.met += 1;
        }
        drop(pending);
        self.done.notify_waiters();
    }

    /// Work was committed.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits until the registry knows what the device's runs have found out so far. A registry that is down must not
    /// hold up reads for ever: false when it takes too long, and the device's entry knows more.
    pub(crate) async fn settled(&self, device: DeviceKey) -> bool {
        self.wait_until(SETTLE_MAX, |pending| !pending.devices.contains_key(&device)).await
    }

    /// The same, for those who cannot go by what the registry knew before; false: it takes too long.
    pub(crate) async fn done_with(&self, device: DeviceKey) -> bool {
        self.wait_until(WORK_MAX, |pending| !pending.devices.contains_key(&device)).await
    }

    /// Waits until the registry knows what all runs so far have found out; false when it takes too long. Runs that come
    /// meanwhile are not waited for: there may be no end of them.
    pub(crate) async fn caught_up(&self) -> bool {
        let mut left: Vec<_> = self.pending.lock().devices.iter().map(|(device, runs)| (*device, runs.end())).collect();
        let all_done = |pending: &Pending| {
            let is_done =
                |(device, end): &(DeviceKey, u64)| pending.devices.get(device).is_none_or(|runs| runs.met >= *end);
            while left.pop_if(|last| is_done(last)).is_some() {}
            left.is_empty()
        };
        self.wait_until(SETTLE_MAX, all_done).await
    }

    async fn wait_until(&self, most: Duration, mut reached: impl FnMut(&Pending) -> bool) -> bool {
        let waiting = async {
            loop {
                let done = self.done.notified();
                if reached(&self.pending.lock()) {
                    return;
                }
                done.await;
            }
        };
        tokio::time::timeout(most, waiting).await.is_ok()
    }
}

/// How far the work has come.
#[derive(Default)]
struct Place {
    /// The newest entry that was done. An older one must not be done again after it: it would bring the past back.
    after: u64,
    /// Entries that are done and still in the store. They leave it in their order, so that whatever is found there
    /// at the next start is the newest part, whole.
    done: Vec<u64>,
}

impl Hub {
    /// Expects what an earlier process left: it is done with what comes, and whoever must know what it changes waits for it.
    /// There may be much of it, and the platform is not late because of it.
    pub(crate) async fn expect_left_work(&self) -> Result<()> {
        let mut after = 0;
        loop {
            let entries = self.0.telemetry.outbox(after, BATCH).await.told()?;
            let Some(last) = entries.last() else { return Ok(()) };
            after = last.number;
            entries.iter().for_each(|entry| self.0.outbox.expect(entry.device).comes());
        }
    }

    /// Does work as it comes.
    pub(crate) async fn run_outbox(self, mut shift: Shift) {
        let mut place = self.0.outbox.place.lock().await;
        let mut retry = RETRY_FIRST;
        loop {
            self.reaches("outbox");
            let worked = self.work_off(&mut place).await;
            shift.well();
            match worked {
                Ok(true) => retry = RETRY_FIRST,
                Ok(false) => {
                    tokio::select! {
                        () = self.0.outbox.wake.notified() => {}
                        () = shift.end() => return,
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the outbox waits for a store");
                    if shift.pause(retry).await {
                        return;
                    }
                    retry = (retry * 2).min(RETRY_MAX);
                }
            }
        }
    }

    /// Does the next batch; false when there is none. What has panicked before is tried entry by entry; one that panics
    /// whenever it is tried is dropped in the end, for all that comes after it waits.
    async fn work_off(&self, place: &mut Place) -> std::result::Result<bool, StoreError> {
        let tried = self.0.outbox.tries.begin(place.after);
        let outcome = self.work_off_tried(place, tried).await;
        // A store that fails is no panic: whatever it refuses is tried until it takes it.
        self.0.outbox.tries.end();
        outcome
    }

    async fn work_off_tried(&self, place: &mut Place, tried: u32) -> std::result::Result<bool, StoreError> {
        let entries = self.0.telemetry.outbox(place.after, if tried == 0 { BATCH } else { 1 }).await?;
        let gives_up = tried >= TRIES_MAX;
        if !gives_up {
            self.record_settings(&entries).await?;
        }
        let mut outcome = Ok(!entries.is_empty());
        for entry in entries {
            if gives_up {
                tracing::error!(
                    number = entry.number,
                    device = entry.device.0,
                    "an outbox entry panics and is dropped"
                );
            } else if let Err(error) = self.do_work(&entry).await {
                outcome = Err(error);
                break;
            }
            place.after = entry.number;
            place.done.push(entry.number);
            self.0.outbox.met(entry.device);
            self.0.outbox.tries.begin(place.after);
        }
        if !place.done.is_empty() {
            self.0.telemetry.outbox_done(&place.done).await?;
            place.done.clear();
        }
        outcome
    }

    async fn do_work(&self, entry: &OutboxEntry) -> std::result::Result<(), StoreError> {
        self.reaches("outbox_entry");
        let work: Work = match serde_json::from_slice(&entry.work) {
            Ok(work) => work,
            Err(error) => {
                tracing::error!(%error, number = entry.number, "an outbox entry cannot be read and is dropped");
                return Ok(());
            }
        };
        let Some(id) = work.device else { return Ok(()) };
        match self.hand_on(DeviceRef { id, key: entry.device }, work).await {
            // The device was deleted in the meantime: there is nobody left to tell about.
            Err(StoreError::Gone(_)) => Ok(()),
            result => result,
        }
    }

    /// What leaves the house is only written down here: nobody waits for a slow outside.
    async fn hand_on(&self, device: DeviceRef, mut work: Work) -> std::result::Result<(), StoreError> {
        let (notices, calls) = (std::mem::take(&mut work.notices), std::mem::take(&mut work.calls));
        self.tell_registry(device, work).await?;
        if !notices.is_empty() {
            self.put_notices(device, notices).await?;
        }
        if !calls.is_empty() {
            self.put_calls(device, calls).await?;
        }
        Ok(())
    }

    /// The settings of all the entries, together: a change of ten thousand devices must not take a transaction each.
    async fn record_settings(&self, entries: &[OutboxEntry]) -> std::result::Result<(), StoreError> {
        let mut changes = Vec::new();
        for entry in entries {
            // What cannot be read is told when its turn comes.
            let Ok(Work { device: Some(id), settings, .. }) = serde_json::from_slice(&entry.work) else { continue };
            let device = DeviceRef { id, key: entry.device };
            changes.extend(settings.into_iter().map(|setting| {
                let pass = match setting.by {
                    Some(user) => access::accepted(user, device),
                    None => access::device(device),
                };
                let value = setting.value.map(|text| RawJson::trusted(text.into()));
                (pass, SettingWrite { id: setting.id, name: setting.name, value, at: setting.id.minted_at() })
            }));
        }
        for changes in changes.chunks(SETTINGS_AT_ONCE) {
            self.0.registry.settings_write(changes).await?;
        }
        Ok(())
    }

    async fn tell_registry(&self, device: DeviceRef, work: Work) -> std::result::Result<(), StoreError> {
        let (registry, now) = (&self.0.registry, work.at.map_or_else(|| self.0.clock.now(), Timestamp::from_millis));
        let pass = access::system(device, "the device's design reports to the registry");
        let raw = |text: String| RawJson::trusted(text.into());
        let status = |number: Option<u8>| number.and_then(|number| Status::numbered(number.into()));
        let report = DeviceReport {
            status: status(work.status),
            status_before: status(work.status_before),
            meta: work.meta.into_iter().map(|(tag, value)| (tag, raw(value))).collect(),
            location: work.location.and_then(|(latitude, longitude)| Location::new(latitude, longitude)),
        };
        if report != DeviceReport::default() {
            let told = registry.device_report(&pass, &report, now).await;
            // Even if it failed: it may have been done.
            self.device_row_changed(device.id);
            told?;
        }
        Ok(())
    }
}

/// Work that never came to be: what a run expected of the outbox when its commit failed.
pub(crate) fn not_committed(hub: &Hub, device: DeviceKey, expected: bool) -> impl FnOnce(StoreError) -> Error {
    move |error| {
        if expected {
            hub.0.outbox.met(device);
        }
        crate::error::from_store(error)
    }
}

#[cfg(test)]
impl Outbox {
    /// Whether a device's runs have left work that is not done.
    pub(crate) fn is_expected(&self, device: DeviceKey) -> bool {
        self.pending.lock().devices.contains_key(&device)
    }
}

#[cfg(test)]
impl Hub {
    /// What the worker does with one batch.
    pub(crate) async fn work_off_now(&self) -> std::result::Result<bool, StoreError> {
        let mut place = self.0.outbox.place.lock().await;
        self.work_off(&mut place).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_catches_up_waits_for_what_was_there_and_not_for_what_comes() {
        let (outbox, one, other) = (Arc::new(Outbox::new()), DeviceKey(1), DeviceKey(2));
        for device in [one, one, other] {
            outbox.expect(device).comes();
        }
        let mut waiting = std::pin::pin!(outbox.caught_up());
        for device in [one, other, one] {
            assert!(futures::poll!(&mut waiting).is_pending());
            // There is always something to do, of the same devices too.
            outbox.expect(other).comes();
            outbox.met(device);
        }
        assert!(futures::poll!(&mut waiting).is_ready());
        assert_eq!(outbox.pending.lock().devices[&other].count, 3);
        // A device that comes back begins no lower than it was when it left.
        let expected = outbox.expect(one);
        assert_eq!(outbox.pending.lock().devices[&one].met, 3);
        // Nobody waits for what will never come.
        drop(expected);
        assert!(!outbox.pending.lock().devices.contains_key(&one));
    }
}
