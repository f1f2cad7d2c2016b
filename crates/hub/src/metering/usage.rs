//! Counts the bytes that devices have stored: in memory at once, in the registry every few seconds, and enforces the
//! data limits of the organizations above them.
//!
//! The telemetry store knows the exact figure of each device. This module only records whose figure has changed, so a
//! missed figure is corrected by the device's next value; after a stop that was not orderly all devices are counted.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use isobar_model::access;
use isobar_model::error::{Error, Result};
use isobar_model::event::{EventError, EventType};
use isobar_model::ids::{DeviceKey, DeviceRef, OrganizationId};
use isobar_model::retention::ProjectRetention;
use isobar_store::error::StoreError;
use isobar_store::registry::LimitedOrganization;
use isobar_store::telemetry::Commit;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cache::Caches;
use crate::cache::data_quota::Meters;
use crate::cache::entries::DeviceEntry;
use crate::delivery::Delivery;
use crate::env::Env;
use crate::supervisor::Shift;
use crate::support::scope_guard::ScopeGuard;

/// Interval between two writes of changed figures.
const USAGE_FLUSH_EVERY: Duration = Duration::from_secs(5);
/// Name of the worker that counts all devices where several nodes serve.
pub(crate) const DAILY_COUNT_WORKER: &str = "usage_count";
/// Interval between two counts of all devices by one of several nodes, and between two looks if one is due.
const COUNTED_EVERY_SECONDS: i64 = 86_400;
const COUNT_LOOK_EVERY: Duration = Duration::from_secs(600);
/// Shortest time between two writes of changed figures.
const FLUSH_REST: Duration = Duration::from_millis(200);
/// Devices written at a time: more would block other writers of the registry.
const USAGE_DEVICES_AT_ONCE: usize = 1_000;
/// Attempts to read the figure of a device that stores values meanwhile.
const FIGURE_LOOKS_MAX: usize = 4;
/// Reason for reading what a device has stored.
const COUNTED: &str = "what the device has stored is counted";
/// Error of an event whose values are not stored.
const OVER_LIMIT: &str = "not stored: the data limit of the organization is reached";

/// Counts stored bytes that are not yet written.
pub(crate) struct Usage {
    pub(super) env: Arc<Env>,
    caches: Arc<Caches>,
    pub(super) delivery: Arc<Delivery>,
    meters: Arc<Meters>,
    /// Devices whose figure has changed.
    changed: Mutex<Vec<Arc<DeviceEntry>>>,
    /// True if an organization's usage or limit may have changed since the last check.
    unsettled: AtomicBool,
    /// True if all figures in the registry are right, except for those of `changed`.
    counted: AtomicBool,
    wake: Notify,
    /// Locked while figures are read and written, so that an old figure cannot overwrite a new one.
    turn: tokio::sync::Mutex<()>,
}

impl Usage {
    pub(crate) fn new(env: Arc<Env>, caches: Arc<Caches>, delivery: Arc<Delivery>, meters: Arc<Meters>) -> Self {
        Self {
            env,
            caches,
            delivery,
            meters,
            changed: Mutex::default(),
            unsettled: AtomicBool::new(true),
            counted: AtomicBool::new(false),
            wake: Notify::new(),
            turn: tokio::sync::Mutex::new(()),
        }
    }

    /// Counts bytes that a device stores. Called while the device's runs are serialised, before readers can see the
    /// values.
    pub(crate) fn stores(&self, entry: &Arc<DeviceEntry>, bytes: u64) {
        // Meters must not be replaced in between; without a limit there is no need to wait.
        let _held = (!entry.quota.is_unlimited()).then(|| self.meters.hold());
        entry.stored.fetch_add(bytes, Ordering::AcqRel);
        entry.quota.add(bytes);
        self.touch(entry);
        // The meter counts values that the new ones hide, until the figure is read.
        if entry.quota.is_used_up() {
            self.unsettle();
        }
    }

    /// Records that the figure of a device has changed.
    pub(crate) fn touch(&self, entry: &Arc<DeviceEntry>) {
        if !entry.uncounted.swap(true, Ordering::AcqRel) {
            self.changed.lock().push(Arc::clone(entry));
        }
    }

