//! Hands batches of pending work to the registry writer, and takes back their outcome.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use isobar_model::ids::{DeviceKey, DeviceRef, OrganizationId};
use isobar_model::time::Timestamp;
use isobar_store::telemetry::{OutboxChange, OutboxEntry};
use uuid::Uuid;

use super::Outbox;
use super::device_queue::DeviceQueue;
use super::piece::{PARKED_AFTER, Piece, PieceKind};
use super::work::{DeviceFindings, OutgoingWork, SettingWork};

/// Devices whose tenants are looked up in one query.
const STRANGERS_AT_ONCE: usize = 1_000;

/// Rows of the registry that a batch writes at most: so many, and fewer where a batch takes longer than this, as everybody
/// waits for the one that is being written.
pub(super) const BATCH_ROWS_MAX: usize = 512;
const BATCH_ROWS_MIN: usize = 128;
const BATCH_TIME_MAX: Duration = Duration::from_millis(100);

/// A batch of work in hand; pieces not written when it is dropped are pending again.
pub(crate) struct OutboxBatch {
    outbox: Arc<Outbox>,
    /// Beginning of the round, and of the batch.
    now: Instant,
    begun: Instant,
    /// The pieces, those never refused first.
    pieces: Vec<Option<Piece>>,
    /// Number of pieces that were never refused.
    sound: usize,
}

/// A piece, shared with the thread that writes it.
pub(crate) enum SharedPiece {
    /// The report, and the places of the findings about alarms that are written now: all but the first part of a large
    /// report have nothing else.
    Report(Arc<DeviceFindings>, Range<usize>),
    Settings(Vec<Arc<SettingWork>>),
    Delivery(Arc<OutgoingWork>, Option<OrganizationId>),
}

/// A piece refused so often that it is retried only from time to time.
pub(crate) struct ParkedPiece {
    pub device: DeviceRef,
    /// The entries of the store that contain it.
    pub rows: Vec<u64>,
    /// True if it was not parked before.
    pub is_new: bool,
}

impl OutboxBatch {
    /// Returns the pieces as they are tried first: all that were never refused together, then each of the others by
    /// itself.
    pub fn ranges(&self) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = (self.sound..self.pieces.len()).rev().map(|at| at..at + 1).collect();
        ranges.push(0..self.sound);
        ranges
    }

    /// Returns the pieces to be written.
    pub fn shared(&self, range: Range<usize>) -> Vec<(DeviceRef, SharedPiece)> {
        let queue = self.outbox.queue.lock();
        let tenant = |piece: &Piece| queue.of(piece.device.key).and_then(|of| of.tenant);
        let pieces = self.pieces[range].iter().flatten();
        pieces.map(|piece| (piece.device, SharedPiece::of(&piece.what, tenant(piece)))).collect()
    }

    /// Returns the devices of these pieces, with their revisions: 0, which the registry refuses, if another process has taken
    /// them over.
    pub fn revisions(&self, range: Range<usize>) -> Vec<(DeviceRef, u64)> {
        let queue = self.outbox.queue.lock();
        let of = |piece: &Piece| queue.of(piece.device.key).filter(|of| !of.is_overtaken_in_hand(piece));
        let revision = |piece: &Piece| of(piece).map_or(0, |of| of.revision);
        // Parked pieces are tried by themselves, so those of one device have the same.
        let devices: BTreeMap<DeviceKey, (DeviceRef, u64)> = self.pieces[range]
            .iter()
            .flatten()
            .map(|piece| (piece.device.key, (piece.device, revision(piece))))
            .collect();
        devices.into_values().collect()
    }

    /// Drops the pieces of devices that another process has taken over.
    pub fn overtaken(&mut self, range: Range<usize>, devices: &[DeviceKey]) {
        let is_theirs = |piece: &mut Piece| devices.contains(&piece.device.key);
        let mut queue = self.outbox.queue.lock();
        for piece in self.pieces[range].iter_mut().filter_map(|piece| piece.take_if(is_theirs)) {
            queue.overtaken(&piece);
        }
        drop(queue);
        self.outbox.done.notify_waiters();
    }

    /// Removes pieces that were written. The next parts of large ones wait for another turn.
    pub fn written(&mut self, range: Range<usize>) {
        let mut queue = self.outbox.queue.lock();
        for piece in self.pieces[range].iter_mut().filter_map(Option::take) {
            queue.part_written(piece);
        }
        drop(queue);
        self.outbox.done.notify_waiters();
    }

    /// Puts back a refused piece for another attempt, and returns it if it is parked.
    pub fn refused(&mut self, at: usize) -> Option<ParkedPiece> {
        let mut piece = self.pieces.get_mut(at)?.take()?;
        let mut queue = self.outbox.queue.lock();
        if queue.of(piece.device.key).is_some_and(|of| of.is_overtaken_in_hand(&piece)) {
            queue.overtaken(&piece);
            return None;
        }
        let faults = piece.faults().again(self.now);
        *piece.faults_mut() = faults;
        let (device, rows) = (piece.device, piece.rows().to_vec());
        queue.put_back(piece);
        faults.is_parked().then_some(ParkedPiece { device, rows, is_new: faults.tries == PARKED_AFTER })
    }
}

