//! The outbox: changes that runs of designs made and the registry must learn, written afterwards, for many devices at a
//! time, and retried until they succeed.
//!
//! The work of a run is written into the telemetry store in the run's own commit, as *entries*, and is pending in
//! memory from the moment the commit is submitted (`queue.rs`): each device has one *report*, in which newer states
//! replace older ones, its settings in order, and its deliveries. Readers of a device get its pending changes applied
//! over the registry's row (`pending.rs`). The registry writer of the module `delivery` takes pending work
//! (`writing.rs`), makes sure that it is durable, writes it in one transaction, and removes the entries.

mod device_queue;
mod draft;
mod pending;
mod piece;
mod queue;
mod reported;
mod shared;
#[cfg(test)]
mod tests;
pub(crate) mod work;
mod writing;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use isobar_model::device::Device;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceKey, DeviceRef, OrganizationId};
use isobar_model::time::{Clock, Timestamp};
use isobar_store::telemetry::{OutboxChange, Telemetry};
use parking_lot::Mutex;
use tokio::sync::Notify;

use self::draft::{Draft, StagedWork, UnstagedWork};
pub(crate) use self::pending::PendingChanges;
#[cfg(test)]
pub(crate) use self::piece::{PARKED_AFTER, PARKED_PAUSE_MAX};
use self::queue::{Expect, OUTBOX_MAX, OutboxQueue};
pub(crate) use self::reported::Shown;
pub(crate) use self::work::RegistryWork;
use self::writing::BATCH_ROWS_MAX;
pub(crate) use self::writing::{OutboxBatch, SharedPiece};

/// Longest time that a list waits for pending changes that affect it.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// Longest time that a caller waits for all changes of a device to be written.
const WORK_MAX: Duration = Duration::from_secs(10);
/// Devices with pending reports that a filter or a count can include, at most; with more the call is refused.
const REPORTED_MAX: usize = 2_000;

const ENTRIES: &str = "isobar_outbox_entries";
const ENTRIES_MAX: &str = "isobar_outbox_entries_max";
const BYTES: &str = "isobar_outbox_bytes";
const BYTES_MAX: &str = "isobar_outbox_bytes_max";
const OLDEST: &str = "isobar_outbox_oldest_seconds";
const PARKED: &str = "isobar_outbox_parked";
const REFUSED: &str = "isobar_outbox_refused_total";

/// Queues changes for the registry.
pub(crate) struct Outbox {
    clock: Clock,
    /// Other processes serve the same devices: what is shown is what the registry has, so that all show the same.
    is_shared: bool,
    queue: Mutex<OutboxQueue>,
    /// Rows of the registry that the next batch writes.
    batch_rows: AtomicUsize,
    /// Notified when there is work to write.
    wake: Notify,
    /// Notified when a caller waits for work to be written.
    hurry: Notify,
    /// Notified when some work was written.
    done: Notify,
}

/// The reason for which the work of a run cannot be stored with its commit.
pub(crate) enum StagingFailure {
    /// The run used an outdated entry.
    Outdated,
    /// The outbox is full.
    Full,
}

/// Work expected of a device until its commit is submitted. Dropped before that, the work is cancelled.
pub(crate) struct Staging {
    outbox: Arc<Outbox>,
    device: DeviceKey,
    now: Timestamp,
    staged: Option<StagedWork>,
    revision: Option<u64>,
}

impl Staging {
    /// Notes that the commit is submitted, with the revision of the device that it makes. The caller still holds the device's
    /// lock.
    pub(crate) fn comes(mut self, revision: u64) {
        self.revision = Some(revision);
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let wakes = match self.staged.take().zip(self.revision) {
            Some((staged, revision)) => self.outbox.queue.lock().comes((self.device, revision), staged, self.now),
            None => self.outbox.queue.lock().does_not_come(self.device),
        };
        self.outbox.done.notify_waiters();
        if wakes {
            self.outbox.wake.notify_one();
        }
    }
}

impl Outbox {
    pub(crate) fn new(clock: Clock, is_shared: bool) -> Self {
        let (wake, hurry, done) = (Notify::new(), Notify::new(), Notify::new());
        let batch_rows = AtomicUsize::new(BATCH_ROWS_MAX);
        Self { clock, is_shared, queue: Mutex::default(), batch_rows, wake, hurry, done }
    }