    /// Schedules a check of the limits after devices, limits or the shape of the tree have changed.
    pub(crate) fn unsettle(&self) {
        self.unsettled.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Sets the meters by the registry's figures, and adds the bytes that the registry does not know yet.
    fn set_meters(&self, limited: &[LimitedOrganization]) -> Vec<OrganizationId> {
        self.meters.set(limited, || {
            for entry in self.changed.lock().iter() {
                let stored = entry.stored.load(Ordering::Acquire);
                entry.quota.add(stored.saturating_sub(entry.written.load(Ordering::Acquire)));
            }
        })
    }
}

/// Removes the values that a device may not store from a commit, and reports them as errors of the event. Returns the
/// bytes that remain to be stored.
pub(crate) fn hold_to_quota(entry: &DeviceEntry, commit: &mut Commit) -> u64 {
    if commit.values.is_empty() || !entry.quota.is_used_up() {
        return commit.values.iter().map(|value| value.payload.bytes().len() as u64).sum();
    }
    let event = commit.history.iter_mut().find(|event| event.kind == EventType::DeviceEvent);
    let refused = commit.values.drain(..).map(|value| value.element.to_string());
    if let Some(event) = event {
        event.errors.extend(refused.map(|element| EventError { element, message: OVER_LIMIT.to_owned() }));
    }
    0
}

impl Usage {
    /// Writes changed figures and checks the limits every few seconds, and once more at an orderly end.
    pub(crate) async fn run_usage(self: Arc<Self>, mut shift: Shift) {
        let has_other_nodes = self.env.config().has_other_nodes;
        if !has_other_nodes && !self.counted.load(Ordering::Acquire) {
            tokio::select! {
                () = self.count_all() => {}
                () = shift.end() => {
                    tracing::info!("what devices have stored will be counted at the next start");
                    return;
                }
            }
        }
        loop {
            self.env.reaches("usage");
            let woken = async {
                let _ = self.env.clock().timeout(USAGE_FLUSH_EVERY, self.wake.notified()).await;
            };
            let stopping = tokio::select! {
                () = woken => shift.pause(FLUSH_REST).await,
                () = shift.end() => true,
            };
            let settled = self.settle_usage().await;
            if let Err(error) = &settled {
                tracing::warn!(%error, "what devices have stored could not be written");
            }
            shift.well();
            if stopping {
                // Other nodes may still store.
                if settled.is_ok()
                    && !has_other_nodes
                    && let Err(error) = self.env.registry().usage_counted().await
                {
                    tracing::warn!(%error, "what devices have stored will be counted at the next start");
                }
                return;
            }
        }
    }

    /// Counts the stored bytes of every device once a day, at one of several nodes: a figure that one of them has missed
    /// is right again then.
    pub(crate) async fn run_daily_count(self: Arc<Self>, mut shift: Shift) {
        loop {
            self.env.reaches(DAILY_COUNT_WORKER);
            let claimed = async {
                self.env.must_have_clock()?;
                self.env.registry().job_claim("count_usage", self.env.now(), COUNTED_EVERY_SECONDS).await
            };
            match claimed.await {
                Ok(true) => tokio::select! {
                    () = self.count_all() => {}
                    () = shift.end() => {
                        tracing::info!("what devices have stored was not counted to the end, and will be tomorrow");
                        return;
                    }
                },
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "cannot agree with other nodes on who counts, will retry"),
            }
            shift.well();
            if shift.pause(COUNT_LOOK_EVERY).await {
                return;
            }
        }
    }

    /// Writes all changed figures to the registry, and checks the limits.
    pub(crate) async fn usage_settled(&self) -> Result<()> {
        Ok(self.settle_usage().await?)
    }

    /// Releases the quota of a device whose stored data was deleted: the space is available as soon as this returns.
    pub(crate) async fn usage_fell(&self, entry: &DeviceEntry) -> Result<()> {
        self.unsettle();
        if entry.quota.is_unlimited() { Ok(()) } else { self.usage_settled().await }
    }

    /// Reads the limits before the first event, and learns if all figures were right when the last process ended.
    pub(crate) async fn usage_begins(&self) -> Result<()> {
        let limited = self.env.registry().organizations_limited().await?;
        self.set_meters(&limited);
        let counted = self.env.registry().usage_begin().await?;
        self.counted.store(counted, Ordering::Release);
        Ok(())
    }

