//! What the registry writer takes out of the outbox, and what becomes of it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isobar_model::ids::{DeviceKey, DeviceRef, OrganizationId};
use isobar_model::time::Timestamp;
use isobar_store::telemetry::{OutboxChange, OutboxEntry};
use uuid::Uuid;

use super::Outbox;
use super::device_queue::{DeviceQueue, PARKED_AFTER, Piece, PieceKind};
use super::work::{DeviceFindings, OutgoingWork, SettingWork};

/// Devices whose tenants are looked up in one question.
const STRANGERS_AT_ONCE: usize = 1_000;

/// What is being written; dropped, what was not written waits again.
pub(crate) struct OutboxBatch {
    outbox: Arc<Outbox>,
    /// When the round began.
    now: Instant,
    /// First what was never refused.
    pieces: Vec<Option<Piece>>,
    /// How many were never refused.
    sound: usize,
}

/// A piece, as another thread writes it.
pub(crate) enum SharedPiece {
    Report(Arc<DeviceFindings>),
    Settings(Vec<Arc<SettingWork>>),
    Delivery(Arc<OutgoingWork>, Option<OrganizationId>),
}

/// A piece that was refused so often that it is tried only now and then.
pub(crate) struct ParkedPiece {
    pub device: DeviceRef,
    /// The entries of the store that hold it.
    pub rows: Vec<u64>,
    /// It is parked from now on, and was not before.
    pub is_new: bool,
}

impl OutboxBatch {
    /// The pieces as they are tried first: together what was never refused, then each of the others by itself.
    pub fn ranges(&self) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = (self.sound..self.pieces.len()).rev().map(|at| at..at + 1).collect();
        ranges.push(0..self.sound);
        ranges
    }

    /// Pieces to be written.
    pub fn shared(&self, range: Range<usize>) -> Vec<(DeviceRef, SharedPiece)> {
        let queue = self.outbox.queue.lock();
        let tenant = |piece: &Piece| queue.of(piece.device.key).and_then(|of| of.tenant);
        let pieces = self.pieces[range].iter().flatten();
        pieces.map(|piece| (piece.device, SharedPiece::of(&piece.what, tenant(piece)))).collect()
    }

    /// These pieces were written.
    pub fn written(&mut self, range: Range<usize>) {
        let mut queue = self.outbox.queue.lock();
        for piece in self.pieces[range].iter_mut().filter_map(Option::take) {
            queue.written(&piece);
        }
        drop(queue);
        self.outbox.done.notify_waiters();
    }

    /// This piece was refused for its own sake, and waits for another try. What is parked, if it is.
    pub fn refused(&mut self, at: usize) -> Option<ParkedPiece> {
        let mut piece = self.pieces.get_mut(at)?.take()?;
        let faults = piece.faults().again(self.now);
        *piece.faults_mut() = faults;
        let (device, rows) = (piece.device, piece.rows().to_vec());
        self.outbox.queue.lock().put_back(piece);
        faults.is_parked().then_some(ParkedPiece { device, rows, is_new: faults.tries == PARKED_AFTER })
    }
}

impl Drop for OutboxBatch {
    fn drop(&mut self) {
        // The last first: each goes before what came after it. Others have the lock in between.
        for piece in self.pieces.drain(..).rev().flatten() {
            self.outbox.queue.lock().put_back(piece);
        }
        self.outbox.queue.lock().is_done();
        self.outbox.done.notify_waiters();
    }
}

impl SharedPiece {
    fn of(what: &PieceKind, tenant: Option<OrganizationId>) -> Self {
        match what {
            PieceKind::Report(report) => Self::Report(Arc::clone(&report.found)),
            PieceKind::Settings(settings, _) => {
                Self::Settings(settings.iter().map(|setting| Arc::clone(&setting.what)).collect())
            }
            PieceKind::Delivery(delivery) => Self::Delivery(Arc::clone(&delivery.what), tenant),
        }
    }
}

impl Outbox {
    /// Whether anything can be written now.
    pub(crate) fn is_ready(&self) -> bool {
        self.queue.lock().is_ready()
    }

    /// Waits until there is something to write, and for so long at least, unless somebody waits for it or much does.
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

    /// All that has come until now has a sequence up to this one.
    pub(crate) fn newest(&self) -> u64 {
        self.queue.lock().newest()
    }

    /// Takes into hand what can be written at that moment, as far as it came up to a sequence; none: there is nothing.
    pub(crate) fn take(self: &Arc<Self>, until: u64, now: Instant) -> Option<OutboxBatch> {
        let mut pieces = self.queue.lock().take(until, now);
        pieces.sort_by_key(|piece| piece.faults().tries > 0);
        let sound = pieces.partition_point(|piece| piece.faults().tries == 0);
        let pieces = pieces.into_iter().map(Some).collect();
        let batch = OutboxBatch { outbox: Arc::clone(self), now, pieces, sound };
        (!batch.pieces.is_empty()).then_some(batch)
    }

    /// Takes up an entry that an earlier process left.
    ///
    /// # Errors
    /// It cannot be read, and is counted among those that are parked.
    pub(crate) fn take_up(&self, entry: &OutboxEntry, now: Timestamp) -> serde_json::Result<()> {
        let mut queue = self.queue.lock();
        let taken = queue.take_up(entry, now);
        if taken.is_err() {
            queue.is_unreadable();
        }
        drop(queue);
        self.wake.notify_one();
        taken
    }

    /// Some of the devices that an earlier process has left something of, of which nobody knows yet whose they are.
    pub(crate) fn strangers(&self) -> Vec<DeviceRef> {
        self.queue.lock().strangers(STRANGERS_AT_ONCE)
    }

    /// Whose the strangers are; those of which nothing is said are gone.
    pub(crate) fn strangers_belong(&self, strangers: &[DeviceRef], tenants: &HashMap<DeviceKey, OrganizationId>) {
        let mut queue = self.queue.lock();
        for DeviceRef { key, .. } in strangers {
            queue.belongs(*key, tenants.get(key).copied().unwrap_or(OrganizationId(Uuid::nil())));
        }
    }

    /// Entries of the store that nobody needs any more, to be removed.
    pub(crate) fn take_needless(&self) -> Vec<u64> {
        self.queue.lock().take_needless()
    }

    /// They could not be removed.
    pub(crate) fn put_back_needless(&self, needless: Vec<u64>) {
        self.queue.lock().put_back_needless(needless);
    }

    /// Whether labels of a device are parked.
    pub(crate) fn has_parked_labels(&self, device: DeviceKey) -> bool {
        self.queue.lock().of(device).is_some_and(DeviceQueue::has_parked_labels)
    }

    /// Drops parked labels of a device that `is_dropped` names, to be called while the device is locked; the changes for the
    /// store.
    pub(crate) fn drop_parked_labels(
        &self,
        device: DeviceRef,
        is_dropped: &dyn Fn(&str) -> bool,
        number: &dyn Fn() -> u64,
    ) -> Vec<OutboxChange> {
        self.queue.lock().drop_parked_labels(device, is_dropped, number)
    }
}
