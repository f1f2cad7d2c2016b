//! Several runs of a device's design in one commit, without an event, for example after settings were changed. The device
//! is locked as for an event, but history gets no device event.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use isobar_design::{DeviceView, Effect, EventView, LONG_RUN_UNITS, Plan, Trigger};
use isobar_model::access::{Actor, CanWrite};
use isobar_model::error::{Error, Result};
use isobar_model::event::{EventError, STATE_BYTES_BESIDE};
use isobar_model::ids::{DeviceRef, EventId, SettingId};
use isobar_model::json::{LastKept, RawJson};
use isobar_model::setting::{setting_bytes, settings_exceed};
use isobar_model::status::Status;
use isobar_model::time::Timestamp;
use isobar_store::error::StoreError;
use isobar_store::telemetry::{Locked, Memory, TURNS_MAX, Turn};

use super::Ingest;
use super::incoming::remembered;
use super::revisions::LinePlace;
use super::run_commit::{PendingTurn, RunCommit, TurnFailure};
use crate::cache::entries::DeviceEntry;
use crate::designs::Admission;
use crate::outbox::work::AlarmChangeWork;
use crate::support::body_reader::READ_HERE_BYTES_MAX;

/// Consecutive runs of one device in one commit. Each run sees the state that the previous one left.
pub(crate) struct DesignRuns<'a> {
    ingest: &'a Ingest,
    actor: Actor,
    run: RunCommit<'a>,
    turn: Turn,
    left: UncommittedState,
    /// Units that the runs used, and bytes that they and the changes leave.
    units: u64,
    bytes: usize,
}

/// An upper estimate, made before the runs of one commit, of their input in bytes and of the units that they use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunsEstimate {
    bytes: usize,
    units: u64,
    /// True if the design runs at all.
    runs: bool,
}

impl RunsEstimate {
    /// Estimates a run on a payload of so many bytes.
    pub fn of_run(plan: &Plan, payload_bytes: usize) -> Self {
        Self { bytes: payload_bytes, units: plan.run_units(payload_bytes), runs: true }
    }

    /// Estimates the change of these settings to values of so many bytes, one after the other.
    pub fn of_changes<'n>(plan: &Plan, changes: impl IntoIterator<Item = (&'n str, usize)>) -> Self {
        changes.into_iter().fold(Self::default(), |sum, (name, bytes)| Self {
            bytes: sum.bytes.saturating_add(bytes),
            units: sum.units.saturating_add(plan.change_units(name, bytes)),
            runs: sum.runs || plan.reacts_to(name),
        })
    }

    /// Estimates the reset of these settings to their defaults, one after the other.
    pub fn of_resets<'n>(plan: &Plan, names: impl IntoIterator<Item = &'n str>) -> Self {
        let default = |name| plan.setting(name).map_or(0, |definition| definition.default_value.bytes().len());
        Self::of_changes(plan, names.into_iter().map(|name| (name, default(name))))
    }

    /// Returns true if the runs are long: they run code, or may take longer than a millisecond.
    fn is_long(self, entry: &DeviceEntry, plan: &Plan) -> bool {
        let runs_long = self.runs && (plan.runs_code() || entry.plan.has_run_long());
        runs_long || self.bytes > READ_HERE_BYTES_MAX || self.units > LONG_RUN_UNITS
    }
}

/// Runs of one commit: when they may begin, what they cost, a key by which they are made only once, and their place among
/// those that change the device, which they keep for their next try.
pub(super) struct WantedRuns<'a> {
    pub admission: Admission,
    pub estimate: RunsEstimate,
    pub key: Option<&'a str>,
    pub place: &'a mut LinePlace,
}

/// The outcome of runs of one commit.
pub(super) enum RunsOutcome<T> {
    Done(T),
    /// Runs with this key were committed before.
    Repeated,
    /// The entry was outdated, and nothing was changed.
    Outdated,
}

/// Units and bytes of the runs of one commit. The run that reaches one of these limits is the last of its commit.
const RUNS_UNITS_FULL: u64 = 500_000;
pub(crate) const RUNS_BYTES_FULL: usize = 1 << 20;

