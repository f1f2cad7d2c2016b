//! What devices have stored: counted in memory as it happens, written to the registry every few seconds, held to the
//! limits of the organizations above the device.
//!
//! The telemetry store knows the figure of each device exactly. Here is only remembered whose figure has changed, so a
//! figure that was missed is right again with the device's next value; after a stop that was not orderly all are counted.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use isobar_model::access::{self, Lineage};
use isobar_model::error::Result;
use isobar_model::event::{EventError, EventType};
use isobar_model::ids::{DeviceKey, DeviceRef, OrganizationId};
use isobar_model::organization::BYTES_PER_MB;
use isobar_store::error::StoreError;
use isobar_store::registry::LimitedOrganization;
use isobar_store::telemetry::Commit;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Hub;
use crate::cache::entries::DeviceEntry;
use crate::error::Told as _;
use crate::supervisor::Shift;
use crate::support::scope_guard::Otherwise;

/// How often what changed is written.
const FLUSH_EVERY: Duration = Duration::from_secs(5);
/// Shortest time between two looks at what changed.
const FLUSH_REST: Duration = Duration::from_millis(200);
/// Devices written at a time: more would hold the registry's writer from others.
const DEVICES_AT_ONCE: usize = 1_000;
/// Looks at the figure of a device that stores something meanwhile.
const LOOKS_MAX: usize = 4;
/// What an event is told whose values are not stored.
const OVER_LIMIT: &str = "not stored: the data limit of the organization is reached";

/// What the subtree of an organization with a data limit has stored.
pub(crate) struct Meter {
    used: AtomicU64,
    limit: u64,
    over: AtomicBool,
}

impl Meter {
    fn new(used: u64, limit: u64) -> Self {
        Self { used: AtomicU64::new(used), limit, over: AtomicBool::new(used >= limit) }
    }

    fn add(&self, bytes: u64) {
        if self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) >= self.limit {
            self.over.store(true, Ordering::Relaxed);
        }
    }
}

/// The meters of the organizations above a device; nearly always none.
pub(crate) struct Quota(Box<[Arc<Meter>]>);

impl Quota {
    fn is_used_up(&self) -> bool {
        self.0.iter().any(|meter| meter.over.load(Ordering::Relaxed))
    }

    /// Whether nothing above the device has a data limit.
    pub fn is_unlimited(&self) -> bool {
        self.0.is_empty()
    }
}

/// What is counted and not yet written.
pub(crate) struct Usage {
    /// Devices whose figure has changed.
    changed: Mutex<Vec<Arc<DeviceEntry>>>,
    /// By organization with a data limit.
    meters: Mutex<HashMap<OrganizationId, Arc<Meter>>>,
    /// Whether an organization may have come nearer to a limit, or farther from it.
    unsettled: AtomicBool,
    /// Whether all figures in the registry are right, but for those of `changed`.
    counted: AtomicBool,
    wake: Notify,
    /// Whoever reads figures and writes them does so alone, or an old figure could come after a new one.
    turn: tokio::sync::Mutex<()>,
}

impl Usage {
    pub(crate) fn new() -> Self {
        Self {
            changed: Mutex::default(),
            meters: Mutex::default(),
            unsettled: AtomicBool::new(true),
            counted: AtomicBool::new(false),
            wake: Notify::new(),
            turn: tokio::sync::Mutex::new(()),
        }
    }

    /// A device stores so many bytes. Called while the device's runs are serialised, before they can be seen.
    pub(crate) fn stores(&self, entry: &Arc<DeviceEntry>, bytes: u64) {
        // Meters are not set while this is half done; where there is none, there is nothing to wait for.
        let _held = (!entry.quota.is_unlimited()).then(|| self.meters.lock());
        entry.stored.fetch_add(bytes, Ordering::AcqRel);
        entry.quota.0.iter().for_each(|meter| meter.add(bytes));
        self.touch(entry);
    }

