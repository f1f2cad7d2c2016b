//! Writes the outbox's pending entries into the registry.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isobar_model::access::{self, CanWrite};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{AlarmId, DeviceId, DeviceKey, DeviceRef};
use isobar_model::json::RawJson;
use isobar_store::error::StoreError;
use isobar_store::registry::{DeviceReport, Findings, SettingWrite};
use isobar_store::telemetry::{Commit, TURNS_MAX};
use tokio::runtime::Handle;

use super::alarm_changes::ChangedAlarm;
use super::{Delivery, calls, device_notices};
use crate::outbox::work::{OutgoingWork, SettingWork};
use crate::outbox::{OutboxBatch, SharedPiece};
use crate::supervisor::{Shift, guarded};

/// First pause after a store has failed; it doubles up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// Longest pause after a store has failed.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Rest of the worker after a round, as a multiple of the round's duration, so that newer states of a device replace
/// older ones before they are written, and the registry is free for others. The rest ends after [`REST_MAX`], and at
/// once if a caller waits for the outbox or many entries are pending.
const REST_TIMES: u32 = 9;
const REST_MAX: Duration = Duration::from_secs(1);
/// Time for writing entries at a stop. The remaining ones are durable, and are written after the next start.
const FINAL_WRITES_TIME: Duration = Duration::from_secs(2);

const PARKED_TOTAL: &str = "isobar_outbox_parked_total";

/// Counts the notices and calls that were written and dropped, for the workers that deliver them.
#[derive(Default)]
struct WrittenCounts {
    notices: usize,
    notices_dropped: usize,
    calls: usize,
    calls_dropped: usize,
}

/// Explains why pieces were not written.
enum WriteFailure {
    /// The registry refuses one of them, or all.
    Refused(String),
    /// Another process has taken over the work of these devices.
    Overtaken(Vec<DeviceKey>),
    /// A store has failed, whatever the pieces are.
    Store(StoreError),
}