impl DesignRuns<'_> {
    /// Returns the device in the state that the runs so far left.
    pub fn view(&self) -> Arc<DeviceView> {
        self.run.view()
    }

    /// Returns the revision of the device before the commit.
    pub fn revision(&self) -> u64 {
        self.turn.memory().revision()
    }

    /// Returns the time of the newest event of the device, if the store has it at hand.
    pub fn heard(&self) -> Option<Timestamp> {
        self.turn.memory().heard()
    }

    /// Returns the design that runs.
    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.run.plan)
    }

    /// Mints an identifier. Those of one device increase from run to run.
    pub fn mint(&self) -> EventId {
        self.ingest.env.new_id()
    }

    /// Returns true if the commit has reached its limits: further changes belong to the next one.
    pub fn is_full(&self) -> bool {
        self.units >= RUNS_UNITS_FULL || self.bytes >= RUNS_BYTES_FULL
    }

    /// Applies effects that no run has caused.
    pub fn effects(&mut self, id: EventId, mut effects: Vec<Effect>) {
        if self.view().status == Status::Missing {
            self.keep_missing(&mut effects);
        }
        self.run.carry_out(id, effects);
    }

    /// Keeps the status `missing`, which only an event ends; a status that the runs set is restored then.
    fn keep_missing(&mut self, effects: &mut Vec<Effect>) {
        effects.retain(|effect| {
            let Effect::SetStatus(status) = effect else { return true };
            if *status != Status::Missing {
                self.run.entry.before_missing.store(status.number(), Ordering::Relaxed);
                self.run.work.status_before = Some(status.number());
            }
            false
        });
    }

    /// Checks that the device has room for this value of a setting among its others; returns the fault if not.
    pub fn check_room(&self, name: &str, value: &RawJson) -> std::result::Result<(), &'static str> {
        let view = self.view();
        let before = view.settings_bytes();
        let own = view.settings.iter().find(|(own, _)| **own == *name);
        let others = before - own.map_or(0, |(name, value)| setting_bytes(name, value));
        settings_exceed(before, others + setting_bytes(name, value)).map_or(Ok(()), Err)
    }

    /// Sets a setting (to its default if `None`) in the name of the permit's holder. Returns the record's identifier.
    pub fn set(&mut self, name: Arc<str>, value: Option<RawJson>) -> SettingId {
        let by = match self.actor {
            Actor::User(user) => Some(user),
            Actor::Device(_) | Actor::System(_) => None,
        };
        self.bytes += value.as_ref().map_or(0, |value| value.bytes().len());
        self.run.change_setting(name, value, by)
    }

    /// Adds a user's change of an alarm.
    pub fn change_alarm(&mut self, change: AlarmChangeWork) {
        self.run.change_alarm(change);
    }

    /// Runs the design from `trigger` on, under an identifier instead of an event's.
    pub fn run(&mut self, id: EventId, trigger: Trigger<'_>, payload: &RawJson) {
        let tree = payload.tree();
        let (element, received_at, now) = (trigger.element(), id.minted_at(), self.ingest.env.now());
        let seen = EventView { id, element, received_at, now, payload, tree: &tree };
        let left = RunMemory { memory: self.turn.memory(), left: Some(&self.left) };
        let (plan, view) = (self.plan(), self.view());
        let outcome = self.ingest.designs.run(&plan, trigger, &seen, &view, &left);
        self.note(trigger, &outcome.errors);
        (self.units, self.bytes) = (self.units + outcome.units, self.bytes + outcome.bytes);
        self.left.take_in(self.turn.memory(), &outcome.effects, plan.reads_last());
        self.effects(id, outcome.effects);
    }

    /// Logs the elements that failed, as there is no event that stores the errors. Messages may quote a payload and are
    /// not logged.
    fn note(&self, trigger: Trigger<'_>, errors: &[EventError]) {
        if !errors.is_empty() {
            let mut failed: Vec<&str> = errors.iter().map(|error| error.element.as_str()).collect();
            failed.dedup();
            tracing::debug!(device = %self.run.entry.device.id, from = trigger.element(), ?failed, "elements of a run failed");
        }
    }
}