    /// The figure of a device has changed.
    pub(crate) fn touch(&self, entry: &Arc<DeviceEntry>) {
        if !entry.uncounted.swap(true, Ordering::AcqRel) {
            self.changed.lock().push(Arc::clone(entry));
        }
    }

    /// Devices, limits or the shape of the tree have changed: limits are looked at soon.
    pub(crate) fn unsettle(&self) {
        self.unsettled.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// The meters of the organizations on a lineage.
    pub(crate) fn quota_of(&self, lineage: &Lineage) -> Quota {
        let meters = self.meters.lock();
        Quota(lineage.ids().iter().filter_map(|id| meters.get(id).cloned()).collect())
    }

    /// Sets the meters by what the registry knows. Those that hold on are kept: devices' entries look at them. Answers
    /// where there is another meter than before, or none any more.
    fn set_meters(&self, limited: &[LimitedOrganization]) -> Vec<OrganizationId> {
        let mut meters = self.meters.lock();
        let (mut present, mut changed) = (HashMap::with_capacity(limited.len()), Vec::new());
        for organization in limited.iter().filter(|organization| organization.data_usage_mb_limit > 0.0) {
            let (id, used) = (organization.id, organization.bytes_stored);
            let limit = (organization.data_usage_mb_limit * BYTES_PER_MB) as u64;
            let meter = match meters.remove(&id) {
                Some(meter) if meter.limit == limit => {
                    meter.used.store(used, Ordering::Relaxed);
                    meter.over.store(used >= limit, Ordering::Relaxed);
                    meter
                }
                _ => {
                    changed.push(id);
                    Arc::new(Meter::new(used, limit))
                }
            };
            present.insert(id, meter);
        }
        changed.extend(meters.keys());
        *meters = present;
        // What the registry does not know yet counts too.
        for entry in self.changed.lock().iter() {
            let unwritten = entry.stored.load(Ordering::Acquire).saturating_sub(entry.written.load(Ordering::Acquire));
            entry.quota.0.iter().for_each(|meter| meter.add(unwritten));
        }
        changed
    }
}

/// Takes out of a commit what its device may not store, and tells its event so. How many bytes are left to be stored.
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

impl Hub {
    /// Writes what changed, and looks at the limits, every few seconds; once more at the end, which is an orderly one.
    pub(crate) async fn run_usage(self, mut shift: Shift) {
        if !self.0.usage.counted.load(Ordering::Acquire) {
            tokio::select! {
                () = self.count_all() => {}
                () = shift.end() => {
                    tracing::info!("what devices have stored will be counted at the next start");
                    return;
                }
            }
        }
        loop {
            self.reaches("usage");
            let woken = async {
                let _ = tokio::time::timeout(FLUSH_EVERY, self.0.usage.wake.notified()).await;
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
                if settled.is_ok()
                    && let Err(error) = self.0.registry.usage_counted().await
                {
                    tracing::warn!(%error, "what devices have stored will be counted at the next start");
                }
                return;
            }
        }
    }

    /// Writes what changed, so that the registry knows it all, and looks at the limits.
    pub(crate) async fn usage_settled(&self) -> Result<()> {
        self.settle_usage().await.told()
    }

    /// Stored data of a device is gone: where there is a limit, what it frees can be used from here on.
    pub(crate) async fn usage_fell(&self, entry: &DeviceEntry) -> Result<()> {
        self.0.usage.unsettle();
        if entry.quota.is_unlimited() { Ok(()) } else { self.usage_settled().await }
    }

    /// Reads the limits before the first event comes, and whether all figures were right when the last process ended.
    pub(crate) async fn usage_begins(&self) -> Result<()> {
        let limited = self.0.registry.organizations_limited().await.told()?;
        self.0.usage.set_meters(&limited);
        let counted = self.0.registry.usage_begin().await.told()?;
        self.0.usage.counted.store(counted, Ordering::Release);
        Ok(())
    }

