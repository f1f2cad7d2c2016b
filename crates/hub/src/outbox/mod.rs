//! The outbox: what runs of designs found out and the registry must learn, done afterwards, many devices at a time, and until
//! it succeeds.
//!
//! What a run leaves is written into the telemetry store in the run's own commit, as *entries*, and waits in memory from the
//! moment the commit is on its way (`queue.rs`): of each device one *report*, in which the newest state has taken the place
//! of older ones, its settings in their order, and what is to be delivered. Whoever asks for a device is shown what waits
//! over what the registry has (`pending.rs`). The registry writer of the room `delivery` takes what waits (`writing.rs`),
//! makes sure that it is durable, writes it in one transaction, and removes the entries.

mod device_queue;
mod draft;
mod pending;
mod queue;
mod reported;
#[cfg(test)]
mod tests;
pub(crate) mod work;
mod writing;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use isobar_model::device::Device;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceKey, DeviceRef, OrganizationId};
use isobar_model::time::{Clock, Timestamp};
use isobar_store::telemetry::{OutboxChange, SetsOut, Telemetry};
use parking_lot::Mutex;
use tokio::sync::Notify;

#[cfg(test)]
pub(crate) use self::device_queue::PARKED_PAUSE_MAX;
use self::draft::{Draft, StagedWork, UnstagedWork};
pub(crate) use self::pending::PendingChanges;
use self::queue::{Expect, OUTBOX_MAX, OutboxQueue};
pub(crate) use self::work::RegistryWork;
pub(crate) use self::writing::{OutboxBatch, SharedPiece};

/// How long a list waits for what would change what it finds.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// How long those wait who must have everything written that a device found out.
const WORK_MAX: Duration = Duration::from_secs(10);
/// Devices with something unwritten that a filter or a count can have laid over the registry; with more it is refused.
const REPORTED_MAX: usize = 2_000;

const ENTRIES: &str = "isobar_outbox_entries";
const ENTRIES_MAX: &str = "isobar_outbox_entries_max";
const BYTES: &str = "isobar_outbox_bytes";
const BYTES_MAX: &str = "isobar_outbox_bytes_max";
const OLDEST: &str = "isobar_outbox_oldest_seconds";
const PARKED: &str = "isobar_outbox_parked";
const REFUSED: &str = "isobar_outbox_refused_total";

/// What waits for the registry.
pub(crate) struct Outbox {
    clock: Clock,
    queue: Mutex<OutboxQueue>,
    /// There is something to write.
    wake: Notify,
    /// Somebody waits until it is written.
    hurry: Notify,
    /// Some of it was written.
    done: Notify,
}

/// What becomes of the work that a run leaves.
pub(crate) enum Staged {
    /// It goes into the store with the run's commit.
    Goes { outbox: Vec<OutboxChange>, sets_out: SetsOut },
    /// The run went by an entry that no longer holds.
    Outdated,
    /// As much waits as may.
    Full,
}

/// Work that is expected of a device, until its commit is on its way. Dropped before that, it never comes.
struct Staging {
    outbox: Arc<Outbox>,
    device: DeviceKey,
    now: Timestamp,
    staged: Option<StagedWork>,
    is_on_its_way: bool,
}

impl Staging {
    fn comes(mut self) {
        self.is_on_its_way = true;
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let staged = self.staged.take().filter(|_| self.is_on_its_way);
        let wakes = match staged {
            Some(staged) => self.outbox.queue.lock().comes(self.device, staged, self.now),
            None => self.outbox.queue.lock().does_not_come(self.device),
        };
        self.outbox.done.notify_waiters();
        if wakes {
            self.outbox.wake.notify_one();
        }
    }
}

