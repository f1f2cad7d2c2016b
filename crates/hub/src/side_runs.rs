//! Runs of a device's design beside its events: a setting was changed, say. They take their turn among the runs of its
//! events, and what they cause is committed at once, but no device event of theirs stands in history.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use isobar_design::{DeviceView, Effect, EventView, Trigger};
use isobar_model::access::{Actor, CanWrite};
use isobar_model::error::{Error, Result};
use isobar_model::event::{EventError, STATE_BYTES_BESIDE};
use isobar_model::ids::{DeviceRef, EventId, SettingId};
use isobar_model::json::{LastKept, RawJson};
use isobar_model::status::Status;
use isobar_store::telemetry::{self, Begun, Commit, Memory};

use crate::Hub;
use crate::entries::DeviceEntry;
use crate::intake::Aftermath;
use crate::outbox::Work;

/// Runs of one device, one after the other: each sees what the one before it has left, and all are of one commit.
pub(crate) struct SideRuns<'a> {
    hub: &'a Hub,
    actor: Actor,
    entry: &'a DeviceEntry,
    memory: &'a dyn Memory,
    commit: Commit,
    work: Work,
    here: Here,
    /// Units that the runs have taken, and bytes that they and the changes leave.
    units: u64,
    bytes: usize,
}

/// The runs of one commit may take so many units together, and leave so many bytes; the one that reaches this is the last.
const UNITS_FULL: u64 = 500_000;
pub(crate) const BYTES_FULL: usize = 1 << 20;

impl SideRuns<'_> {
    /// The device as the runs so far have left it.
    pub fn view(&self) -> Arc<DeviceView> {
        Arc::clone(&self.entry.view.lock())
    }

    /// A new identifier; of one device they grow from run to run.
    pub fn mint(&self) -> EventId {
        self.hub.new_id()
    }

    /// Whether this commit has all it may have: further changes go into the next one.
    pub fn is_full(&self) -> bool {
        self.units >= UNITS_FULL || self.bytes >= BYTES_FULL
    }

    /// Something happens that no run has caused.
    pub fn effects(&mut self, id: EventId, mut effects: Vec<Effect>) {
        if self.view().status == Status::Missing {
            self.keep_missing(&mut effects);
        }
        self.hub.carry_out(self.entry, id, effects, &mut self.commit, &mut self.work);
    }

    /// Only an event ends `missing`: what status the runs give is the one that the device gets back then.
    fn keep_missing(&mut self, effects: &mut Vec<Effect>) {
        effects.retain(|effect| {
            let Effect::SetStatus(status) = effect else { return true };
            if *status != Status::Missing {
                self.entry.before_missing.store(status.number(), Ordering::Relaxed);
                self.work.status_before = Some(status.number());
            }
            false
        });
    }

    /// A setting gets a value (none: back to the default), by whoever has the pass. Its record's identifier.
    pub fn set(&mut self, name: Arc<str>, value: Option<RawJson>) -> SettingId {
        let by = match self.actor {
            Actor::User(user) => Some(user),
            Actor::Device(_) | Actor::System(_) => None,
        };
        self.bytes += value.as_ref().map_or(0, |value| value.bytes().len());
        self.hub.change_setting(self.entry, name, value, by, &mut self.work)
    }

    /// Runs the design from `trigger` on, under an identifier that stands for the event which this is not.
    pub fn run(&mut self, id: EventId, trigger: Trigger<'_>, payload: &RawJson) {
        let tree = payload.tree();
        let seen = EventView { id, element: trigger.element(), received_at: id.minted_at(), payload, tree: &tree };
        let left = Left { memory: self.memory, here: &self.here };
        let (plan, view) = (&self.entry.plan.plan, self.view());
        let outcome = self.hub.0.code.carry(plan, trigger, &seen, &view, &left);
        self.note(trigger, &outcome.errors);
        (self.units, self.bytes) = (self.units + outcome.units, self.bytes + outcome.bytes);
        self.here.take_in(self.memory, &outcome.effects, plan.reads_last());
        self.effects(id, outcome.effects);
    }

    /// There is no event to keep the errors on. What a message may quote of a payload stays out of the log.
    fn note(&self, trigger: Trigger<'_>, errors: &[EventError]) {
        if !errors.is_empty() {
            let mut failed: Vec<&str> = errors.iter().map(|error| error.element.as_str()).collect();
            failed.dedup();
            tracing::debug!(device = %self.entry.device.id, from = trigger.element(), ?failed, "elements of a run failed");
        }
    }
}