    async fn settle_usage(&self) -> std::result::Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        self.write_changed().await?;
        // While a limit is reached, nothing is stored that would cause a check, and another process may make room.
        if self.unsettled.swap(false, Ordering::AcqRel) || self.meters.is_any_over() {
            // A check that is interrupted in any way is repeated.
            let again = ScopeGuard::new(|| self.unsettled.store(true, Ordering::Release));
            self.look_at_limits().await?;
            again.disarm();
        }
        Ok(())
    }

    async fn write_changed(&self) -> std::result::Result<(), StoreError> {
        let changed = std::mem::take(&mut *self.changed.lock());
        let done = AtomicUsize::new(0);
        // Devices that were not written when this ends early, by an error, a panic or a dropped future, are queued
        // again.
        let again = ScopeGuard::new(|| {
            changed[done.load(Ordering::Relaxed)..].iter().for_each(|entry| {
                entry.uncounted.store(false, Ordering::Release);
                self.touch(entry);
            });
        });
        for part in changed.chunks(USAGE_DEVICES_AT_ONCE) {
            self.unsettled.store(true, Ordering::Release);
            self.write_part(part).await?;
            done.fetch_add(part.len(), Ordering::Relaxed);
        }
        again.disarm();
        Ok(())
    }

    async fn write_part(&self, part: &[Arc<DeviceEntry>]) -> std::result::Result<(), StoreError> {
        self.env.reaches("usage_part");
        let mut figures: HashMap<DeviceKey, u64> = HashMap::with_capacity(part.len());
        let (mut known, mut failed) = (Vec::with_capacity(part.len()), Vec::new());
        for entry in part {
            match self.figure_now(entry).await {
                Ok((stored, figure)) => {
                    figures.insert(entry.device.key, figure);
                    known.push((entry, stored));
                }
                Err(error) => failed.push((entry, error)),
            }
        }
        // Devices of one database do not wait for those of another.
        for (entry, _) in &failed {
            self.touch(entry);
        }
        if known.is_empty()
            && let Some((_, error)) = failed.pop()
        {
            return Err(error);
        }
        self.env.registry().usage_write(&figures.into_iter().collect::<Vec<_>>()).await?;
        known.into_iter().for_each(|(entry, stored)| entry.written.store(stored, Ordering::Release));
        Ok(())
    }

    /// Returns the bytes that a device has stored, as this process counts them and as telemetry does.
    async fn figure_now(&self, entry: &DeviceEntry) -> std::result::Result<(u64, u64), StoreError> {
        // Cleared before the figure is read: values stored from now on queue the device again.
        entry.uncounted.store(false, Ordering::Release);
        let (mut stored, mut figure) = (0, 0);
        for _ in 0..FIGURE_LOOKS_MAX {
            stored = entry.stored.load(Ordering::Acquire);
            let bounds = self.retention_of(entry).await?;
            figure = self.figure(entry.device, &bounds).await?;
            if entry.stored.load(Ordering::Acquire) == stored {
                break;
            }
        }
        Ok((stored, figure))
    }

    /// Returns the bytes that a device has stored and shows: what its bounds hide is deleted within the hour, and does not
    /// count until then.
    async fn figure(&self, device: DeviceRef, bounds: &ProjectRetention) -> std::result::Result<u64, StoreError> {
        let permit = access::system(device, COUNTED).reading();
        self.env.telemetry().visible_bytes(&permit, bounds.all_kept(self.env.now())).await
    }

    /// Returns the bounds of a device's values; none for a device that is deleted.
    async fn retention_of(&self, entry: &DeviceEntry) -> std::result::Result<Arc<ProjectRetention>, StoreError> {
        match self.caches.retention_of_device(entry).await {
            Err(Error::Missing(_)) => Ok(Arc::default()),
            bounds => bounds.map_err(StoreError::unavailable),
        }
    }

    /// Checks all limits: sets the meters, and notifies administrators whose organization approaches a limit.
    async fn look_at_limits(&self) -> std::result::Result<(), StoreError> {
        let limited = self.env.registry().organizations_limited().await?;
        for id in self.set_meters(&limited) {
            self.caches.organization_changed(id);
        }
        for organization in &limited {
            self.tell_of_limits(organization).await?;
        }
        Ok(())
    }

    /// Counts the stored bytes of every device, in parts, until all are counted. Devices of a database that does not answer
    /// are counted later than those of others: the number of a device begins with its database.
    async fn count_all(&self) {
        let mut left = vec![UncountedDevices { after: DeviceKey(0), last: DeviceKey(u64::MAX) }];
        loop {
            let mut later = Vec::new();
            for devices in left {
                self.count_of(devices, &mut later).await;
            }
            if later.is_empty() {
                self.counted.store(true, Ordering::Release);
                return self.unsettle();
            }
            left = later;
            self.env.clock().sleep(USAGE_FLUSH_EVERY).await;
        }
    }

    /// Counts devices in parts; adds those that could not be counted to `later`.
    async fn count_of(&self, mut devices: UncountedDevices, later: &mut Vec<UncountedDevices>) {
        loop {
            let _turn = self.turn.lock().await;
            match self.count_part(devices).await {
                Ok(CountedPart { last: None, .. }) => return,
                Ok(CountedPart { last: Some(last), failed: None }) => devices.after = last,
                Ok(CountedPart { last: Some(last), failed: Some(error) }) => {
                    tracing::warn!(%error, "counting what devices of a database have stored waits for it");
                    let of_database = DeviceKey::new(last.database() + 1, 0);
                    let end = devices.last.min(DeviceKey(of_database.0 - 1));
                    later.push(UncountedDevices { after: last, last: end });
                    devices.after = end;
                }
                Err(error) => {
                    tracing::warn!(%error, "counting what devices have stored waits for the registry");
                    later.push(devices);
                    return;
                }
            }
        }
    }

    async fn count_part(&self, devices: UncountedDevices) -> std::result::Result<CountedPart, StoreError> {
        let UncountedDevices { after, last } = devices;
        let devices = self.env.registry().devices_after(after, USAGE_DEVICES_AT_ONCE as u32).await?;
        let (mut figures, mut part) = (Vec::with_capacity(devices.len()), CountedPart { last: None, failed: None });
        let permits: Vec<_> = devices.iter().map(|device| access::system(*device, COUNTED).reading()).collect();
        let bounds = self.caches.retention_of_many(&permits).await.map_err(StoreError::unavailable)?;
        let unbounded = Arc::default();
        for device in devices.iter().filter(|device| device.key <= last) {
            match self.figure(*device, bounds.get(&device.key).unwrap_or(&unbounded)).await {
                Ok(figure) => {
                    figures.push((device.key, figure));
                    part.last = Some(device.key);
                }
                Err(error) => {
                    // Continues with this device.
                    part = CountedPart { last: Some(DeviceKey(device.key.0 - 1)), failed: Some(error) };
                    break;
                }
            }
        }
        self.env.registry().usage_write(&figures).await?;
        Ok(part)
    }
}