impl Drop for OutboxBatch {
    fn drop(&mut self) {
        // Starts with the last, so that each is put before newer work. The lock is released in between.
        for piece in self.pieces.drain(..).rev().flatten() {
            self.outbox.queue.lock().put_back(piece);
        }
        self.outbox.queue.lock().is_done();
        self.outbox.done.notify_waiters();
        let rows = self.outbox.batch_rows.load(Ordering::Relaxed);
        let is_slow = self.outbox.clock.elapsed(self.begun) > BATCH_TIME_MAX;
        let next = if is_slow { rows / 2 } else { rows * 2 };
        self.outbox.batch_rows.store(next.clamp(BATCH_ROWS_MIN, BATCH_ROWS_MAX), Ordering::Relaxed);
    }
}

impl SharedPiece {
    fn of(what: &PieceKind, tenant: Option<OrganizationId>) -> Self {
        match what {
            PieceKind::Report(report) => Self::Report(Arc::clone(&report.found), report.part()),
            PieceKind::Settings(settings, _) => {
                Self::Settings(settings.iter().map(|setting| Arc::clone(&setting.what)).collect())
            }
            PieceKind::Delivery(delivery) => Self::Delivery(Arc::clone(&delivery.what), tenant),
        }
    }
}

impl Outbox {
    /// Returns true if any work can be written now.
    pub(crate) fn is_ready(&self) -> bool {
        self.queue.lock().is_ready()
    }

    /// Waits until there is work to write, and at least for `rest`, unless a caller waits for the outbox or much work
    /// is pending.
    pub(crate) async fn until_ready(&self, rest: Duration) {
        let presses = self.queue.lock().presses();
        if !presses {
            let _ = self.clock.timeout(rest, self.hurry.notified()).await;
        }
        let due = {
            let queue = self.queue.lock();
            if queue.is_ready() {
                return;
            }
            queue.next_due()
        };
        let ripe = async {
            match due {
                Some(due) => self.clock.sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.wake.notified() => {}
            () = self.hurry.notified() => {}
            () = ripe => {}
        }
    }

    /// Returns the sequence of the newest work.
    pub(crate) fn newest(&self) -> u64 {
        self.queue.lock().newest()
    }

    /// Returns true if work up to a sequence can be written.
    pub(crate) fn is_ready_until(&self, sequence: u64) -> bool {
        self.queue.lock().is_ready_until(sequence)
    }

    /// Takes work that can be written now, whatever its sequence; returns `None` if there is none.
    pub(crate) fn take(self: &Arc<Self>, now: Instant) -> Option<OutboxBatch> {
        let begun = self.clock.instant();
        let mut pieces = self.queue.lock().take(now, self.batch_rows.load(Ordering::Relaxed));
        pieces.sort_by_key(|piece| piece.faults().tries > 0);
        let sound = pieces.partition_point(|piece| piece.faults().tries == 0);
        let pieces = pieces.into_iter().map(Some).collect();
        let batch = OutboxBatch { outbox: Arc::clone(self), now, begun, pieces, sound };
        (!batch.pieces.is_empty()).then_some(batch)
    }

    /// Loads an entry that another process left; the device is at this revision.
    ///
    /// # Errors
    /// Returns an error if the entry cannot be read; it is then counted as parked.
    pub(crate) fn take_up(&self, entry: &OutboxEntry, revision: u64, now: Timestamp) -> serde_json::Result<()> {
        let mut queue = self.queue.lock();
        let taken = queue.take_up(entry, revision, now);
        if taken.is_err() {
            queue.is_unreadable(entry.number);
        }
        drop(queue);
        self.wake.notify_one();
        taken
    }

    /// Returns some devices with work of an earlier process whose tenant is unknown.
    pub(crate) fn strangers(&self) -> Vec<DeviceRef> {
        self.queue.lock().strangers(STRANGERS_AT_ONCE)
    }

    /// Sets the tenants of such devices; those without a tenant were deleted.
    pub(crate) fn strangers_belong(&self, strangers: &[DeviceRef], tenants: &HashMap<DeviceKey, OrganizationId>) {
        let mut queue = self.queue.lock();
        for DeviceRef { key, .. } in strangers {
            queue.belongs(*key, tenants.get(key).copied().unwrap_or(OrganizationId(Uuid::nil())));
        }
    }

    /// Takes the entries of the store that can be removed, each of a device.
    pub(crate) fn take_needless(&self) -> Vec<(DeviceKey, u64)> {
        self.queue.lock().take_needless()
    }

    /// Puts back entries whose removal failed.
    pub(crate) fn put_back_needless(&self, needless: Vec<(DeviceKey, u64)>) {
        self.queue.lock().put_back_needless(needless);
    }

    /// Returns true if labels of a device are parked.
    pub(crate) fn has_parked_labels(&self, device: DeviceKey) -> bool {
        self.queue.lock().of(device).is_some_and(DeviceQueue::has_parked_labels)
    }

    /// Drops a device's parked labels that `is_dropped` selects, once `commit` has accepted the changes for the store. The
    /// caller holds the device's lock.
    pub(crate) fn drop_parked_labels<T, E>(
        &self,
        device: DeviceRef,
        is_dropped: &dyn Fn(&str) -> bool,
        number: &dyn Fn() -> u64,
        commit: impl FnOnce(Vec<OutboxChange>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.queue.lock().drop_parked_labels(device, is_dropped, number, commit)
    }
}
