//! Writes what waits in the outbox into the registry.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use isobar_model::access::{self, CanWrite};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceKey, DeviceRef, OrganizationId};
use isobar_model::json::RawJson;
use isobar_store::error::StoreError;
use isobar_store::registry::{Findings, SettingWrite};
use isobar_store::telemetry::{Commit, Memory, OutboxEntry};
use tokio::runtime::Handle;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Delivery, calls, device_notices};
use crate::error::IntoHubError as _;
use crate::outbox::Outbox;
use crate::outbox::device_queue::{DeviceQueue, PARKED_AFTER, Piece, PieceKind, Refusals};
use crate::outbox::work::{DeviceFindings, OutgoingWork, SettingWork};
use crate::supervisor::{Shift, guarded};

/// Entries taken up from the store at a time, at a start.
const LEFT_AT_ONCE: usize = 1_000;
/// Devices whose tenants are looked up in one question.
const STRANGERS_AT_ONCE: usize = 1_000;
/// First pause after a store has failed; it doubles up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Longest pause after a store has failed.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// After a round the worker rests for so many times as long as the round took, so that the newest state of a device takes the
/// place of older ones, and the registry is there for others; but not for longer than [`REST_MAX`], nor while somebody waits
/// or much does.
const REST_TIMES: u32 = 9;
const REST_MAX: Duration = Duration::from_secs(1);
/// At a stop it is written what can be in this time. The rest is durable, and goes on at the next start.
const FINAL_WRITES_TIME: Duration = Duration::from_secs(2);

const PARKED_TOTAL: &str = "isobar_outbox_parked_total";

/// What is being written; dropped, what was not written waits again.
struct Batch {
    outbox: Arc<Outbox>,
    /// When the round began.
    now: Instant,
    pieces: Vec<Option<Piece>>,
}

impl Batch {
    /// These pieces were written.
    fn written(&mut self, range: Range<usize>) {
        let mut queue = self.outbox.queue();
        for piece in self.pieces[range].iter_mut().filter_map(Option::take) {
            queue.written(&piece);
        }
        drop(queue);
        self.outbox.was_written();
    }

    /// This piece was refused for its own sake. If it is parked: what, and the entries that hold it.
    fn refused(&mut self, at: usize) -> Option<(Refusals, DeviceRef, Vec<u64>)> {
        let mut piece = self.pieces.get_mut(at)?.take()?;
        let faults = piece.faults().again(self.now);
        *piece.faults_mut() = faults;
        let (device, rows) = (piece.device, piece.rows().to_vec());
        self.outbox.queue().put_back(piece);
        faults.is_parked().then_some((faults, device, rows))
    }

    fn shared(&self, range: Range<usize>) -> Vec<(DeviceRef, SharedPiece)> {
        let queue = self.outbox.queue();
        let tenant = |piece: &Piece| queue.of(piece.device.key).and_then(|of| of.tenant);
        let pieces = self.pieces[range].iter().flatten();
        pieces.map(|piece| (piece.device, SharedPiece::of(&piece.what, tenant(piece)))).collect()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // The last first: each goes before what came after it. Others have the lock in between.
        for piece in self.pieces.drain(..).rev().flatten() {
            self.outbox.queue().put_back(piece);
        }
        self.outbox.queue().is_done();
        self.outbox.was_written();
    }
}

/// A piece, as another thread writes it.
enum SharedPiece {
    Report(Arc<DeviceFindings>),
    Settings(Vec<Arc<SettingWork>>),
    Delivery(Arc<OutgoingWork>, Option<OrganizationId>),
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

/// What was written, as others must hear of it.
#[derive(Default)]
struct WrittenCounts {
    notices: usize,
    notices_dropped: usize,
    calls: usize,
    calls_dropped: usize,
}

/// Why pieces were not written.
enum WriteFailure {
    /// For their own sake, or for that of one of them.
    Refused(String),
    /// A store does not work: it is nobody's fault.
    Store(StoreError),
}

impl From<StoreError> for WriteFailure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Delivery {
    /// Takes up what an earlier process left: whoever asks for a device is shown it from here on.
    pub(crate) async fn take_up_left_work(&self) -> Result<()> {
        let (mut after, mut count) = (0, 0_u64);
        loop {
            let entries = self.env.telemetry.outbox(after, LEFT_AT_ONCE).await.into_hub_error()?;
            let Some(last) = entries.last() else { break };
            after = last.number;
            count += entries.len() as u64;
            for entry in &entries {
                self.take_up(entry).await?;
            }
        }
        if count > 0 {
            tracing::info!(count, "entries of the outbox were left by an earlier process and are written now");
            self.outbox.wake.notify_one();
        }
        Ok(())
    }

