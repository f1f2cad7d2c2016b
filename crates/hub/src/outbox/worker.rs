//! Who carries what waits into the registry.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use isobar_model::access;
use isobar_model::error::Result;
use isobar_model::ids::{DeviceRef, OrganizationId};
use isobar_model::json::RawJson;
use isobar_store::error::StoreError;
use isobar_store::registry::{Findings, SettingWrite};
use isobar_store::telemetry::OutboxEntry;
use tokio::runtime::Handle;
use tokio::time::Instant;
use uuid::Uuid;

use super::Outbox;
use super::device::{Faults, PARKED_AFTER, Piece, What};
use super::work::{Found, Outgoing, SettingWork};
use crate::Hub;
use crate::error::Told as _;
use crate::supervisor::{Shift, guarded};

/// Entries taken up from the store at a time, at a start.
const LEFT_AT_ONCE: usize = 1_000;
/// Devices whose tenants are looked up in one question.
const STRANGERS_AT_ONCE: usize = 1_000;
/// First pause after a store has failed; it doubles up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Longest pause after a store has failed.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// After a pass the worker rests for so many times as long as the pass took, so that the newest state of a device takes the
/// place of older ones, and the registry is there for others; but not for longer than [`REST_MAX`], nor while somebody waits
/// or much does.
const REST_TIMES: u32 = 9;
const REST_MAX: Duration = Duration::from_secs(1);
/// At a stop it is written what can be in this time. The rest is durable, and goes on at the next start.
const LAST_WORK: Duration = Duration::from_secs(2);

const PARKED: &str = "isobar_outbox_parked_total";

/// What the worker has in hand; dropped, what was not written waits again.
struct Flight {
    outbox: Arc<Outbox>,
    /// When the pass began.
    now: Instant,
    pieces: Vec<Option<Piece>>,
}

impl Flight {
    /// These pieces were written.
    fn written(&mut self, range: Range<usize>) {
        let mut waiting = self.outbox.waiting.lock();
        for piece in self.pieces[range].iter_mut().filter_map(Option::take) {
            waiting.written(&piece);
        }
        drop(waiting);
        self.outbox.done.notify_waiters();
    }

    /// This piece was refused for its own sake. If it is parked: what, and the entries that hold it.
    fn refused(&mut self, at: usize) -> Option<(Faults, DeviceRef, Vec<u64>)> {
        let mut piece = self.pieces.get_mut(at)?.take()?;
        let faults = piece.faults().again(self.now);
        *piece.faults_mut() = faults;
        let (device, rows) = (piece.device, piece.rows().to_vec());
        self.outbox.waiting.lock().put_back(piece);
        faults.is_parked().then_some((faults, device, rows))
    }

    fn shared(&self, range: Range<usize>) -> Vec<(DeviceRef, Shared)> {
        let waiting = self.outbox.waiting.lock();
        let tenant = |piece: &Piece| waiting.of(piece.device.key).and_then(|of| of.tenant);
        let pieces = self.pieces[range].iter().flatten();
        pieces.map(|piece| (piece.device, Shared::of(&piece.what, tenant(piece)))).collect()
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // The last first: each goes before what came after it. Others have the lock in between.
        for piece in self.pieces.drain(..).rev().flatten() {
            self.outbox.waiting.lock().put_back(piece);
        }
        self.outbox.waiting.lock().is_done();
        self.outbox.done.notify_waiters();
    }
}

/// A piece, as another thread writes it.
enum Shared {
    Report(Arc<Found>),
    Settings(Vec<Arc<SettingWork>>),
    Delivery(Arc<Outgoing>, Option<OrganizationId>),
}

impl Shared {
    fn of(what: &What, tenant: Option<OrganizationId>) -> Self {
        match what {
            What::Report(report) => Self::Report(Arc::clone(&report.found)),
            What::Settings(settings, _) => {
                Self::Settings(settings.iter().map(|setting| Arc::clone(&setting.what)).collect())
            }
            What::Delivery(delivery) => Self::Delivery(Arc::clone(&delivery.what), tenant),
        }
    }
}

/// What was written, as others must hear of it.
#[derive(Default)]
struct Written {
    notices: usize,
    notices_dropped: usize,
    calls: usize,
    calls_dropped: usize,
}