impl From<StoreError> for WriteFailure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Delivery {
    /// Drops a device's parked labels that `is_dropped` selects, because a caller has written others. Durable on
    /// return.
    pub(crate) async fn drop_parked_labels(
        &self,
        permit: &CanWrite<DeviceRef>,
        is_dropped: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<()> {
        let device = *permit.target();
        if !self.outbox.has_parked_labels(device.key) {
            return Ok(());
        }
        self.commit_dropped_labels(permit, is_dropped).await?;
        tracing::info!(device = %device.id, "parked labels are dropped: somebody has written others");
        Ok(())
    }

    async fn commit_dropped_labels(
        &self,
        permit: &CanWrite<DeviceRef>,
        is_dropped: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<()> {
        let store = self.env.telemetry();
        let number = || store.outbox_number();
        for _ in 0..TURNS_MAX {
            let mut turn = store.turn(permit).await?;
            let commit = |outbox| turn.commit(Commit { outbox, ..Commit::default() });
            match self.outbox.drop_parked_labels(*permit.target(), is_dropped, &number, commit) {
                Err(StoreError::Conflict) => {}
                committed => {
                    drop(turn);
                    match committed?.durable.wait().await {
                        Err(StoreError::Conflict) => {}
                        outcome => return Ok(outcome?),
                    }
                }
            }
        }
        Err(Error::Busy)
    }

    /// Writes the outbox as entries arrive, until the hub stops; then writes for a short last time.
    pub(crate) async fn run_outbox(self: Arc<Self>, mut shift: Shift) {
        let mut retry = RETRY_FIRST;
        loop {
            self.env.reaches("outbox");
            if shift.ends() {
                return self.last_work().await;
            }
            let begun = self.env.clock().instant();
            let written = self.write_what_waits(begun, || shift.ends()).await;
            shift.well();
            match written {
                Ok(()) => {
                    retry = RETRY_FIRST;
                    let rest = (self.env.clock().elapsed(begun) * REST_TIMES).min(REST_MAX);
                    tokio::select! {
                        () = self.outbox.until_ready(rest) => {}
                        () = shift.end() => {}
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the outbox waits for a store");
                    // Pending entries are durable.
                    if shift.pause(retry).await {
                        return;
                    }
                    retry = (retry * 2).min(RETRY_MAX);
                }
            }
        }
    }

    /// Writes pending entries until [`FINAL_WRITES_TIME`] has passed.
    async fn last_work(self: &Arc<Self>) {
        let clock = self.env.clock();
        let end = clock.instant() + FINAL_WRITES_TIME;
        let is_over = || clock.instant() >= end;
        while self.outbox.is_ready() && !is_over() {
            if let Err(error) = self.write_what_waits(clock.instant(), is_over).await {
                tracing::warn!(%error, "what waits in the outbox goes on at the next start");
                return;
            }
        }
    }

    /// Writes everything that is pending now, in as many transactions as needed, unless `is_over` stops it in between. What
    /// comes meanwhile takes its turn among it: no tenant waits for the backlog of another.
    async fn write_what_waits(
        self: &Arc<Self>,
        now: Instant,
        is_over: impl Fn() -> bool,
    ) -> std::result::Result<(), StoreError> {
        let _writing = self.registry_writing.lock().await;
        let until = self.outbox.newest();
        self.remove_needless().await?;
        while !is_over() {
            self.look_up_tenants().await?;
            let Some(mut batch) = self.outbox.take(now) else { return Ok(()) };
            // Effects of a run that a crash may undo must not be delivered. A store that processes share hands over the work of
            // durable runs only.
            if self.env.telemetry().shared().is_none() {
                self.env.telemetry().sync().await?;
            }
            self.write_batch(&mut batch).await?;
            drop(batch);
            self.remove_needless().await?;
            if !self.outbox.is_ready_until(until) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Looks up the tenants of the devices with entries from an earlier process.
    async fn look_up_tenants(&self) -> std::result::Result<(), StoreError> {
        loop {
            let strangers = self.outbox.strangers();
            if strangers.is_empty() {
                return Ok(());
            }
            let ids: Vec<_> = strangers.iter().map(|device| device.id).collect();
            let placed = self.env.registry().device_placements(&ids).await?;
            let tenants = placed.into_iter().map(|(device, lineage)| (device.key, lineage.top())).collect();
            self.outbox.strangers_belong(&strangers, &tenants);
        }
    }

    /// Writes a batch: pieces that were never refused together, and each of the others by itself. Pieces that are
    /// refused together are split in halves until the refused one is found.
    async fn write_batch(self: &Arc<Self>, batch: &mut OutboxBatch) -> std::result::Result<(), StoreError> {
        let mut ranges = batch.ranges();
        while let Some(range) = ranges.pop() {
            if range.is_empty() {
                continue;
            }
            let pieces = batch.shared(range.clone());
            let reports = pieces.iter().filter(|(_, piece)| matches!(piece, SharedPiece::Report(..)));
            let reported: Vec<DeviceId> = reports.map(|(device, _)| device.id).collect();
            let revisions = match self.env.telemetry().shared() {
                Some(_) => batch.revisions(range.clone()),
                None => Vec::new(),
            };
            let kept = self.write_pieces(pieces, revisions).await;
            // Done even after a failure, because the write may have succeeded.
            reported.into_iter().for_each(|device| self.caches.device_row_changed(device));
            match kept {
                Ok(written) => {
                    batch.written(range);
                    self.was_written(&written);
                }
                Err(WriteFailure::Refused(why)) if range.len() == 1 => self.was_refused(batch, range.start, &why).await,
                Err(WriteFailure::Refused(_)) => {
                    let middle = range.start + range.len() / 2;
                    ranges.extend([middle..range.end, range.start..middle]);
                }
                Err(WriteFailure::Overtaken(devices)) => {
                    tracing::warn!(devices = devices.len(), "another process has taken over work of this one");
                    batch.overtaken(range.clone(), &devices);
                    ranges.push(range);
                }
                Err(WriteFailure::Store(error)) => return Err(error),
            }
        }
        Ok(())
    }

    async fn was_refused(&self, batch: &mut OutboxBatch, at: usize, why: &str) {
        let Some(parked) = batch.refused(at) else { return };
        if parked.is_new {
            metrics::counter!(PARKED_TOTAL).increment(1);
            let device = parked.device.id;
            tracing::error!(%device, why, "an outbox entry is parked: the registry has refused it again and again");
        }
        for row in parked.rows {
            if let Err(error) = self.env.telemetry().outbox_park(parked.device.key, row, why).await {
                // It is parked again after its next refusal.
                tracing::warn!(%error, device = %parked.device.id, "cannot note that an outbox entry is parked");
            }
        }
    }

    fn was_written(&self, written: &WrittenCounts) {
        if written.notices > 0 {
            self.notices_were_put(written.notices_dropped);
        }
        if written.calls > 0 {
            self.calls_were_put(written.calls_dropped);
        }
    }

    /// Removes completed entries from the store; waits for entries that another task is removing.
    pub(super) async fn remove_needless(&self) -> std::result::Result<(), StoreError> {
        let _removing = self.removing.write().await;
        let needless = self.outbox.take_needless();
        match self.env.telemetry().outbox_done(&needless).await {
            Ok(left) => {
                self.outbox.put_back_needless(left);
                Ok(())
            }
            Err(error) => {
                self.outbox.put_back_needless(needless);
                Err(error)
            }
        }
    }

    /// Writes pieces in one transaction, on a thread that may block, because the other threads serve calls.
    async fn write_pieces(
        self: &Arc<Self>,
        pieces: Vec<(DeviceRef, SharedPiece)>,
        revisions: Vec<(DeviceRef, u64)>,
    ) -> std::result::Result<WrittenCounts, WriteFailure> {
        let (delivery, runtime) = (Arc::clone(self), Handle::current());
        let kept = tokio::task::spawn_blocking(move || {
            runtime.block_on(guarded("outbox", delivery.write_in_one_transaction(&pieces, revisions)))
        });
        let failed = match kept.await.map_err(StoreError::unavailable)? {
            Some(Ok(written)) => return Ok(written),
            Some(Err(StoreError::Overtaken(devices))) => return Err(WriteFailure::Overtaken(devices)),
            Some(Err(error)) if error.is_refusal() => error.to_string(),
            Some(Err(error)) => return Err(WriteFailure::Store(error)),
            None => "its work panics".to_owned(),
        };
        // A registry that accepts no writes at all is unhealthy; the pieces are not at fault.
        self.env.registry().healthy().await?;
        Err(WriteFailure::Refused(failed))
    }

    async fn write_in_one_transaction(
        &self,
        pieces: &[(DeviceRef, SharedPiece)],
        revisions: Vec<(DeviceRef, u64)>,
    ) -> std::result::Result<WrittenCounts, StoreError> {
        let (mut findings, mut written, mut kinds) = (Findings::default(), WrittenCounts::default(), Vec::new());
        for (device, piece) in pieces {
            let device = *device;
            match piece {
                SharedPiece::Report(found, part) => {
                    self.env.reaches("outbox_report");
                    let permit = access::system(device, "the device's design reports to the registry");
                    let alarms = found.alarms.iter().skip(part.start).take(part.len());
                    findings.alarms.extend(alarms.map(|alarm| (permit.clone(), alarm)));
                    if part.start > 0 {
                        continue;
                    }
                    let changes = found.alarm_changes.iter();
                    findings.alarm_writes.extend(changes.map(|it| (access::accepted(it.by, device), it.write())));
                    if found.report != DeviceReport::default() {
                        findings.reports.push((permit, &found.report, found.at));
                    }
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
                        OutgoingWork::Notice(notice, ordinal) => {
                            device_notices::delivery_of(notice, device, *tenant, *ordinal)
                        }
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
        let permit = |device| access::system(device, "findings of its runs are written");
        findings.revisions = revisions.into_iter().map(|(device, revision)| (permit(device), revision)).collect();
        let left_out = self.env.registry().findings_write(&findings, self.env.now()).await?;
        self.tell_of_alarms(pieces).await;
        for is_call in left_out.into_iter().filter_map(|at| kinds.get(at)) {
            *written.of(*is_call).1 += 1;
        }
        Ok(written)
    }
}

impl Delivery {
    /// Broadcasts the present state of alarms that were written, if a stream follows.
    async fn tell_of_alarms(&self, pieces: &[(DeviceRef, SharedPiece)]) {
        // Where other nodes serve, the alarms of all come back as changes of the registry.
        if !self.alarm_changes().is_followed() || self.env.config().has_other_nodes {
            return;
        }
        let mut places = HashSet::new();
        for (device, piece) in pieces {
            let SharedPiece::Report(found, part) = piece else { continue };
            let alarms = found.alarms.iter().skip(part.start).take(part.len());
            places.extend(alarms.map(|it| (device.key, &*it.element, &*it.key)));
            places.extend(found.alarm_changes.iter().map(|it| (device.key, &*it.element, &*it.key)));
        }
        if places.is_empty() {
            return;
        }
        match self.env.registry().alarms_at(&places.into_iter().collect::<Vec<_>>()).await {
            Ok(alarms) => {
                for (alarm, lineage) in alarms {
                    self.alarm_changes().tell(|| ChangedAlarm { alarm, lineage });
                }
            }
            // Followers list the alarms again from time to time.
            Err(error) => tracing::warn!(%error, "streams are not told of alarms that have changed"),
        }
    }
}

impl Delivery {
    /// Broadcasts the present state of alarms that some node has changed, if a stream follows.
    pub(crate) async fn tell_of_changed_alarms(&self, ids: &[AlarmId]) -> std::result::Result<(), StoreError> {
        if ids.is_empty() || !self.alarm_changes().is_followed() {
            return Ok(());
        }
        for (alarm, lineage) in self.env.registry().alarms_with(ids).await? {
            self.alarm_changes().tell(|| ChangedAlarm { alarm, lineage });
        }
        Ok(())
    }
}

impl WrittenCounts {
    /// Returns the counters of calls or of notices: written ones and dropped ones.
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

#[cfg(test)]
impl Delivery {
    /// Runs the worker as if every entry were due, and waits until completed entries are removed.
    pub(crate) async fn work_off_now(self: &Arc<Self>) -> std::result::Result<(), StoreError> {
        static CALLS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
        let calls = CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let later = self.env.clock().instant() + 2 * crate::outbox::PARKED_PAUSE_MAX * calls;
        self.write_what_waits(later, || false).await?;
        self.env.telemetry().sync().await
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;

    use super::*;
    use crate::stage::Stage;

    /// Stores each event in a label.
    const LABELS: &str = r#"{
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [
            {"element": "state", "ability": "setValue", "arguments": {"tag": "'n'", "value": "payload"}}]}},
        "state": {"type": "deviceMeta"}
    }"#;

    #[tokio::test]
    async fn stopped_writer_leaves_late_entries_to_the_next_start() {
        let stage = Stage::set().await;
        let device = stage.device(LABELS).await;
        stage.posts(&device, "1").await;
        let is_written = async |stage: &Stage| {
            let permit = access::system(device.reference(), "a test looks at a device").reading();
            stage.hub.0.env.registry().device_fetch(&permit).await.unwrap().unwrap().meta.text() == r#"{"n":1}"#
        };
        {
            let delivery = &stage.hub.0.delivery;
            // Another task writes into the registry for as long as the last work may take.
            let writing = delivery.registry_writing.lock().await;
            let mut last_work = Box::pin(delivery.last_work());
            assert!(poll!(&mut last_work).is_pending());
            stage.clock.pass(FINAL_WRITES_TIME);
            drop(writing);
            last_work.await;
            assert!(delivery.outbox.is_ready() && !is_written(&stage).await);
        }
        let stage = stage.restarts().await;
        stage.hub.0.delivery.last_work().await;
        assert!(!stage.hub.0.delivery.outbox.is_ready() && is_written(&stage).await);
        stage.over().await;
    }
}