    /// Waits until the registry knows everything that devices have found out so far, and no crash can make it learn any of
    /// it again: whoever writes over it from here on has the last word.
    ///
    /// # Errors
    /// [`Error::Busy`]: it takes too long.
    pub(crate) async fn settle_findings(&self, devices: impl Iterator<Item = DeviceKey>) -> Result<()> {
        for device in devices {
            if !self.outbox.written(device).await {
                return Err(Error::Busy);
            }
        }
        self.remove_needless().await.into_hub_error()?;
        self.env.telemetry.sync().await.into_hub_error()
    }

    /// Somebody has written all labels of a device anew: those that are parked are dropped. Durable when this returns.
    pub(crate) async fn drop_parked_labels(&self, permit: &CanWrite<DeviceRef>) -> Result<()> {
        let device = *permit.target();
        if !self.outbox.queue().of(device.key).is_some_and(DeviceQueue::has_parked_labels) {
            return Ok(());
        }
        let number = || self.env.telemetry.outbox_number();
        let mut drop_labels = |_: &dyn Memory| {
            let outbox = self.outbox.queue().drop_parked_labels(device, &number);
            Commit { outbox, ..Commit::default() }
        };
        self.env.telemetry.run(permit, None, self.env.clock.now(), &mut drop_labels).await.into_hub_error()?;
        tracing::info!(device = %device.id, "parked labels are dropped: somebody has written others");
        Ok(())
    }

    async fn take_up(&self, entry: &OutboxEntry) -> Result<()> {
        let taken = self.outbox.queue().take_up(entry, self.env.clock.now());
        let Err(error) = taken else { return Ok(()) };
        self.outbox.queue().unreadable += 1;
        let (number, device) = (entry.number, entry.device.0);
        tracing::error!(%error, number, device, "an entry of the outbox cannot be read and is parked");
        self.env.telemetry.outbox_park(entry.number, &format!("it cannot be read: {error}")).await.into_hub_error()
    }

    /// Writes what the outbox holds, as it comes, until the hub stops; then once more what can be written soon.
    pub(crate) async fn run_outbox(self: Arc<Self>, mut shift: Shift) {
        let mut retry = RETRY_FIRST;
        loop {
            self.env.reaches("outbox");
            if shift.ends() {
                return self.last_work().await;
            }
            let begun = Instant::now();
            let written = self.write_what_waits(begun, || shift.ends()).await;
            shift.well();
            match written {
                Ok(()) => {
                    retry = RETRY_FIRST;
                    let rest = (begun.elapsed() * REST_TIMES).min(REST_MAX);
                    tokio::select! {
                        () = self.rest(rest) => {}
                        () = shift.end() => {}
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the outbox waits for a store");
                    // Whatever waits is durable.
                    if shift.pause(retry).await {
                        return;
                    }
                    retry = (retry * 2).min(RETRY_MAX);
                }
            }
        }
    }

    /// Writes what can be written soon.
    async fn last_work(self: &Arc<Self>) {
        let end = Instant::now() + FINAL_WRITES_TIME;
        let is_over = || Instant::now() >= end;
        while self.outbox.queue().is_ready() && !is_over() {
            if let Err(error) = self.write_what_waits(Instant::now(), is_over).await {
                tracing::warn!(%error, "what waits in the outbox goes on at the next start");
                return;
            }
        }
    }

    /// Waits until there is something to do, and for so long at least, unless somebody waits for it.
    async fn rest(&self, rest: Duration) {
        let outbox = &self.outbox;
        let presses = outbox.queue().presses();
        if !presses {
            let _ = tokio::time::timeout(rest, outbox.hurry.notified()).await;
        }
        let due = {
            let queue = outbox.queue();
            if queue.is_ready() {
                return;
            }
            queue.next_due()
        };
        let ripe = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = outbox.wake.notified() => {}
            () = outbox.hurry.notified() => {}
            () = ripe => {}
        }
    }