impl Hub {
    /// Runs the design of a device beside its events. `extra` gives what happens before the run does, from the run's
    /// identifier. All of it is durable when this returns. None: the entry no longer holds, and nothing happened.
    pub(crate) async fn side_run(
        &self,
        pass: &CanWrite<DeviceRef>,
        entry: &Arc<DeviceEntry>,
        trigger: Trigger<'_>,
        payload: &RawJson,
        extra: impl FnOnce(EventId) -> Vec<Effect> + Send,
    ) -> Result<Option<EventId>> {
        self.side_runs(pass, entry, |runs| {
            let id = runs.mint();
            runs.effects(id, extra(id));
            runs.run(id, trigger, payload);
            id
        })
        .await
    }

    /// Lets `work` run the design of a device, as often as it wants to, in one commit. What `work` gives is answered
    /// when all of it is durable. None: the entry no longer holds, and nothing happened.
    pub(crate) async fn side_runs<T: Send>(
        &self,
        pass: &CanWrite<DeviceRef>,
        entry: &Arc<DeviceEntry>,
        work: impl FnOnce(&mut SideRuns<'_>) -> T + Send,
    ) -> Result<Option<T>> {
        let _place = self.0.code.place(&entry.plan.plan).await?;
        let (mut work, mut answer, mut after) = (Some(work), None, Aftermath::default());
        let now = self.0.clock.now();
        let mut turn = |memory: &dyn Memory| {
            let Some(work) = work.take().filter(|_| entry.fresh()) else {
                after.outdated = true;
                return Commit::default();
            };
            let before = entry.before(Arc::clone(&entry.view.lock()));
            let (commit, left) = (Commit::default(), Work::of(entry.device.id, now));
            let (here, actor) = (Here::default(), pass.actor());
            let mut runs = SideRuns { hub: self, actor, entry, memory, commit, work: left, here, units: 0, bytes: 0 };
            answer = Some(match entry.runs_long.load(Ordering::Relaxed) {
                true => self.0.code.off_this_thread(|| work(&mut runs)),
                false => work(&mut runs),
            });
            let SideRuns { commit, work, units, .. } = runs;
            entry.note_run(units);
            self.hand_over(entry, before, memory, commit, work, &mut after)
        };
        let half_changed = self.if_a_run_panics(entry);
        let begun = telemetry::begin(&*self.0.telemetry, pass, None, now, &mut turn).await;
        half_changed.call_off();
        let begun = begun.map_err(crate::error::from_store)?;
        if after.refused {
            return Err(Error::Busy);
        }
        if let Begun::Committed { durable, .. } = begun {
            durable.await.map_err(crate::error::from_store)?;
        }
        self.tell(entry, &after);
        Ok(answer.filter(|_| !after.outdated))
    }
}

/// What the runs of this commit have left so far.
#[derive(Default)]
struct Here {
    /// Empty where a state was given up.
    states: HashMap<Arc<str>, Bytes>,
    states_bytes: Option<usize>,
    last: HashMap<Arc<str>, LastKept>,
}

impl Here {
    /// Takes in what one run leaves; last values only if the next runs may look at them.
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

/// What earlier runs left, those of this commit included.
struct Left<'a> {
    memory: &'a dyn Memory,
    here: &'a Here,
}

impl isobar_design::Memory for Left<'_> {
    fn last(&self, element: &str) -> Option<RawJson> {
        let here = self.here.last.get(element).map(LastKept::values);
        here.or_else(|| Some(self.memory.last(element)?.values()))
    }

    fn last_bytes(&self, element: &str) -> usize {
        let here = self.here.last.get(element).map(|kept| kept.bytes().len());
        here.unwrap_or_else(|| self.memory.last_bytes(element))
    }

    fn state(&self, element: &str) -> Option<Bytes> {
        self.here.states.get(element).cloned().or_else(|| self.memory.state(element))
    }

    fn states(&self) -> Vec<(Arc<str>, usize)> {
        let before = self.memory.states().into_iter().filter(|(element, _)| !self.here.states.contains_key(element));
        let here = self.here.states.iter().filter(|(_, state)| !state.is_empty());
        before.chain(here.map(|(element, state)| (Arc::clone(element), state.len()))).collect()
    }

    fn states_bytes(&self) -> usize {
        self.here.states_bytes.unwrap_or_else(|| self.memory.states_bytes())
    }
}
