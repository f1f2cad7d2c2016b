//! The outbox: what runs of designs found out and the registry must learn, done afterwards, many devices at a time, and until
//! it succeeds.
//!
//! What a run leaves is written into the telemetry store in the run's own commit, as *entries*, and waits in memory from the
//! moment the commit is on its way (`waiting.rs`): of each device one *report*, in which the newest state has taken the place
//! of older ones, its settings in their order, and what is to leave the house. Whoever asks for a device is shown what waits
//! over what the registry has (`seen.rs`). A worker (`worker.rs`) takes what waits into hand, tenant by tenant in turns, makes
//! sure that it is durable, writes it in one transaction, and removes the entries.

mod device;
mod draft;
mod seen;
#[cfg(test)]
mod tests;
mod waiting;
mod work;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use isobar_model::access::CanWrite;
use isobar_model::device::Device;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceKey, DeviceRef, OrganizationId};
use isobar_model::time::{Clock, Timestamp};
use isobar_store::telemetry::{Commit, OutboxChange, SetsOut, Telemetry};
use parking_lot::Mutex;
use tokio::sync::Notify;

use self::device::OfDevice;
use self::draft::{Draft, Leaving, Rest};
pub(crate) use self::seen::Untold;
use self::waiting::{Expect, MOST, Waiting};
pub(crate) use self::work::{SettingWork, Work};
use crate::Hub;
use crate::entries::DeviceEntry;
use crate::error::Told as _;

/// How long a list waits for what would change what it finds.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// How long those wait who must have everything written that a device found out.
const WORK_MAX: Duration = Duration::from_secs(10);

const ENTRIES: &str = "isobar_outbox_entries";
const ENTRIES_MAX: &str = "isobar_outbox_entries_max";
const BYTES: &str = "isobar_outbox_bytes";
const BYTES_MAX: &str = "isobar_outbox_bytes_max";
const OLDEST: &str = "isobar_outbox_oldest_seconds";
const PARKED: &str = "isobar_outbox_parked";
const REFUSED: &str = "isobar_outbox_refused_total";

/// What is waiting to be done.
pub(crate) struct Outbox {
    waiting: Mutex<Waiting>,
    /// There is something to do.
    wake: Notify,
    /// Somebody waits until it is done.
    hurry: Notify,
    /// Some of it was done.
    done: Notify,
    /// The worker's turn: there is never more than one at work.
    turn: tokio::sync::Mutex<()>,
    /// Held while entries are on their way out of the store.
    removing: tokio::sync::Mutex<()>,
}

/// What becomes of that which a run leaves.
pub(crate) enum Left {
    /// It goes into the store with the run's commit.
    Goes { outbox: Vec<OutboxChange>, sets_out: SetsOut },
    /// The run went by an entry that no longer holds.
    Outdated,
    /// As much waits as may.
    Full,
}

/// What is expected of a device, until its commit is on its way. Dropped before that, it never comes.
struct Expected {
    outbox: Arc<Outbox>,
    device: DeviceKey,
    now: Timestamp,
    leaving: Option<Leaving>,
}

impl Expected {
    fn comes(mut self) {
        if let Some(leaving) = self.leaving.take() {
            let wakes = self.outbox.waiting.lock().comes(self.device, leaving, self.now);
            self.outbox.done.notify_waiters();
            if wakes {
                self.outbox.wake.notify_one();
            }
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        if self.leaving.is_some() {
            let wakes = self.outbox.waiting.lock().does_not_come(self.device);
            self.outbox.done.notify_waiters();
            if wakes {
                self.outbox.wake.notify_one();
            }
        }
    }
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self {
            waiting: Mutex::default(),
            wake: Notify::new(),
            hurry: Notify::new(),
            done: Notify::new(),
            turn: tokio::sync::Mutex::new(()),
            removing: tokio::sync::Mutex::new(()),
        }
    }

    /// A run is about to leave work. Called while the device's runs are serialised.
    pub(crate) fn leave(
        self: &Arc<Self>,
        entry: &DeviceEntry,
        work: Work,
        telemetry: &dyn Telemetry,
        now: Timestamp,
    ) -> Left {
        let device = entry.device;
        let number = || telemetry.outbox_number();
        let mut rest = Rest::of(work, &number);
        let (leaving, outbox) = loop {
            let base = self.waiting.lock().base(device.key);
            let draft = Draft::of(device, base, rest, &number);
            let mut waiting = self.waiting.lock();
            // Whoever loads a newer entry from here on knows of this work, for it asks for it under this lock. If one was
            // loaded before, it knows nothing of these runs: then they have never been.
            if !entry.fresh() {
                return Left::Outdated;
            }
            match waiting.expect(device, entry.lineage.top(), draft) {
                Expect::Goes(leaving, outbox) => break (leaving, outbox),
                // The worker has put something back, or taken it into hand.
                Expect::Anew(again) => rest = again,
                Expect::Full => {
                    metrics::counter!(REFUSED).increment(1);
                    return Left::Full;
                }
            }
        };
        let expected = Expected { outbox: Arc::clone(self), device: device.key, now, leaving: Some(leaving) };
        Left::Goes { outbox, sets_out: SetsOut::then(|| expected.comes()) }
    }