    /// Writes everything that waits now, in as many transactions as it takes, unless it is told to stop in between.
    async fn write_what_waits(
        self: &Arc<Self>,
        now: Instant,
        is_over: impl Fn() -> bool,
    ) -> std::result::Result<(), StoreError> {
        let outbox = &self.outbox;
        let _turn = self.writer_turn.lock().await;
        let until = outbox.queue().newest();
        self.remove_needless().await?;
        self.look_up_tenants().await?;
        while !is_over() {
            let pieces = outbox.queue().take(until, now);
            let pieces = pieces.into_iter().map(Some).collect();
            let mut batch = Batch { outbox: Arc::clone(outbox), now, pieces };
            if batch.pieces.is_empty() {
                return Ok(());
            }
            // What is done for a run that a crash took back would be done for nothing.
            self.env.telemetry.sync().await?;
            self.write_batch(&mut batch).await?;
            drop(batch);
            self.remove_needless().await?;
        }
        Ok(())
    }

    /// Finds out which tenants the devices belong to that an earlier process has left something of.
    async fn look_up_tenants(&self) -> std::result::Result<(), StoreError> {
        loop {
            let strangers = self.outbox.queue().strangers(STRANGERS_AT_ONCE);
            if strangers.is_empty() {
                return Ok(());
            }
            let ids: Vec<_> = strangers.iter().map(|device| device.id).collect();
            let placed = self.env.registry.device_placements(&ids).await?;
            let mut queue = self.outbox.queue();
            for (device, lineage) in placed {
                queue.belongs(device.key, lineage.top());
            }
            // The others are gone.
            for device in strangers {
                queue.belongs(device.key, OrganizationId(Uuid::nil()));
            }
        }
    }

    /// Writes a batch: together what was never refused, and each of the others by itself. Where pieces are refused
    /// together they are written by halves, until it is known which of them it is.
    async fn write_batch(self: &Arc<Self>, batch: &mut Batch) -> std::result::Result<(), StoreError> {
        batch.pieces.sort_by_key(|piece| piece.as_ref().is_some_and(|piece| piece.faults().tries > 0));
        let sound = batch.pieces.partition_point(|piece| piece.as_ref().is_some_and(|p| p.faults().tries == 0));
        let mut ranges: Vec<Range<usize>> = (sound..batch.pieces.len()).rev().map(|at| at..at + 1).collect();
        ranges.push(0..sound);
        while let Some(range) = ranges.pop() {
            if range.is_empty() {
                continue;
            }
            let kept = self.write_pieces(batch.shared(range.clone())).await;
            let pieces = batch.pieces[range.clone()].iter().flatten();
            for piece in pieces.filter(|piece| matches!(piece.what, PieceKind::Report(_))) {
                // Even if it failed: it may have been done.
                self.caches.device_row_changed(piece.device.id);
            }
            match kept {
                Ok(written) => {
                    batch.written(range);
                    self.was_written(&written);
                }
                Err(WriteFailure::Refused(why)) if range.len() == 1 => {
                    self.was_refused(batch, range.start, &why).await?
                }
                Err(WriteFailure::Refused(_)) => {
                    let middle = range.start + range.len() / 2;
                    ranges.extend([middle..range.end, range.start..middle]);
                }
                Err(WriteFailure::Store(error)) => return Err(error),
            }
        }
        Ok(())
    }

    async fn was_refused(&self, batch: &mut Batch, at: usize, why: &str) -> std::result::Result<(), StoreError> {
        let Some((faults, device, rows)) = batch.refused(at) else { return Ok(()) };
        if faults.tries == PARKED_AFTER {
            metrics::counter!(PARKED_TOTAL).increment(1);
            tracing::error!(device = %device.id, why, "an outbox entry is parked: the registry has refused it again and again");
        }
        for row in rows {
            self.env.telemetry.outbox_park(row, why).await?;
        }
        Ok(())
    }

    fn was_written(&self, written: &WrittenCounts) {
        if written.notices > 0 {
            self.notices_were_put(written.notices_dropped);
        }
        if written.calls > 0 {
            self.calls_were_put(written.calls_dropped);
        }
    }

    /// Removes entries of the store whose work is done; of those that others remove, it waits until they are on their way.
    async fn remove_needless(&self) -> std::result::Result<(), StoreError> {
        let _removing = self.removing.lock().await;
        let needless = std::mem::take(&mut self.outbox.queue().needless);
        let removed = self.env.telemetry.outbox_done(&needless).await;
        if removed.is_err() {
            self.outbox.queue().needless.extend(needless);
        }
        removed
    }