/// Why pieces were not written.
enum Failed {
    /// For their own sake, or for that of one of them.
    Refused(String),
    /// A store does not work: it is nobody's fault.
    Store(StoreError),
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Hub {
    /// Takes up what an earlier process left: whoever asks for a device is shown it from here on.
    pub(crate) async fn take_up_left_work(&self) -> Result<()> {
        let (mut after, mut count) = (0, 0_u64);
        loop {
            let entries = self.0.telemetry.outbox(after, LEFT_AT_ONCE).await.told()?;
            let Some(last) = entries.last() else { break };
            after = last.number;
            count += entries.len() as u64;
            for entry in &entries {
                self.take_up(entry).await?;
            }
        }
        if count > 0 {
            tracing::info!(count, "entries of the outbox were left by an earlier process and are done now");
            self.0.outbox.wake.notify_one();
        }
        Ok(())
    }

    async fn take_up(&self, entry: &OutboxEntry) -> Result<()> {
        let taken = self.0.outbox.waiting.lock().take_up(entry, self.0.clock.now());
        let Err(error) = taken else { return Ok(()) };
        self.0.outbox.waiting.lock().unreadable += 1;
        let (number, device) = (entry.number, entry.device.0);
        tracing::error!(%error, number, device, "an entry of the outbox cannot be read and is parked");
        self.0.telemetry.outbox_park(entry.number, &format!("it cannot be read: {error}")).await.told()
    }

    /// Does work as it comes.
    pub(crate) async fn run_outbox(self, mut shift: Shift) {
        let mut retry = RETRY_FIRST;
        loop {
            self.reaches("outbox");
            if shift.ends() {
                return self.last_work().await;
            }
            let begun = Instant::now();
            let passed = self.outbox_pass(begun, || shift.ends()).await;
            shift.well();
            match passed {
                Ok(()) => {
                    retry = RETRY_FIRST;
                    let rest = (begun.elapsed() * REST_TIMES).min(REST_MAX);
                    tokio::select! {
                        () = self.outbox_rest(rest) => {}
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
    async fn last_work(&self) {
        let end = Instant::now() + LAST_WORK;
        let is_over = || Instant::now() >= end;
        while self.0.outbox.waiting.lock().is_ready() && !is_over() {
            if let Err(error) = self.outbox_pass(Instant::now(), is_over).await {
                tracing::warn!(%error, "what waits in the outbox goes on at the next start");
                return;
            }
        }
    }

    /// Waits until there is something to do, and for so long at least, unless somebody waits for it.
    async fn outbox_rest(&self, rest: Duration) {
        let outbox = &self.0.outbox;
        let presses = outbox.waiting.lock().presses();
        if !presses {
            let _ = tokio::time::timeout(rest, outbox.hurry.notified()).await;
        }
        let due = {
            let waiting = outbox.waiting.lock();
            if waiting.is_ready() {
                return;
            }
            waiting.next_due()
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
    pub(super) async fn outbox_pass(
        &self,
        now: Instant,
        is_over: impl Fn() -> bool,
    ) -> std::result::Result<(), StoreError> {
        let outbox = &self.0.outbox;
        let _turn = outbox.turn.lock().await;
        let until = outbox.waiting.lock().newest();
        self.remove_needless().await?;
        self.outbox_places().await?;
        while !is_over() {
            let pieces = outbox.waiting.lock().take(until, now);
            let pieces = pieces.into_iter().map(Some).collect();
            let mut flight = Flight { outbox: Arc::clone(outbox), now, pieces };
            if flight.pieces.is_empty() {
                return Ok(());
            }
            // What is done for a run that a crash took back would be done for nothing.
            self.0.telemetry.sync().await?;
            self.outbox_write(&mut flight).await?;
            drop(flight);
            self.remove_needless().await?;
        }
        Ok(())
    }

    /// Finds out whose the devices are that an earlier process has left something of.
    async fn outbox_places(&self) -> std::result::Result<(), StoreError> {
        loop {
            let strangers = self.0.outbox.waiting.lock().strangers(STRANGERS_AT_ONCE);
            if strangers.is_empty() {
                return Ok(());
            }
            let ids: Vec<_> = strangers.iter().map(|device| device.id).collect();
            let placed = self.0.registry.device_placements(&ids).await?;
            let mut waiting = self.0.outbox.waiting.lock();
            for (device, lineage) in placed {
                waiting.belongs(device.key, lineage.top());
            }
            // The others are gone.
            for device in strangers {
                waiting.belongs(device.key, OrganizationId(Uuid::nil()));
            }
        }
    }

    /// Writes what is in hand: together what was never refused, and each of the others by itself. Where pieces are refused
    /// together they are written by halves, until it is known which of them it is.
    async fn outbox_write(&self, flight: &mut Flight) -> std::result::Result<(), StoreError> {
        flight.pieces.sort_by_key(|piece| piece.as_ref().is_some_and(|piece| piece.faults().tries > 0));
        let sound = flight.pieces.partition_point(|piece| piece.as_ref().is_some_and(|p| p.faults().tries == 0));
        let mut ranges: Vec<Range<usize>> = (sound..flight.pieces.len()).rev().map(|at| at..at + 1).collect();
        ranges.push(0..sound);
        while let Some(range) = ranges.pop() {
            if range.is_empty() {
                continue;
            }
            let kept = self.outbox_keep(flight.shared(range.clone())).await;
            let pieces = flight.pieces[range.clone()].iter().flatten();
            for piece in pieces.filter(|piece| matches!(piece.what, What::Report(_))) {
                // Even if it failed: it may have been done.
                self.device_row_changed(piece.device.id);
            }
            match kept {
                Ok(written) => {
                    flight.written(range);
                    self.was_written(&written);
                }
                Err(Failed::Refused(why)) if range.len() == 1 => self.was_refused(flight, range.start, &why).await?,
                Err(Failed::Refused(_)) => {
                    let middle = range.start + range.len() / 2;
                    ranges.extend([middle..range.end, range.start..middle]);
                }
                Err(Failed::Store(error)) => return Err(error),
            }
        }
        Ok(())
    }

    async fn was_refused(&self, flight: &mut Flight, at: usize, why: &str) -> std::result::Result<(), StoreError> {
        let Some((faults, device, rows)) = flight.refused(at) else { return Ok(()) };
        if faults.tries == PARKED_AFTER {
            metrics::counter!(PARKED).increment(1);
            tracing::error!(device = %device.id, why, "what a design found out is refused again and again, and parked");
        }
        for row in rows {
            self.0.telemetry.outbox_park(row, why).await?;
        }
        Ok(())
    }

    fn was_written(&self, written: &Written) {
        if written.notices > 0 {
            self.notices_were_put(written.notices_dropped);
        }
        if written.calls > 0 {
            self.calls_were_put(written.calls_dropped);
        }
    }

    /// Removes entries of the store whose work is done; of those that others remove, it waits until they are on their way.
    pub(super) async fn remove_needless(&self) -> std::result::Result<(), StoreError> {
        let _removing = self.0.outbox.removing.lock().await;
        let needless = std::mem::take(&mut self.0.outbox.waiting.lock().needless);
        let removed = self.0.telemetry.outbox_done(&needless).await;
        if removed.is_err() {
            self.0.outbox.waiting.lock().needless.extend(needless);
        }
        removed
    }

    /// Writes pieces in one transaction, on a thread that may block: the others serve calls.
    async fn outbox_keep(&self, pieces: Vec<(DeviceRef, Shared)>) -> std::result::Result<Written, Failed> {
        let (hub, runtime) = (self.clone(), Handle::current());
        let kept =
            tokio::task::spawn_blocking(move || runtime.block_on(guarded("outbox", hub.outbox_keep_here(&pieces))));
        let failed = match kept.await.map_err(StoreError::unavailable)? {
            Some(Ok(written)) => return Ok(written),
            Some(Err(error)) if error.is_refusal() => why(&error),
            Some(Err(error)) => return Err(Failed::Store(error)),
            None => "its work panics".to_owned(),
        };
        // A registry that keeps nothing of anybody's is not to be blamed on what it was given.
        self.0.registry.healthy().await?;
        Err(Failed::Refused(failed))
    }

    async fn outbox_keep_here(&self, pieces: &[(DeviceRef, Shared)]) -> std::result::Result<Written, StoreError> {
        let (mut findings, mut written, mut kinds) = (Findings::default(), Written::default(), Vec::new());
        for (device, piece) in pieces {
            let device = *device;
            match piece {
                Shared::Report(found) => {
                    self.reaches("outbox_report");
                    let pass = access::system(device, "the device's design reports to the registry");
                    findings.reports.push((pass, &found.report, found.at));
                }
                Shared::Settings(settings) => {
                    self.reaches("outbox_settings");
                    findings.settings.extend(settings.iter().map(|setting| setting_write(device, setting)));
                }
                Shared::Delivery(outgoing, tenant) => {
                    self.reaches("outbox_delivery");
                    let is_call = matches!(**outgoing, Outgoing::Call(..));
                    let (count, dropped) = written.of(is_call);
                    *count += 1;
                    match outgoing.asked(device, *tenant) {
                        Some(asked) => {
                            findings.deliveries.push(asked);
                            kinds.push(is_call);
                        }
                        None => *dropped += 1,
                    }
                }
            }
        }
        let left_out = self.0.registry.findings_write(&findings, self.0.clock.now()).await?;
        for is_call in left_out.into_iter().filter_map(|at| kinds.get(at)) {
            *written.of(*is_call).1 += 1;
        }
        Ok(written)
    }
}

impl Written {
    /// Of calls, or of notices: how many there were, and how many of them were dropped.
    fn of(&mut self, calls: bool) -> (&mut usize, &mut usize) {
        match calls {
            true => (&mut self.calls, &mut self.calls_dropped),
            false => (&mut self.notices, &mut self.notices_dropped),
        }
    }
}

fn setting_write(device: DeviceRef, setting: &SettingWork) -> (access::CanWrite<DeviceRef>, SettingWrite) {
    let pass = match setting.by {
        Some(user) => access::accepted(user, device),
        None => access::device(device),
    };
    let value = setting.value.as_ref().map(|text| RawJson::trusted(text.clone().into()));
    (pass, SettingWrite { id: setting.id, name: setting.name.clone(), value, at: setting.id.minted_at() })
}

/// Why something was refused, with the cause.
fn why(error: &StoreError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    }
}

#[cfg(test)]
impl Hub {
    /// What the worker does when everything is due; what it removes is gone when this returns.
    pub(crate) async fn work_off_now(&self) -> std::result::Result<(), StoreError> {
        static CALLS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
        let calls = CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let later = Instant::now() + 2 * super::device::PARKED_PAUSE_MAX * calls;
        self.outbox_pass(later, || false).await?;
        self.0.telemetry.sync().await
    }
}
