//! What comes due for devices by itself: intervals of their designs, and the look whether they are silent.
//!
//! Every device has a moment in the registry for each interval, and one for the look (contract: The project design).
//! A new device's intervals begin when it is made, a changed design's when it comes into force. An interval keeps its
//! rhythm; moments that were missed while the server stood still are one. Nothing of this is on the main road: a
//! device that talks is looked at once in its time, and found not to be silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use isobar_design::{Effect, Plan};
use isobar_model::access;
use isobar_model::error::Result;
use isobar_model::json::RawJson;
use isobar_model::status::Status;
use isobar_model::time::Timestamp;
use isobar_store::registry::{DueAlarm, ProjectAlarm};

use crate::Hub;
use crate::beside::Occasion;
use crate::entries::DeviceEntry;
use crate::error::Told as _;
use crate::supervisor::{Shift, guarded};

/// How often it is looked for what is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Alarms taken at a time.
const BATCH: usize = 512;
/// Of them, those that run at the same time.
const AT_ONCE: usize = 64;
/// The look whether a device is silent stands under this name, which no element has.
const SILENCE: &str = "";
/// A run on the threads for code is given up for lost after so many seconds.
const CODE_SECONDS: i64 = 300;
/// An alarm whose run panicked is served again after so many seconds.
const PANIC_SECONDS: i64 = 60;

/// The alarms that a design gives every device.
pub(crate) fn alarms_of(plan: &Plan) -> Vec<ProjectAlarm> {
    let intervals = plan.intervals().map(|(element, minutes)| ProjectAlarm { element: element.to_string(), minutes });
    let silence = plan.missing_after_minutes().map(|minutes| ProjectAlarm { element: SILENCE.to_owned(), minutes });
    intervals.chain(silence).collect()
}

/// What becomes of an alarm.
enum Next {
    /// It is due again then.
    At(Timestamp),
    /// Whoever goes on with it says when.
    Elsewhere,
    /// The design no longer has it.
    Never,
}

impl Hub {
    /// Serves what is due, as it comes.
    pub(crate) async fn run_alarms(self, mut shift: Shift) {
        loop {
            self.reaches("alarms");
            let more = self.serve_alarms().await.unwrap_or_else(|error| {
                tracing::warn!(%error, "intervals and the look for silent devices wait for a store");
                false
            });
            shift.well();
            let stops = if more { shift.ends() } else { shift.pause(LOOK_EVERY).await };
            if stops {
                return;
            }
        }
    }

    /// Serves a batch of what is due; whether there may be more.
    async fn serve_alarms(&self) -> Result<bool> {
        let now = self.0.clock.now();
        let due = self.0.registry.alarms_due(now, BATCH).await.told()?;
        let (is_full, failures) = (due.len() == BATCH, AtomicUsize::new(0));
        let failures = &failures;
        let served = futures::stream::iter(due).map(|alarm| async move {
            let next = match guarded("alarm", self.serve_alarm(&alarm, now)).await {
                Some(Ok(next)) => next,
                Some(Err(error)) => {
                    tracing::warn!(%error, device = %alarm.device.id, "an alarm of a device is served later");
                    failures.fetch_add(1, Ordering::Relaxed);
                    // Still due, but behind those that have waited.
                    Next::At(now)
                }
                None => Next::At(now.plus_seconds(PANIC_SECONDS)),
            };
            (alarm.number, next)
        });
        let served: Vec<_> = served.buffer_unordered(AT_ONCE).collect().await;
        let mut again = Vec::with_capacity(served.len());
        for (number, next) in served {
            match next {
                Next::At(moment) => again.push((number, moment)),
                Next::Elsewhere => {}
                Next::Never => self.0.registry.alarm_remove(number).await.told()?,
            }
        }
        self.0.registry.alarms_set(&again).await.told()?;
        Ok(is_full && failures.load(Ordering::Relaxed) == 0)
    }

