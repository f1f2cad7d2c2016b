//! The scheduler: serves the intervals of designs when they elapse, and checks if devices are silent.
//!
//! Every device has a timer in the registry for each interval, and one for the check of its silence (contract: The
//! project design). The intervals of a new device begin when it is created, those of a changed design when it comes
//! into force. An interval keeps its rhythm; moments missed while the server was stopped count as one. Events do no
//! work for timers: a device that sends events is checked once in its time, and found not to be silent.
//!
//! A timer that cannot be served now is postponed, longer each time, so that any number of them makes no busy loop.
//! Timers whose design has code run next to the worker, a bounded number for each tenant.

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
use isobar_store::registry::{DueTimer, ProjectTimer};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::Jobs;
use crate::cache::entries::DeviceEntry;
use crate::designs::Admission;
use crate::ingest::design_runs::RunsEstimate;
use crate::ingest::{LinePlace, Occasion};
use crate::supervisor::{Shift, guarded, spawn_guarded_in};
use crate::support::pace::Pace;
use crate::support::scope_guard::ScopeGuard;
use isobar_quota::{TenantShare, TenantShares, limits};

/// Interval between queries for timers that are due.
const TIMER_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Timers taken at a time.
const TIMERS_BATCH: usize = 512;
/// Timers that run at the same time.
const TIMERS_AT_ONCE: usize = 64;
/// Name of the timer that checks for silence; no element has this name.
const SILENCE: &str = "";
/// A long run is given up for lost after so many seconds.
const CODE_SECONDS: i64 = 300;
/// Time in seconds for which one process serves a batch alone: if it is gone, another one serves the timers after that.
const TIMER_CLAIM_SECONDS: i64 = 10;
/// Delay in seconds before a timer whose run panicked is served again.
const PANIC_SECONDS: i64 = 60;
/// Number of times that the delay of a timer that could not be served is doubled; after that it stays the same.
const PAUSES_GROW: u32 = 6;
/// Smallest step in seconds by which a clock that was set back is noticed.
const SET_BACK_SECONDS_MIN: i64 = 1;
/// Longest delay in seconds of a failed delivery.
const DELIVERY_AHEAD_SECONDS_MAX: i64 = 2 * 3600;
/// Timers whose postponements are counted.
const PUT_OFF_MAX: usize = 100_000;

/// Returns the timers that a design gives every device.
pub(crate) fn timers_of(plan: &Plan) -> Vec<ProjectTimer> {
    let intervals = plan.intervals().map(|(element, minutes)| ProjectTimer { element: element.to_string(), minutes });
    let silence = plan.missing_after_minutes().map(|minutes| ProjectTimer { element: SILENCE.to_owned(), minutes });
    intervals.chain(silence).collect()
}

/// State of the scheduler in addition to the registry.
pub(crate) struct SchedulerState {
    code: Arc<TenantShares>,
    timers: Mutex<TimerStates>,
    /// Number of writes of due times.
    #[cfg(test)]
    writes: std::sync::atomic::AtomicU32,
}

#[derive(Default)]
struct TimerStates {
    /// Time of the last query.
    looked_at: Option<Timestamp>,
    /// True if the clock was not followed then.
    is_distrusted: bool,
    /// Timers whose code runs or waits.
    under_way: HashSet<u64>,
    /// Next due times of timers that were served since the last write: by their code, or by runs that were committed although
    /// the write failed.
    ended: HashMap<u64, Timestamp>,
    put_off: HashMap<u64, PutOff>,
}

/// A timer that could not be served when it was due.
#[derive(Clone, Copy)]
struct PutOff {
    /// The time at which it was due.
    due_at: Timestamp,
    /// The time until which it waits. If the registry has another time, the timer was set since.
    until: Timestamp,
    times: u32,
}

impl SchedulerState {
    pub(crate) fn new() -> Self {
        Self {
            code: TenantShares::new(&limits::CODE_TIMERS),
            timers: Mutex::default(),
            #[cfg(test)]
            writes: Default::default(),
        }
    }

    /// Returns the time since which a timer is due, before all postponements, so that its rhythm does not change.
    fn due_at(&self, timer: &DueTimer) -> Timestamp {
        let state = self.timers.lock();
        let put_off = state.put_off.get(&timer.number).filter(|put_off| put_off.until == timer.due_at);
        put_off.map_or(timer.due_at, |put_off| put_off.due_at)
    }
}