impl Ingest {
    /// Lets `work` run the design of a device any number of times in one commit. Returns the result of `work` when the
    /// commit is durable, or `None`, without a change, if the entry is outdated. If the commit conflicts with another,
    /// `work` is called again. Runs that may be long, by the estimate or by experience, go to the pool; the caller
    /// holds their share of memory.
    ///
    /// # Errors
    /// `Busy` for new work if too many long runs wait, or if the outbox is full.
    pub(crate) async fn design_runs<T: Send + 'static>(
        self: &Arc<Self>,
        permit: &CanWrite<DeviceRef>,
        entry: &Arc<DeviceEntry>,
        (admission, estimate): (Admission, RunsEstimate),
        place: &mut LinePlace,
        work: impl FnMut(&mut DesignRuns<'_>) -> T + Send + 'static,
    ) -> Result<Option<T>> {
        let wanted = WantedRuns { admission, estimate, key: None, place };
        Ok(match self.design_runs_once(permit, entry, wanted, work).await? {
            RunsOutcome::Done(answer) => Some(answer),
            RunsOutcome::Repeated | RunsOutcome::Outdated => None,
        })
    }

    /// Lets `work` run the design as [`Ingest::design_runs`] does, unless runs with the same key have been committed.
    pub(super) async fn design_runs_once<T: Send + 'static>(
        self: &Arc<Self>,
        permit: &CanWrite<DeviceRef>,
        entry: &Arc<DeviceEntry>,
        WantedRuns { admission, estimate, key, place: in_line }: WantedRuns<'_>,
        mut work: impl FnMut(&mut DesignRuns<'_>) -> T + Send + 'static,
    ) -> Result<RunsOutcome<T>> {
        let Some(plan) = entry.plan() else { return Ok(RunsOutcome::Outdated) };
        let is_long = estimate.is_long(entry, &plan);
        // Not kept during the wait, so that a replaced plan leaves memory.
        drop(plan);
        let place = match is_long {
            true => {
                self.env.telemetry().must_reach(entry.device.key)?;
                Some(self.designs.place(entry.project_runs(), admission, None).await?)
            }
            false => None,
        };
        for _ in 0..TURNS_MAX {
            let (store, now) = (self.env.telemetry(), self.env.now());
            let Locked::Turn(turn) = store.turn_unless_repeated(permit, key, now).await? else {
                return Ok(RunsOutcome::Repeated);
            };
            let revision = self.revision_of_run(turn.memory().revision(), in_line).await?;
            let actor = permit.actor();
            let done = match &place {
                None => self.design_runs_in((turn, revision), (actor, key), entry, &mut work),
                Some(place) => {
                    let (ingest, entry, key) = (Arc::clone(self), Arc::clone(entry), key.map(str::to_owned));
                    let runs = move || {
                        (ingest.design_runs_in((turn, revision), (actor, key.as_deref()), &entry, &mut work), work)
                    };
                    let (done, again) = self.designs.in_pool(place, runs).await?;
                    work = again;
                    done
                }
            };
            match done {
                Ok((answer, mut pending)) => match pending.durable.wait().await {
                    Err(StoreError::Conflict) => {}
                    outcome => {
                        outcome?;
                        in_line.committed();
                        self.committer.publish(entry, pending.queued);
                        self.committer.reported(entry, &pending).await?;
                        return Ok(RunsOutcome::Done(answer));
                    }
                },
                Err(TurnFailure::Outdated) => {
                    self.settle_outdated(permit, in_line).await?;
                    return Ok(RunsOutcome::Outdated);
                }
                Err(TurnFailure::Failed(error)) => return Err(error),
                Err(TurnFailure::Conflict) => {}
            }
        }
        Err(Error::Busy)
    }