    /// What the registry has not been told of a device itself, of all runs that are committed.
    pub(crate) fn untold(&self, device: DeviceKey) -> Option<Untold> {
        self.waiting.lock().of(device).map(Untold::of_device_alone)
    }

    /// What the registry has not been told of devices themselves, of all runs that are committed, is laid over what it has.
    pub(crate) fn lay_over(&self, devices: &mut [Device]) {
        let untold: Vec<(usize, Untold)> = {
            let waiting = self.waiting.lock();
            let of = |(at, device): (usize, &Device)| Some((at, Untold::of_device_alone(waiting.of(device.key)?)));
            devices.iter().enumerate().filter_map(of).collect()
        };
        for (at, untold) in untold {
            devices.get_mut(at).into_iter().for_each(|device| untold.over(device));
        }
    }

    /// The same for those whose runs go by it: a run that is about to be committed is waited for.
    pub(crate) async fn untold_whole(&self, device: DeviceKey) -> Result<Untold> {
        let mut untold = Untold::default();
        let whole = self.wait(WORK_MAX, false, |waiting| match waiting.of(device) {
            Some(of) if of.expected > 0 => false,
            of => {
                untold = of.map(Untold::of).unwrap_or_default();
                true
            }
        });
        if whole.await { Ok(untold) } else { Err(Error::Busy) }
    }

    /// Waits until the registry knows everything that the device's runs have found out so far, or it is parked; false: it
    /// takes too long.
    pub(crate) async fn done_with(&self, device: DeviceKey) -> bool {
        let turn = self.waiting.lock().newest();
        self.wait(WORK_MAX, true, |waiting| waiting.is_written(device, turn)).await
    }

    /// Waits until the registry knows what all runs of a tenant have found out so far; false: it takes too long. Runs that
    /// come meanwhile are not waited for, nor those of others.
    pub(crate) async fn caught_up(&self, tenant: OrganizationId) -> bool {
        let turn = self.waiting.lock().newest();
        self.wait(SETTLE_MAX, true, |waiting| waiting.is_caught_up(tenant, turn)).await
    }

    async fn wait(&self, most: Duration, hurries: bool, mut reached: impl FnMut(&Waiting) -> bool) -> bool {
        let waiting = async {
            loop {
                let done = self.done.notified();
                if reached(&self.waiting.lock()) {
                    return;
                }
                if hurries {
                    self.hurry.notify_one();
                }
                done.await;
            }
        };
        tokio::time::timeout(most, waiting).await.is_ok()
    }

    /// Shows how much waits, and how long.
    pub(crate) fn measure(&self, clock: &Clock) {
        let look = self.waiting.lock().look();
        let oldest = look.oldest.map_or(0, |since| clock.now().millis().saturating_sub(since).max(0));
        for (gauge, value) in [
            (ENTRIES, look.size.entries as f64),
            (ENTRIES_MAX, MOST.entries as f64),
            (BYTES, look.size.bytes as f64),
            (BYTES_MAX, MOST.bytes as f64),
            (OLDEST, oldest as f64 / 1e3),
            (PARKED, look.parked as f64),
        ] {
            metrics::gauge!(gauge).set(value);
        }
    }
}

impl Hub {
    /// Waits until the registry knows everything that devices have found out so far, and no crash can make it learn any of
    /// it again: whoever writes over it from here on has the last word. [`Error::Busy`]: it takes too long.
    pub(crate) async fn settle_findings(&self, devices: impl Iterator<Item = DeviceKey>) -> Result<()> {
        for device in devices {
            if !self.0.outbox.done_with(device).await {
                return Err(Error::Busy);
            }
        }
        self.remove_needless().await.told()?;
        self.0.telemetry.sync().await.told()
    }

    /// Labels of a device that are parked are over: a person has written all its labels anew.
    pub(crate) async fn labels_overtaken(&self, pass: &CanWrite<DeviceRef>) -> Result<()> {
        let device = *pass.target();
        let of_device = |waiting: &Waiting| waiting.of(device.key).is_some_and(OfDevice::has_parked_labels);
        if !of_device(&self.0.outbox.waiting.lock()) {
            return Ok(());
        }
        let number = || self.0.telemetry.outbox_number();
        let mut overtake = |_: &dyn isobar_store::telemetry::Memory| {
            let outbox = self.0.outbox.waiting.lock().overtaken(device, &number);
            Commit { outbox, ..Commit::default() }
        };
        self.0.telemetry.run(pass, None, self.0.clock.now(), &mut overtake).await.told()?;
        tracing::info!(device = %device.id, "labels that were parked are over: somebody has written others");
        Ok(())
    }
}