/// The outcome of serving a timer.
enum TimerOutcome {
    /// The timer is due again at this time.
    At(Timestamp),
    /// The timer could not be served and is delayed, longer each time.
    PutOff,
    /// Its code is to run, in a slot of its tenant.
    Code { minutes: u32, place: TenantShare },
    /// The design no longer has this timer.
    Never,
}

/// The result of one batch.
#[derive(Default)]
struct BatchResult {
    due: Vec<(u64, Timestamp)>,
    gone: Vec<u64>,
    code: Vec<Elapsing>,
}

/// An interval whose code is to run.
struct Elapsing {
    timer: DueTimer,
    minutes: u32,
    _place: TenantShare,
    /// Marks the interval as no longer under way when it is dropped; `None` until it is under way.
    _under_way: Option<ScopeGuard<Box<dyn FnOnce() + Send>>>,
}

impl Jobs {
    /// Serves timers as they become due.
    pub(crate) async fn run_scheduler(self: Arc<Self>, mut shift: Shift) {
        let mut runs = JoinSet::new();
        loop {
            self.env.reaches("timers");
            let more = self.serve_timers(&mut runs).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "intervals and the look for silent devices wait for a store");
                false
            });
            shift.well();
            let stops = if more { shift.ends() } else { shift.pause(TIMER_LOOK_EVERY).await };
            if stops {
                break;
            }
        }
        // Runs that have not ended by now are due again after the next start.
        runs.shutdown().await;
        if let Err(error) = self.write_timers(BatchResult::default()).await {
            tracing::warn!(%error, "intervals whose code has just run elapse once more");
        }
    }

    /// Serves a batch of timers that are due, and returns true if there may be more. Their next times are one write,
    /// together with those of earlier timers whose code has ended.
    async fn serve_timers(self: &Arc<Self>, runs: &mut JoinSet<()>) -> Result<bool> {
        while runs.try_join_next().is_some() {}
        self.env.must_have_clock()?;
        let now = self.env.now();
        self.notice_clock_set_back(now).await?;
        let mut due = self.env.registry().timers_due(now, TIMERS_BATCH).await?;
        let (is_full, pace) = (due.len() == TIMERS_BATCH, Pace::default());
        let pace = &pace;
        {
            // The registry does not know yet which timers were served.
            let state = self.scheduler.timers.lock();
            due.retain(|timer| state.ended.get(&timer.number).is_none_or(|next| *next <= now));
        }
        if self.env.config().has_other_nodes && !due.is_empty() {
            let numbers: Vec<u64> = due.iter().map(|timer| timer.number).collect();
            let claimed =
                self.env.registry().timers_claim(&numbers, now, now.plus_seconds(TIMER_CLAIM_SECONDS)).await?;
            due.retain(|timer| claimed.contains(&timer.number));
        }
        let served = futures::stream::iter(due).map(|timer| async move {
            let next = match guarded("timer", self.serve_timer(&timer, now, pace)).await {
                Some(Ok(next)) => next,
                Some(Err(error)) => {
                    tracing::warn!(%error, device = %timer.device.id, "a timer of a device is served later");
                    TimerOutcome::PutOff
                }
                None => TimerOutcome::At(now.plus_seconds(PANIC_SECONDS)),
            };
            (timer, next)
        });
        let served: Vec<_> = served.buffer_unordered(TIMERS_AT_ONCE).collect().await;
        let mut result = BatchResult::default();
        for (timer, next) in served {
            let number = timer.number;
            match next {
                TimerOutcome::At(moment) => {
                    self.scheduler.timers.lock().put_off.remove(&number);
                    result.due.push((number, moment));
                }
                TimerOutcome::PutOff => result.due.push((number, self.put_off(&timer, now))),
                TimerOutcome::Never => result.gone.push(number),
                TimerOutcome::Code { minutes, place } => {
                    result.code.push(Elapsing { timer, minutes, _place: place, _under_way: None });
                }
            }
        }
        for elapsing in self.write_timers(result).await? {
            spawn_guarded_in(runs, "timer", Arc::clone(self).elapses(elapsing));
        }
        Ok(is_full)
    }

    /// Detects a clock that was set back: if it is behind the previous query, or there was none, it may have been ahead when
    /// times were stored.
    async fn notice_clock_set_back(&self, now: Timestamp) -> Result<()> {
        self.log_clock_jump();
        let before = self.scheduler.timers.lock().looked_at;
        if before.is_none_or(|before| now.plus_seconds(SET_BACK_SECONDS_MIN) < before) {
            let latest = now.plus_seconds(DELIVERY_AHEAD_SECONDS_MAX);
            self.env.registry().clock_set_back(now, latest).await?;
        }
        self.scheduler.timers.lock().looked_at = Some(now);
        Ok(())
    }

    /// Logs that the clock has jumped ahead by days, and that it is followed again.
    fn log_clock_jump(&self) {
        let warning = self.env.clock_warning("clock");
        let was_distrusted = std::mem::replace(&mut self.scheduler.timers.lock().is_distrusted, warning.is_some());
        match warning {
            Some(warning) if !was_distrusted => {
                tracing::error!("{}; until then moments go on by the time that passes", warning.message);
            }
            None if was_distrusted => tracing::warn!("the clock is followed again"),
            _ => {}
        }
    }

    /// Writes when timers are due again, including those whose code has ended. Timers whose code is to run are
    /// postponed for as long as that may take, and returned.
    async fn write_timers(self: &Arc<Self>, result: BatchResult) -> Result<Vec<Elapsing>> {
        let BatchResult { due: served, gone, mut code } = result;
        let lost_at = self.env.now().plus_seconds(CODE_SECONDS);
        let ended = {
            // A served timer is not served again, even if the write fails.
            let mut state = self.scheduler.timers.lock();
            state.ended.extend(served);
            state.ended.clone()
        };
        let due = ended.iter().map(|(number, moment)| (*number, *moment));
        let due: Vec<_> = due.chain(code.iter().map(|elapsing| (elapsing.timer.number, lost_at))).collect();
        self.env.registry().timers_set(&due, &gone).await?;
        #[cfg(test)]
        self.scheduler.writes.fetch_add(1, Ordering::Relaxed);
        let mut state = self.scheduler.timers.lock();
        state.ended.retain(|number, moment| ended.get(number) != Some(moment));
        for elapsing in &mut code {
            let (jobs, number) = (Arc::clone(self), elapsing.timer.number);
            state.under_way.insert(number);
            elapsing._under_way = Some(ScopeGuard::new(Box::new(move || {
                jobs.scheduler.timers.lock().under_way.remove(&number);
            })));
        }
        drop(state);
        Ok(code)
    }

    /// Returns the time until which a timer that could not be served waits.
    fn put_off(&self, timer: &DueTimer, now: Timestamp) -> Timestamp {
        let mut state = self.scheduler.timers.lock();
        let before = state.put_off.get(&timer.number).filter(|it| it.until == timer.due_at).copied();
        let times = before.map_or(0, |it| it.times).saturating_add(1);
        let until = self.env.due_again(times.min(PAUSES_GROW), now);
        if state.put_off.len() >= PUT_OFF_MAX {
            state.put_off.clear();
        }
        let due_at = before.map_or(timer.due_at, |it| it.due_at);
        state.put_off.insert(timer.number, PutOff { due_at, until, times });
        until
    }

    async fn serve_timer(self: &Arc<Self>, timer: &DueTimer, now: Timestamp, pace: &Pace) -> Result<TimerOutcome> {
        self.env.reaches("timer");
        if timer.element == SILENCE
            && let Some(cached) = self.caches.cached_device(timer.device.id)
            && let Some(minutes) = cached.plan().and_then(|plan| plan.missing_after_minutes())
        {
            // Nearly all devices send events, and these cost only this.
            let end = end_of_silence(&cached, timer.heard_at, minutes, now);
            if end > now {
                return Ok(TimerOutcome::At(end));
            }
        }
        let Some(entry) = self.caches.device_entry(timer.device.id).await? else { return Ok(TimerOutcome::Never) };
        if timer.element == SILENCE {
            return self.look_for_silence(&entry, timer, now).await;
        }
        let plan = self.caches.plan_of_device(&entry).await?;
        let minutes = plan.intervals().find(|(element, _)| ***element == timer.element);
        let Some((_, minutes)) = minutes else { return Ok(TimerOutcome::Never) };
        let runs_code = plan.runs_code();
        drop(plan);
        if runs_code {
            // Code takes its time, and waits for its project's turn: the other timers do not wait for it.
            if self.scheduler.timers.lock().under_way.contains(&timer.number) {
                return Ok(TimerOutcome::At(now.plus_seconds(CODE_SECONDS)));
            }
            let place = self.scheduler.code.take(entry.lineage.top(), 1);
            return Ok(place.map_or(TimerOutcome::PutOff, |place| TimerOutcome::Code { minutes, place }));
        }
        pace.next().await;
        self.elapse(timer, now).await?;
        Ok(TimerOutcome::At(following(self.scheduler.due_at(timer), minutes, now)))
    }

    async fn elapse(self: &Arc<Self>, timer: &DueTimer, now: Timestamp) -> Result<()> {
        let occasion = Occasion::Elapsed { element: timer.element.clone() };
        // The text of a time needs no escapes.
        let payload = RawJson::trusted(format!(r#"{{"elapsedAt":"{now}"}}"#).into());
        // Another process may serve it too, where this one took longer than its claim.
        let key = self.env.telemetry().shared().map(|_| format!("\0timer:{}:{}", timer.number, timer.due_at.millis()));
        self.ingest.run_design(timer.device, occasion, payload, key).await
    }

    /// Runs an interval whose design has code. The next batch writes when it is due again; if that write is lost, it is
    /// due after [`CODE_SECONDS`].
    async fn elapses(self: Arc<Self>, elapsing: Elapsing) {
        let timer = &elapsing.timer;
        let number = timer.number;
        let now = self.env.now();
        let next = match guarded("timer", self.elapse(timer, now)).await {
            Some(Ok(())) => {
                let next = following(self.scheduler.due_at(timer), elapsing.minutes, self.env.now().min(now));
                self.scheduler.timers.lock().put_off.remove(&number);
                next
            }
            Some(Err(error)) => {
                tracing::debug!(%error, device = %timer.device.id, "an interval of a device elapses later");
                self.put_off(timer, self.env.now())
            }
            None => self.env.now().plus_seconds(PANIC_SECONDS),
        };
        self.scheduler.timers.lock().ended.insert(number, next);
    }

    /// Checks if a device is silent, and marks it as missing if it is.
    async fn look_for_silence(
        &self,
        entry: &Arc<DeviceEntry>,
        timer: &DueTimer,
        now: Timestamp,
    ) -> Result<TimerOutcome> {
        let plan = self.caches.plan_of_device(entry).await?;
        let Some(minutes) = plan.missing_after_minutes() else { return Ok(TimerOutcome::Never) };
        drop(plan);
        let end = end_of_silence(entry, timer.heard_at, minutes, now);
        if end > now {
            return Ok(TimerOutcome::At(end));
        }
        let permit = access::system(entry.device, "a device is silent for too long").charged_to(&entry.lineage);
        // Activity of runs with an earlier entry may be unwritten. Memory is read first, because activity is removed
        // from it once the registry has it.
        let unwritten = self.activity.of_device(entry.device.key);
        let Some(device) = self.env.registry().device_fetch(&permit.reading()).await? else {
            return Ok(TimerOutcome::Never);
        };
        let heard_at = device.last_active.max(unwritten).unwrap_or(device.created_at);
        let of = Arc::clone(entry);
        let (estimate, mut place) = ((Admission::Part, RunsEstimate::default()), LinePlace::default());
        let end = self.ingest.design_runs(&permit, entry, estimate, &mut place, move |runs| {
            // In its turn: an event that came in the meantime is known here, also one that another process has taken.
            let end = end_of_silence(&of, heard_at.max(runs.heard().unwrap_or(heard_at)), minutes, now);
            if end <= now && runs.view().status != Status::Missing {
                let id = runs.mint();
                runs.effects(id, vec![Effect::SetStatus(Status::Missing)]);
            }
            end
        });
        match end.await? {
            // A missing device is checked again one interval later, in case it has sent events and fallen silent again.
            Some(end) if end <= now => Ok(TimerOutcome::At(following(timer.due_at, minutes, now))),
            Some(end) => Ok(TimerOutcome::At(end)),
            None => Ok(TimerOutcome::PutOff),
        }
    }
}

/// Returns the time at which the silence of a device is too long, as far as known now. An event received under a clock that
/// was ahead counts as received now; else the device could not be missing before the clock gets there again.
fn end_of_silence(entry: &DeviceEntry, heard_at: Timestamp, minutes: u32, now: Timestamp) -> Timestamp {
    let known = [&entry.heard, &entry.active].map(|known| known.fetch_min(now.millis(), Ordering::Relaxed));
    let known = Timestamp::from_millis(known[0].max(known[1]));
    heard_at.max(known).min(now).plus_seconds(i64::from(minutes) * 60)
}

/// Returns the first time after `now` in the rhythm of `due`.
fn following(due: Timestamp, minutes: u32, now: Timestamp) -> Timestamp {
    let step = i64::from(minutes.max(1)) * 60_000;
    let missed = (now.millis() - due.millis()).div_euclid(step);
    Timestamp::from_millis(due.millis() + (missed + 1) * step)
}

#[cfg(test)]
mod tests;