    async fn settle_usage(&self) -> std::result::Result<(), StoreError> {
        let _turn = self.0.usage.turn.lock().await;
        self.write_changed().await?;
        if self.0.usage.unsettled.swap(false, Ordering::AcqRel) {
            // However the look ends before its time: there is another.
            let again = Otherwise::new(|| self.0.usage.unsettled.store(true, Ordering::Release));
            self.look_at_limits().await?;
            again.call_off();
        }
        Ok(())
    }

    async fn write_changed(&self) -> std::result::Result<(), StoreError> {
        let changed = std::mem::take(&mut *self.0.usage.changed.lock());
        let done = AtomicUsize::new(0);
        // However this ends before its time, by an error, a panic, or because nobody waits any more: the rest has its turn again.
        let again = Otherwise::new(|| {
            changed[done.load(Ordering::Relaxed)..].iter().for_each(|entry| {
                entry.uncounted.store(false, Ordering::Release);
                self.0.usage.touch(entry);
            });
        });
        for part in changed.chunks(DEVICES_AT_ONCE) {
            self.0.usage.unsettled.store(true, Ordering::Release);
            self.write_part(part).await?;
            done.fetch_add(part.len(), Ordering::Relaxed);
        }
        again.call_off();
        Ok(())
    }

    async fn write_part(&self, part: &[Arc<DeviceEntry>]) -> std::result::Result<(), StoreError> {
        self.reaches("usage_part");
        let mut figures: HashMap<DeviceKey, u64> = HashMap::with_capacity(part.len());
        let mut known = Vec::with_capacity(part.len());
        for entry in part {
            // Before the figure is read: what is stored from here on makes the device count again.
            entry.uncounted.store(false, Ordering::Release);
            let (mut stored, mut figure) = (0, 0);
            for _ in 0..LOOKS_MAX {
                stored = entry.stored.load(Ordering::Acquire);
                figure = self.figure(entry.device).await?;
                if entry.stored.load(Ordering::Acquire) == stored {
                    break;
                }
            }
            figures.insert(entry.device.key, figure);
            known.push((entry, stored));
        }
        self.0.registry.usage_write(&figures.into_iter().collect::<Vec<_>>()).await?;
        known.into_iter().for_each(|(entry, stored)| entry.written.store(stored, Ordering::Release));
        Ok(())
    }

    /// The bytes that a device has stored.
    async fn figure(&self, device: DeviceRef) -> std::result::Result<u64, StoreError> {
        let pass = access::system(device, "what the device has stored is counted").reading();
        Ok(self.0.telemetry.series(&pass).await?.iter().map(|series| series.bytes).sum())
    }

    /// Looks at all limits: sets the meters, and tells administrators whose organization has come near to a limit.
    async fn look_at_limits(&self) -> std::result::Result<(), StoreError> {
        let limited = self.0.registry.organizations_limited().await?;
        for id in self.0.usage.set_meters(&limited) {
            self.organization_changed(id);
        }
        for organization in &limited {
            self.tell_of_limits(organization).await?;
        }
        Ok(())
    }

    /// Counts what every device has stored, a part at a time, until it is done.
    async fn count_all(&self) {
        let mut after = DeviceKey(0);
        loop {
            let part = async {
                let _turn = self.0.usage.turn.lock().await;
                let devices = self.0.registry.devices_after(after, DEVICES_AT_ONCE as u32).await?;
                let mut figures = Vec::with_capacity(devices.len());
                for device in &devices {
                    figures.push((device.key, self.figure(*device).await?));
                }
                self.0.registry.usage_write(&figures).await?;
                Ok::<_, StoreError>(devices.last().map(|device| device.key))
            };
            match part.await {
                Ok(Some(last)) => after = last,
                Ok(None) => {
                    self.0.usage.counted.store(true, Ordering::Release);
                    return self.0.usage.unsettle();
                }
                Err(error) => {
                    tracing::warn!(%error, "counting what devices have stored waits for a store");
                    tokio::time::sleep(FLUSH_EVERY).await;
                }
            }
        }
    }
}
