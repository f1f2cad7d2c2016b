//! The scheduler: what comes due for devices by itself, intervals of their designs, and the look whether they are silent.
//!
//! Every device has a moment in the registry for each interval, and one for the look (contract: The project design).
//! A new device's intervals begin when it is made, a changed design's when it comes into force. An interval keeps its
//! rhythm; moments that were missed while the server stood still are one. Nothing of this is on the main road: a
//! device that talks is looked at once in its time, and found not to be silent.
//!
//! What cannot be served now is put off, each time for longer: however much of it there is, it is no loop. What a design has
//! code for runs beside the worker, a bounded number of a tenant's.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt as _;
use isobar_design::{Effect, Plan};
use isobar_model::access;
use isobar_model::error::Result;
use isobar_model::json::RawJson;
use isobar_model::status::Status;
use isobar_model::time::Timestamp;
use isobar_store::registry::{DueAlarm, ProjectAlarm};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::Jobs;
use crate::cache::entries::DeviceEntry;
use crate::ingest::Occasion;
use crate::ingest::design_runs::RunsEstimate;
use crate::supervisor::{Shift, guarded, spawn_guarded_in};
use crate::support::pace::Pace;
use crate::support::scope_guard::ScopeGuard;
use crate::support::tenant_shares::{TenantShare, TenantShares};

/// How often the registry is asked for what is due.
const ALARM_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Alarms taken at a time.
const ALARMS_BATCH: usize = 512;
/// Of them, those that run at the same time.
const ALARMS_AT_ONCE: usize = 64;
/// Alarms whose code runs or waits for its turn, and those of one tenant: beside the events that its code has to run on.
const CODE_ALARMS_MAX: usize = 512;
const CODE_ALARMS_OF_ONE_MAX: usize = 64;
/// The look whether a device is silent stands under this name, which no element has.
const SILENCE: &str = "";
/// A run on the threads for code is given up for lost after so many seconds.
const CODE_SECONDS: i64 = 300;
/// An alarm whose run panicked is served again after so many seconds.
const PANIC_SECONDS: i64 = 60;
/// An alarm that could not be served is put off, each time for twice as long, so many times; then for as long as before.
const PAUSES_GROW: u32 = 6;
/// A clock that was set back by less disturbs nothing.
const SET_BACK_SECONDS_MIN: i64 = 1;
/// No delivery that failed waits longer for its next try.
const DELIVERY_AHEAD_SECONDS_MAX: i64 = 2 * 3600;
/// Alarms of which it is remembered how often they were put off.
const PUT_OFF_MAX: usize = 100_000;

/// The alarms that a design gives every device.
pub(crate) fn alarms_of(plan: &Plan) -> Vec<ProjectAlarm> {
    let intervals = plan.intervals().map(|(element, minutes)| ProjectAlarm { element: element.to_string(), minutes });
    let silence = plan.missing_after_minutes().map(|minutes| ProjectAlarm { element: SILENCE.to_owned(), minutes });
    intervals.chain(silence).collect()
}

/// What the scheduler knows of alarms beside the registry.
pub(crate) struct SchedulerState {
    code: Arc<TenantShares>,
    alarms: Mutex<AlarmStates>,
    /// How often it was written down when alarms are due again.
    #[cfg(test)]
    writes: std::sync::atomic::AtomicU32,
}

#[derive(Default)]
struct AlarmStates {
    /// When it was looked for what is due.
    looked_at: Option<Timestamp>,
    /// Those whose code runs, or waits for its turn.
    under_way: HashSet<u64>,
    /// When those are due again that were served since the last writing: by their code, or by runs that were committed though
    /// the writing failed.
    ended: HashMap<u64, Timestamp>,
    put_off: HashMap<u64, PutOff>,
}

/// An alarm that could not be served when it was due.
#[derive(Clone, Copy)]
struct PutOff {
    /// When it was.
    due_at: Timestamp,
    /// Until when it waits: if the registry says another moment, somebody else has set it.
    until: Timestamp,
    times: u32,
}

impl SchedulerState {
    pub(crate) fn new() -> Self {
        Self {
            code: TenantShares::new(CODE_ALARMS_MAX, CODE_ALARMS_OF_ONE_MAX),
            alarms: Mutex::default(),
            #[cfg(test)]
            writes: Default::default(),
        }
    }