    /// Lets `work` run the design of a locked device, and commits all effects.
    fn design_runs_in<T>(
        &self,
        (turn, revision): (Turn, u64),
        (actor, key): (Actor, Option<&str>),
        entry: &Arc<DeviceEntry>,
        work: &mut impl FnMut(&mut DesignRuns<'_>) -> T,
    ) -> std::result::Result<(T, PendingTurn), TurnFailure> {
        let begun = RunCommit::new((&self.env, &self.caches), (entry, revision), self.env.now());
        let Some(run) = begun else { return Err(self.outdated(turn, entry)) };
        self.env.must_have_clock()?;
        self.env.ids_go_on_behind(turn.memory().newest());
        let left = UncommittedState::default();
        let mut runs = DesignRuns { ingest: self, actor, run, turn, left, units: 0, bytes: 0 };
        let answer = work(&mut runs);
        let DesignRuns { mut run, turn, units, .. } = runs;
        run.commit.idempotency = key.map(|key| remembered(key, self.env.new_id(), self.env.now()));
        entry.plan.note_run(units > LONG_RUN_UNITS);
        Ok((answer, self.committer.commit(run, turn)?))
    }
}

/// State that the runs of this commit have left so far.
#[derive(Default)]
pub(crate) struct UncommittedState {
    /// States by element; empty if the state was removed.
    states: HashMap<Arc<str>, Bytes>,
    states_bytes: Option<usize>,
    last: HashMap<Arc<str>, LastKept>,
}

impl UncommittedState {
    /// Adds the state that one run leaves; last values only if the design reads them.
    fn take_in(&mut self, memory: &dyn Memory, effects: &[Effect], with_last: bool) {
        let mut stored: HashMap<&Arc<str>, Vec<&RawJson>> = HashMap::new();
        for effect in effects {
            match effect {
                Effect::Remember { element, state } => self.take_state(memory, element, state),
                Effect::Forget { element } => self.take_state(memory, element, &Bytes::new()),
                Effect::Store { element, value } if with_last => stored.entry(element).or_default().push(value),
                _ => {}
            }
        }
        for (element, values) in stored {
            let before = self.last.remove(element).or_else(|| memory.last(element));
            let (last, _) = LastKept::after_all(before.as_ref().map(LastKept::text), values);
            self.last.insert(Arc::clone(element), last);
        }
    }

    fn take_state(&mut self, memory: &dyn Memory, element: &Arc<str>, state: &Bytes) {
        let weight = |state: &Bytes| match state.len() {
            0 => 0,
            bytes => element.len() + bytes + STATE_BYTES_BESIDE,
        };
        let before = self.states.insert(Arc::clone(element), state.clone()).or_else(|| memory.state(element));
        let bytes = self.states_bytes.unwrap_or_else(|| memory.states_bytes()) + weight(state);
        self.states_bytes = Some(bytes.saturating_sub(before.as_ref().map_or(0, weight)));
    }
}

/// State that earlier runs of a device left, including those of this commit, as its design reads it.
pub(crate) struct RunMemory<'a> {
    pub memory: &'a dyn Memory,
    pub left: Option<&'a UncommittedState>,
}

impl isobar_design::Memory for RunMemory<'_> {
    fn last(&self, element: &str) -> Option<RawJson> {
        let here = self.left.and_then(|left| left.last.get(element)).map(LastKept::values);
        here.or_else(|| Some(self.memory.last(element)?.values()))
    }

    fn last_bytes(&self, element: &str) -> usize {
        let here = self.left.and_then(|left| left.last.get(element)).map(|kept| kept.bytes().len());
        here.unwrap_or_else(|| self.memory.last_bytes(element))
    }

    fn state(&self, element: &str) -> Option<Bytes> {
        let here = self.left.and_then(|left| left.states.get(element));
        here.cloned().or_else(|| self.memory.state(element))
    }

    fn states(&self) -> Vec<(Arc<str>, usize)> {
        let Some(left) = self.left else { return self.memory.states() };
        let before = self.memory.states().into_iter().filter(|(element, _)| !left.states.contains_key(element));
        let here = left.states.iter().filter(|(_, state)| !state.is_empty());
        before.chain(here.map(|(element, state)| (Arc::clone(element), state.len()))).collect()
    }

    fn states_bytes(&self) -> usize {
        self.left.and_then(|left| left.states_bytes).unwrap_or_else(|| self.memory.states_bytes())
    }
}