    /// Stages the work that a run of a device of this tenant leaves, before the run is committed, and returns the
    /// changes for the commit. The caller holds the device's lock. `is_current` is true if the run used the newest
    /// state of the device.
    pub(crate) fn stage(
        self: &Arc<Self>,
        (device, tenant): (DeviceRef, OrganizationId),
        is_current: impl Fn() -> bool,
        work: RegistryWork,
        telemetry: &dyn Telemetry,
        now: Timestamp,
    ) -> std::result::Result<(Vec<OutboxChange>, Staging), StagingFailure> {
        let number = || telemetry.outbox_number();
        let mut unstaged = UnstagedWork::of(work, &number);
        let (staged, outbox) = loop {
            let base = self.queue.lock().base(device.key);
            // Drafted outside the lock: a report may be as large as a device's labels.
            let draft = Draft::of(device, base, unstaged, &number);
            let mut queue = self.queue.lock();
            // A newer entry loaded from now on includes this work, because its load asks for it under this lock. An
            // entry loaded earlier does not know of these runs, which must then leave no work.
            if !is_current() {
                return Err(StagingFailure::Outdated);
            }
            match queue.expect(device, tenant, draft) {
                Expect::Goes(staged, outbox) => break (staged, outbox),
                // The worker has taken the pending report or put it back.
                Expect::Anew(again) => unstaged = again,
                Expect::Full => {
                    metrics::counter!(REFUSED).increment(1);
                    return Err(StagingFailure::Full);
                }
            }
        };
        let staging =
            Staging { outbox: Arc::clone(self), device: device.key, now, staged: Some(staged), revision: None };
        Ok((outbox, staging))
    }

    /// Returns the pending changes of a device itself, of all committed runs, without settings, as they are shown.
    pub(crate) fn pending(&self, device: DeviceKey) -> Option<PendingChanges> {
        if self.is_shared {
            return None;
        }
        self.queue.lock().of(device).map(PendingChanges::of_device_alone)
    }

    /// Applies the pending changes of all committed runs to the devices, as they are shown.
    pub(crate) fn apply_pending(&self, devices: &mut [Device]) {
        if self.is_shared {
            return;
        }
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

    /// Returns the devices of a tenant with pending reports, of all committed runs, as they are shown.
    ///
    /// # Errors
    /// Returns `Busy` if there are more than [`REPORTED_MAX`].
    pub(crate) fn reported(&self, tenant: OrganizationId) -> Result<HashMap<DeviceId, PendingChanges>> {
        if self.is_shared {
            return Ok(HashMap::new());
        }
        let queue = self.queue.lock();
        let reported = queue.reported(tenant, REPORTED_MAX).ok_or(Error::Busy)?;
        Ok(reported.into_iter().map(|of| (of.device.id, PendingChanges::of_device_alone(of))).collect())
    }

    /// Returns the pending changes of a device as they are shown, after waiting for runs that are about to be committed.
    pub(crate) async fn pending_shown(&self, device: DeviceKey) -> Result<PendingChanges> {
        if self.is_shared { Ok(PendingChanges::default()) } else { self.pending_committed(device).await }
    }

    /// Returns the pending changes of a device, after waiting for runs that are about to be committed.
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

    /// Waits until all changes that the device's runs have made so far are written or parked; returns false if it takes
    /// too long.
    pub(crate) async fn written(&self, device: DeviceKey) -> bool {
        let newest = self.queue.lock().newest();
        self.wait(WORK_MAX, true, |queue| queue.is_written(device, newest)).await
    }

    /// Waits until those changes of all runs of a tenant so far are written that a list shows; returns false if it takes
    /// too long. Later runs, and those of other tenants, are not waited for.
    pub(crate) async fn caught_up(&self, tenant: OrganizationId, shown: &[Shown]) -> bool {
        let newest = self.queue.lock().newest();
        self.wait(SETTLE_MAX, true, |queue| queue.is_caught_up(tenant, shown, newest)).await
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

    /// Publishes the number, size and age of pending work as gauges.
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