    async fn serve_alarm(&self, alarm: &DueAlarm, now: Timestamp) -> Result<Next> {
        self.reaches("alarm");
        if alarm.element == SILENCE
            && let Some(cached) = self.cached_device(alarm.device.id)
            && let Some(minutes) = cached.plan.plan.missing_after_minutes()
        {
            // Nearly all devices talk, and these cost no more than this.
            let end = end_of_silence(&cached, alarm.heard_at, minutes);
            if end > now {
                return Ok(Next::At(end));
            }
        }
        let Some(entry) = self.device_entry(alarm.device.id).await? else { return Ok(Next::Never) };
        if alarm.element == SILENCE {
            return self.look_for_silence(&entry, alarm, now).await;
        }
        let minutes = entry.plan.plan.intervals().find(|(element, _)| ***element == alarm.element);
        let Some((_, minutes)) = minutes else { return Ok(Next::Never) };
        let next = following(alarm.due_at, minutes, now);
        let occasion = Occasion::Elapsed { element: alarm.element.clone() };
        // A moment's text needs no escapes.
        let payload = RawJson::trusted(format!(r#"{{"elapsedAt":"{now}"}}"#).into());
        if !entry.plan.plan.runs_code() {
            self.beside(alarm.device, occasion, payload).await?;
            return Ok(Next::At(next));
        }
        // Code takes its time, and its project's turn: the others do not wait for it.
        // Until then it is put off; the run says when it is due again, which may be at once.
        self.0.registry.alarms_set(&[(alarm.number, now.plus_seconds(CODE_SECONDS))]).await.told()?;
        let (hub, alarm) = (self.clone(), alarm.clone());
        self.go_beside("alarm", async move {
            let ran = hub.beside(alarm.device, occasion, payload).await;
            hub.set_elapsed(&alarm, ran.map(|()| next)).await;
        });
        Ok(Next::Elsewhere)
    }

    async fn set_elapsed(&self, alarm: &DueAlarm, next: Result<Timestamp>) {
        let next = next.unwrap_or_else(|error| {
            tracing::debug!(%error, device = %alarm.device.id, "an interval of a device elapses later");
            self.0.clock.now()
        });
        if let Err(error) = self.0.registry.alarms_set(&[(alarm.number, next)]).await {
            tracing::warn!(%error, device = %alarm.device.id, "an interval of a device elapses once more");
        }
    }

    /// Looks whether a device is silent; if it is, it is missing.
    async fn look_for_silence(&self, entry: &Arc<DeviceEntry>, alarm: &DueAlarm, now: Timestamp) -> Result<Next> {
        let Some(minutes) = entry.plan.plan.missing_after_minutes() else { return Ok(Next::Never) };
        let end = end_of_silence(entry, alarm.heard_at, minutes);
        if end > now {
            return Ok(Next::At(end));
        }
        let pass = access::system(entry.device, "a device is silent for too long");
        // What ran by an earlier entry than this one may not be written yet. Memory is asked first: it forgets what the
        // registry has.
        let unwritten = self.0.activity.of_device(entry.device.key);
        let Some(device) = self.0.registry.device_fetch(&pass.reading()).await.told()? else { return Ok(Next::Never) };
        let heard_at = device.last_active.max(unwritten).unwrap_or(device.created_at);
        let silent = self.side_runs(&pass, entry, |runs| {
            // In its turn: an event that came in the meantime is known here.
            let is_silent = end_of_silence(entry, heard_at, minutes) <= now;
            if is_silent && runs.view().status != Status::Missing {
                let id = runs.mint();
                runs.effects(id, vec![Effect::SetStatus(Status::Missing)]);
            }
            is_silent
        });
        match silent.await? {
            // A missing device is looked at again after as long: when it talks in between and stops, that is its end.
            Some(true) => Ok(Next::At(following(alarm.due_at, minutes, now))),
            Some(false) => Ok(Next::At(end_of_silence(entry, heard_at, minutes))),
            None => Ok(Next::At(now)),
        }
    }
}

/// When the silence of a device has lasted too long, as far as it is known now.
fn end_of_silence(entry: &DeviceEntry, heard_at: Timestamp, minutes: u32) -> Timestamp {
    let known = entry.heard.load(Ordering::Relaxed).max(entry.active.load(Ordering::Relaxed));
    heard_at.max(Timestamp::from_millis(known)).plus_seconds(i64::from(minutes) * 60)
}

/// The first moment after `now` in the rhythm that `due` is of.
fn following(due: Timestamp, minutes: u32, now: Timestamp) -> Timestamp {
    let step = i64::from(minutes.max(1)) * 60_000;
    let missed = (now.millis() - due.millis()).max(0) / step;
    Timestamp::from_millis(due.millis() + (missed + 1) * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_that_were_missed_are_one() {
        let at = Timestamp::from_millis;
        for (due, now, next) in
            [(0, 0, 300_000), (0, 299_999, 300_000), (0, 300_000, 600_000), (7, 1_000_000, 1_200_007)]
        {
            assert_eq!(following(at(due), 5, at(now)), at(next), "{due} {now}");
        }
        assert_eq!(following(at(5), 1, at(3)), at(60_005));
    }
}