    /// Writes pieces in one transaction, on a thread that may block: the others serve calls.
    async fn write_pieces(
        self: &Arc<Self>,
        pieces: Vec<(DeviceRef, SharedPiece)>,
    ) -> std::result::Result<WrittenCounts, WriteFailure> {
        let (delivery, runtime) = (Arc::clone(self), Handle::current());
        let kept = tokio::task::spawn_blocking(move || {
            runtime.block_on(guarded("outbox", delivery.write_in_one_transaction(&pieces)))
        });
        let failed = match kept.await.map_err(StoreError::unavailable)? {
            Some(Ok(written)) => return Ok(written),
            Some(Err(error)) if error.is_refusal() => why(&error),
            Some(Err(error)) => return Err(WriteFailure::Store(error)),
            None => "its work panics".to_owned(),
        };
        // A registry that keeps nothing of anybody's is not to be blamed on what it was given.
        self.env.registry.healthy().await?;
        Err(WriteFailure::Refused(failed))
    }

    async fn write_in_one_transaction(
        &self,
        pieces: &[(DeviceRef, SharedPiece)],
    ) -> std::result::Result<WrittenCounts, StoreError> {
        let (mut findings, mut written, mut kinds) = (Findings::default(), WrittenCounts::default(), Vec::new());
        for (device, piece) in pieces {
            let device = *device;
            match piece {
                SharedPiece::Report(found) => {
                    self.env.reaches("outbox_report");
                    let permit = access::system(device, "the device's design reports to the registry");
                    findings.reports.push((permit, &found.report, found.at));
                }
                SharedPiece::Settings(settings) => {
                    self.env.reaches("outbox_settings");
                    findings.settings.extend(settings.iter().map(|setting| setting_write(device, setting)));
                }
                SharedPiece::Delivery(outgoing, tenant) => {
                    self.env.reaches("outbox_delivery");
                    let is_call = matches!(**outgoing, OutgoingWork::Call(..));
                    let (count, dropped) = written.of(is_call);
                    *count += 1;
                    let asked = match &**outgoing {
                        OutgoingWork::Notice(notice, ordinal) => device_notices::delivery_of(notice, device, *ordinal),
                        OutgoingWork::Call(call, ordinal) => calls::delivery_of(call, device, *tenant, *ordinal),
                    };
                    match asked {
                        Some(asked) => {
                            findings.deliveries.push(asked);
                            kinds.push(is_call);
                        }
                        None => *dropped += 1,
                    }
                }
            }
        }
        let left_out = self.env.registry.findings_write(&findings, self.env.clock.now()).await?;
        for is_call in left_out.into_iter().filter_map(|at| kinds.get(at)) {
            *written.of(*is_call).1 += 1;
        }
        Ok(written)
    }
}

impl WrittenCounts {
    /// Of calls, or of notices: how many there were, and how many of them were dropped.
    fn of(&mut self, calls: bool) -> (&mut usize, &mut usize) {
        match calls {
            true => (&mut self.calls, &mut self.calls_dropped),
            false => (&mut self.notices, &mut self.notices_dropped),
        }
    }
}

fn setting_write(device: DeviceRef, setting: &SettingWork) -> (CanWrite<DeviceRef>, SettingWrite) {
    let permit = match setting.by {
        Some(user) => access::accepted(user, device),
        None => access::device(device),
    };
    let value = setting.value.as_ref().map(|text| RawJson::trusted(text.clone().into()));
    (permit, SettingWrite { id: setting.id, name: setting.name.clone(), value, at: setting.id.minted_at() })
}

/// Why something was refused, with the cause.
fn why(error: &StoreError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    }
}

#[cfg(test)]
impl Delivery {
    /// What the worker does when everything is due; what it removes is gone when this returns.
    pub(crate) async fn work_off_now(self: &Arc<Self>) -> std::result::Result<(), StoreError> {
        static CALLS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
        let calls = CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let later = Instant::now() + 2 * crate::outbox::device_queue::PARKED_PAUSE_MAX * calls;
        self.write_what_waits(later, || false).await?;
        self.env.telemetry.sync().await
    }
}