impl Outbox {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, queue: Mutex::default(), wake: Notify::new(), hurry: Notify::new(), done: Notify::new() }
    }

    /// A run of a device of this tenant is about to be committed, and leaves work. To be called while the device is locked;
    /// `is_current` tells whether the run went by what is known of the device.
    pub(crate) fn stage(
        self: &Arc<Self>,
        (device, tenant): (DeviceRef, OrganizationId),
        is_current: impl Fn() -> bool,
        work: RegistryWork,
        telemetry: &dyn Telemetry,
        now: Timestamp,
    ) -> Staged {
        let number = || telemetry.outbox_number();
        let mut unstaged = UnstagedWork::of(work, &number);
        let (staged, outbox) = loop {
            let base = self.queue.lock().base(device.key);
            // Beside the lock: a report may be as large as a device's labels.
            let draft = Draft::of(device, base, unstaged, &number);
            let mut queue = self.queue.lock();
            // Whoever loads a newer entry from here on knows of this work, for it asks for it under this lock. If one was
            // loaded before, it knows nothing of these runs, and they must leave nothing.
            if !is_current() {
                return Staged::Outdated;
            }
            match queue.expect(device, tenant, draft) {
                Expect::Goes(staged, outbox) => break (staged, outbox),
                // The worker has put something back, or taken it into hand.
                Expect::Anew(again) => unstaged = again,
                Expect::Full => {
                    metrics::counter!(REFUSED).increment(1);
                    return Staged::Full;
                }
            }
        };
        let staging =
            Staging { outbox: Arc::clone(self), device: device.key, now, staged: Some(staged), is_on_its_way: false };
        Staged::Goes { outbox, sets_out: SetsOut::then(|| staging.comes()) }
    }

    /// What the registry does not know yet of a device itself, of all runs that are committed.
    pub(crate) fn pending(&self, device: DeviceKey) -> Option<PendingChanges> {
        self.queue.lock().of(device).map(PendingChanges::of_device_alone)
    }

    /// Devices as the registry will have them: what it does not know yet, of all runs that are committed, is applied to them.
    pub(crate) fn apply_pending(&self, devices: &mut [Device]) {
        let pending: Vec<(usize, PendingChanges)> = {
            let queue = self.queue.lock();
            let of =
                |(at, device): (usize, &Device)| Some((at, PendingChanges::of_device_alone(queue.of(device.key)?)));
            devices.iter().enumerate().filter_map(of).collect()
        };
        for (at, pending) in pending {
            devices.get_mut(at).into_iter().for_each(|device| pending.apply_to(device));
        }
    }

    /// The devices of a tenant of which something waits that the registry does not know yet, of all runs that are committed.
    ///
    /// # Errors
    /// `Busy`: there are more than [`REPORTED_MAX`].
    pub(crate) fn reported(&self, tenant: OrganizationId) -> Result<HashMap<DeviceId, PendingChanges>> {
        let queue = self.queue.lock();
        let reported = queue.reported(tenant, REPORTED_MAX).ok_or(Error::Busy)?;
        Ok(reported.into_iter().map(|of| (of.device.id, PendingChanges::of_device_alone(of))).collect())
    }

    /// What the registry does not know yet of a device. A run that is about to be committed is waited for.
    pub(crate) async fn pending_committed(&self, device: DeviceKey) -> Result<PendingChanges> {
        let mut pending = PendingChanges::default();
        let committed = self.wait(WORK_MAX, false, |queue| match queue.of(device) {
            Some(of) if of.expected > 0 => false,
            of => {
                pending = of.map(PendingChanges::of).unwrap_or_default();
                true
            }
        });
        if committed.await { Ok(pending) } else { Err(Error::Busy) }
    }

    /// Waits until the registry knows everything that the device's runs have found out so far, or it is parked; false: it
    /// takes too long.
    pub(crate) async fn written(&self, device: DeviceKey) -> bool {
        let newest = self.queue.lock().newest();
        self.wait(WORK_MAX, true, |queue| queue.is_written(device, newest)).await
    }

    /// Waits until the registry knows what all runs of a tenant have found out so far; false: it takes too long. Runs that
    /// come meanwhile are not waited for, nor those of others.
    pub(crate) async fn caught_up(&self, tenant: OrganizationId) -> bool {
        let newest = self.queue.lock().newest();
        self.wait(SETTLE_MAX, true, |queue| queue.is_caught_up(tenant, newest)).await
    }

    async fn wait(&self, most: Duration, hurries: bool, mut reached: impl FnMut(&OutboxQueue) -> bool) -> bool {
        let waiting = async {
            loop {
                let done = self.done.notified();
                if reached(&self.queue.lock()) {
                    return;
                }
                if hurries {
                    self.hurry.notify_one();
                }
                done.await;
            }
        };
        self.clock.timeout(most, waiting).await.is_ok()
    }

    /// Shows how much waits, and how long.
    pub(crate) fn measure(&self, clock: &Clock) {
        let look = self.queue.lock().look();
        let oldest = look.oldest.map_or(0, |since| clock.now().millis().saturating_sub(since).max(0));
        for (gauge, value) in [
            (ENTRIES, look.size.entries as f64),
            (ENTRIES_MAX, OUTBOX_MAX.entries as f64),
            (BYTES, look.size.bytes as f64),
            (BYTES_MAX, OUTBOX_MAX.bytes as f64),
            (OLDEST, oldest as f64 / 1e3),
            (PARKED, look.parked as f64),
        ] {
            metrics::gauge!(gauge).set(value);
        }
    }
}