/// Devices that are not counted yet: those with numbers behind one, and up to another.
#[derive(Clone, Copy)]
struct UncountedDevices {
    after: DeviceKey,
    last: DeviceKey,
}

/// The outcome of counting some devices.
struct CountedPart {
    /// The place from which the count continues; `None` behind the last device.
    last: Option<DeviceKey>,
    /// The error of the device behind that place.
    failed: Option<StoreError>,
}

#[cfg(test)]
mod tests {
    use isobar_model::json::parse;
    use isobar_model::organization::OrganizationInput;

    use super::*;
    use crate::stage::Stage;

    #[tokio::test]
    async fn limit_that_another_process_raises_holds_at_the_next_check() {
        let stage = Stage::set().await;
        let device = stage.device_of_another_tenant("{}").await;
        let limited = async |megabytes: f64| {
            let body = format!(r#"{{"name": "limited", "dataUsageMbLimit": {megabytes}}}"#);
            let input = OrganizationInput::read(&parse(&body).unwrap()).unwrap();
            let permit = access::system(device.organization, "a test plays another process");
            let registry = stage.hub.0.env.registry();
            registry.organization_update(&permit, &input, None, stage.clock.now()).await.unwrap();
        };
        limited(0.000_001).await;
        stage.hub.0.usage.unsettle();
        stage.hub.0.usage.usage_settled().await.unwrap();
        stage.posts(&device, "1").await;
        stage.posts(&device, "2").await;
        assert_eq!(stage.stored(&device, "reading").await.as_deref(), Some("1"));
        // From here on this process has nothing to write.
        stage.hub.0.usage.usage_settled().await.unwrap();
        limited(1.0).await;
        stage.hub.0.usage.usage_settled().await.unwrap();
        stage.posts(&device, "3").await;
        assert_eq!(stage.stored(&device, "reading").await.as_deref(), Some("3"));
        stage.over().await;
    }
}