    /// Since when an alarm is due; it may have been put off since, which does not change its rhythm.
    fn due_at(&self, alarm: &DueAlarm) -> Timestamp {
        let state = self.alarms.lock();
        let put_off = state.put_off.get(&alarm.number).filter(|put_off| put_off.until == alarm.due_at);
        put_off.map_or(alarm.due_at, |put_off| put_off.due_at)
    }
}

/// What becomes of an alarm.
enum AlarmOutcome {
    /// It is due again then.
    At(Timestamp),
    /// It could not be served: it is due again later, each time it happens later still.
    PutOff,
    /// Its code is to run, in a place of its tenant's.
    Code { minutes: u32, place: TenantShare },
    /// The design no longer has it.
    Never,
}

/// A batch that was looked at.
#[derive(Default)]
struct BatchResult {
    due: Vec<(u64, Timestamp)>,
    gone: Vec<u64>,
    code: Vec<Elapsing>,
}

/// An interval whose code is to run.
struct Elapsing {
    alarm: DueAlarm,
    minutes: u32,
    _place: TenantShare,
    /// Ends with it that it is under way; none before it is.
    _under_way: Option<ScopeGuard<Box<dyn FnOnce() + Send>>>,
}

impl Jobs {
    /// Serves what is due, as it comes.
    pub(crate) async fn run_scheduler(self: Arc<Self>, mut shift: Shift) {
        let mut runs = JoinSet::new();
        loop {
            self.env.reaches("alarms");
            let more = self.serve_alarms(&mut runs).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "intervals and the look for silent devices wait for a store");
                false
            });
            shift.well();
            let stops = if more { shift.ends() } else { shift.pause(ALARM_LOOK_EVERY).await };
            if stops {
                break;
            }
        }
        // What has not ended by now is due again after the next start.
        runs.shutdown().await;
        if let Err(error) = self.write_alarms(BatchResult::default()).await {
            tracing::warn!(%error, "intervals whose code has just run elapse once more");
        }
    }

    /// Serves a batch of what is due; whether there may be more. All that becomes of it is one write, together with what
    /// has become of earlier ones whose code has ended.
    async fn serve_alarms(self: &Arc<Self>, runs: &mut JoinSet<()>) -> Result<bool> {
        while runs.try_join_next().is_some() {}
        let now = self.env.now();
        self.notice_clock_set_back(now).await?;
        let mut due = self.env.registry().alarms_due(now, ALARMS_BATCH).await?;
        let (is_full, pace) = (due.len() == ALARMS_BATCH, Pace::default());
        let pace = &pace;
        {
            // The registry has not been told yet of what was served.
            let state = self.scheduler.alarms.lock();
            due.retain(|alarm| state.ended.get(&alarm.number).is_none_or(|next| *next <= now));
        }
        let served = futures::stream::iter(due).map(|alarm| async move {
            let next = match guarded("alarm", self.serve_alarm(&alarm, now, pace)).await {
                Some(Ok(next)) => next,
                Some(Err(error)) => {
                    tracing::warn!(%error, device = %alarm.device.id, "an alarm of a device is served later");
                    AlarmOutcome::PutOff
                }
                None => AlarmOutcome::At(now.plus_seconds(PANIC_SECONDS)),
            };
            (alarm, next)
        });
        let served: Vec<_> = served.buffer_unordered(ALARMS_AT_ONCE).collect().await;
        let mut result = BatchResult::default();
        for (alarm, next) in served {
            let number = alarm.number;
            match next {
                AlarmOutcome::At(moment) => {
                    self.scheduler.alarms.lock().put_off.remove(&number);
                    result.due.push((number, moment));
                }
                AlarmOutcome::PutOff => result.due.push((number, self.put_off(&alarm, now))),
                AlarmOutcome::Never => result.gone.push(number),
                AlarmOutcome::Code { minutes, place } => {
                    result.code.push(Elapsing { alarm, minutes, _place: place, _under_way: None });
                }
            }
        }
        for elapsing in self.write_alarms(result).await? {
            spawn_guarded_in(runs, "alarm", Arc::clone(self).elapses(elapsing));
        }
        Ok(is_full)
    }

    /// Where the clock is behind the look before this one, or there was none, it may have been ahead when moments were remembered.
    async fn notice_clock_set_back(&self, now: Timestamp) -> Result<()> {
        let before = self.scheduler.alarms.lock().looked_at;
        if before.is_none_or(|before| now.plus_seconds(SET_BACK_SECONDS_MIN) < before) {
            let latest = now.plus_seconds(DELIVERY_AHEAD_SECONDS_MAX);
            self.env.registry().clock_set_back(now, latest).await?;
        }
        self.scheduler.alarms.lock().looked_at = Some(now);
        Ok(())
    }

    /// Writes down when alarms are due again, those whose code has ended included. Those whose code is to run are put off
    /// for as long as that may take, and given back.
    async fn write_alarms(self: &Arc<Self>, result: BatchResult) -> Result<Vec<Elapsing>> {
        let BatchResult { due: served, gone, mut code } = result;
        let lost_at = self.env.now().plus_seconds(CODE_SECONDS);
        let ended = {
            // What was served is not served again, should the writing fail.
            let mut state = self.scheduler.alarms.lock();
            state.ended.extend(served);
            state.ended.clone()
        };
        let due = ended.iter().map(|(number, moment)| (*number, *moment));
        let due: Vec<_> = due.chain(code.iter().map(|elapsing| (elapsing.alarm.number, lost_at))).collect();
        self.env.registry().alarms_set(&due, &gone).await?;
        #[cfg(test)]
        self.scheduler.writes.fetch_add(1, Ordering::Relaxed);
        let mut state = self.scheduler.alarms.lock();
        state.ended.retain(|number, moment| ended.get(number) != Some(moment));
        for elapsing in &mut code {
            let (jobs, number) = (Arc::clone(self), elapsing.alarm.number);
            state.under_way.insert(number);
            elapsing._under_way = Some(ScopeGuard::new(Box::new(move || {
                jobs.scheduler.alarms.lock().under_way.remove(&number);
            })));
        }
        drop(state);
        Ok(code)
    }

    /// Until when an alarm waits that could not be served.
    fn put_off(&self, alarm: &DueAlarm, now: Timestamp) -> Timestamp {
        let mut state = self.scheduler.alarms.lock();
        let before = state.put_off.get(&alarm.number).filter(|it| it.until == alarm.due_at).copied();
        let times = before.map_or(0, |it| it.times).saturating_add(1);
        let until = self.env.due_again(times.min(PAUSES_GROW), now);
        if state.put_off.len() >= PUT_OFF_MAX {
            state.put_off.clear();
        }
        let due_at = before.map_or(alarm.due_at, |it| it.due_at);
        state.put_off.insert(alarm.number, PutOff { due_at, until, times });
        until
    }

    async fn serve_alarm(self: &Arc<Self>, alarm: &DueAlarm, now: Timestamp, pace: &Pace) -> Result<AlarmOutcome> {
        self.env.reaches("alarm");
        if alarm.element == SILENCE
            && let Some(cached) = self.caches.cached_device(alarm.device.id)
            && let Some(minutes) = cached.plan().and_then(|plan| plan.missing_after_minutes())
        {
            // Nearly all devices talk, and these cost no more than this.
            let end = end_of_silence(&cached, alarm.heard_at, minutes, now);
            if end > now {
                return Ok(AlarmOutcome::At(end));
            }
        }
        let Some(entry) = self.caches.device_entry(alarm.device.id).await? else { return Ok(AlarmOutcome::Never) };
        if alarm.element == SILENCE {
            return self.look_for_silence(&entry, alarm, now).await;
        }
        let plan = self.caches.plan_of_device(&entry).await?;
        let minutes = plan.intervals().find(|(element, _)| ***element == alarm.element);
        let Some((_, minutes)) = minutes else { return Ok(AlarmOutcome::Never) };
        let runs_code = plan.runs_code();
        drop(plan);
        if runs_code {
            // Code takes its time, and its project's turn: the others do not wait for it.
            if self.scheduler.alarms.lock().under_way.contains(&alarm.number) {
                return Ok(AlarmOutcome::At(now.plus_seconds(CODE_SECONDS)));
            }
            let place = self.scheduler.code.take(entry.lineage.top(), 1);
            return Ok(place.map_or(AlarmOutcome::PutOff, |place| AlarmOutcome::Code { minutes, place }));
        }
        pace.next().await;
        self.elapse(alarm, now).await?;
        Ok(AlarmOutcome::At(following(self.scheduler.due_at(alarm), minutes, now)))
    }

    async fn elapse(self: &Arc<Self>, alarm: &DueAlarm, now: Timestamp) -> Result<()> {
        let occasion = Occasion::Elapsed { element: alarm.element.clone() };
        // A moment's text needs no escapes.
        let payload = RawJson::trusted(format!(r#"{{"elapsedAt":"{now}"}}"#).into());
        self.ingest.run_design(alarm.device, occasion, payload).await
    }

    /// Lets an interval elapse whose design has code. When it is due again is written with the next batch; should that be
    /// lost, it is due after [`CODE_SECONDS`].
    async fn elapses(self: Arc<Self>, elapsing: Elapsing) {
        let alarm = &elapsing.alarm;
        let number = alarm.number;
        let now = self.env.now();
        let next = match guarded("alarm", self.elapse(alarm, now)).await {
            Some(Ok(())) => {
                let next = following(self.scheduler.due_at(alarm), elapsing.minutes, self.env.now().min(now));
                self.scheduler.alarms.lock().put_off.remove(&number);
                next
            }
            Some(Err(error)) => {
                tracing::debug!(%error, device = %alarm.device.id, "an interval of a device elapses later");
                self.put_off(alarm, self.env.now())
            }
            None => self.env.now().plus_seconds(PANIC_SECONDS),
        };
        self.scheduler.alarms.lock().ended.insert(number, next);
    }

    /// Looks whether a device is silent; if it is, it is missing.
    async fn look_for_silence(
        &self,
        entry: &Arc<DeviceEntry>,
        alarm: &DueAlarm,
        now: Timestamp,
    ) -> Result<AlarmOutcome> {
        let plan = self.caches.plan_of_device(entry).await?;
        let Some(minutes) = plan.missing_after_minutes() else { return Ok(AlarmOutcome::Never) };
        drop(plan);
        let end = end_of_silence(entry, alarm.heard_at, minutes, now);
        if end > now {
            return Ok(AlarmOutcome::At(end));
        }
        let permit = access::system(entry.device, "a device is silent for too long").charged_to(&entry.lineage);
        // What ran by an earlier entry than this one may not be written yet. Memory is asked first: it forgets what the
        // registry has.
        let unwritten = self.activity.of_device(entry.device.key);
        let Some(device) = self.env.registry().device_fetch(&permit.reading()).await? else {
            return Ok(AlarmOutcome::Never);
        };
        let heard_at = device.last_active.max(unwritten).unwrap_or(device.created_at);
        let silent = self.ingest.design_runs(&permit, entry, RunsEstimate::default(), |runs| {
            // In its turn: an event that came in the meantime is known here.
            let is_silent = end_of_silence(entry, heard_at, minutes, now) <= now;
            if is_silent && runs.view().status != Status::Missing {
                let id = runs.mint();
                runs.effects(id, vec![Effect::SetStatus(Status::Missing)]);
            }
            is_silent
        });
        match silent.await? {
            // A missing device is looked at again after as long: when it talks in between and stops, that is its end.
            Some(true) => Ok(AlarmOutcome::At(following(alarm.due_at, minutes, now))),
            Some(false) => Ok(AlarmOutcome::At(end_of_silence(entry, heard_at, minutes, now))),
            None => Ok(AlarmOutcome::PutOff),
        }
    }
}

/// When the silence of a device has lasted too long, as far as it is known now. What a clock that was ahead of now has heard was
/// heard by now: else the device would not be silent before the clock is there again.
fn end_of_silence(entry: &DeviceEntry, heard_at: Timestamp, minutes: u32, now: Timestamp) -> Timestamp {
    let known = [&entry.heard, &entry.active].map(|known| known.fetch_min(now.millis(), Ordering::Relaxed));
    let known = Timestamp::from_millis(known[0].max(known[1]));
    heard_at.max(known).min(now).plus_seconds(i64::from(minutes) * 60)
}

/// The first moment after `now` in the rhythm that `due` is of.
fn following(due: Timestamp, minutes: u32, now: Timestamp) -> Timestamp {
    let step = i64::from(minutes.max(1)) * 60_000;
    let missed = (now.millis() - due.millis()).div_euclid(step);
    Timestamp::from_millis(due.millis() + (missed + 1) * step)
}

#[cfg(test)]
mod tests;
