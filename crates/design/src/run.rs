//! A run: an event goes along the links of the plan, and effects come of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use isobar_model::event::EventError;
use isobar_model::json::{Json, RawJson};
use isobar_model::time::Timestamp;
use smallvec::SmallVec;

use crate::code::Room;
use crate::expression::{Budget, Changes, Computed, Expression, LastTexts, Machine, Problem, Value, World, to_raw};
use crate::plan::{Argument, Link, Plan};
use crate::trace::{Trace, TraceStep};
use crate::{DeviceView, Effect, EventView, Memory, Outcome, Trigger};

/// Abilities that one run may use.
const STEPS_MAX: usize = 10_000;
/// Units that the expressions of one run may take together; a unit is a few nanoseconds.
const BUDGET: u64 = 1_000_000;
/// Processor time that all functions of one run may take together.
const CODE_TIME: Duration = Duration::from_millis(200);
/// Notifications and calls of one run.
const LEAVING_MAX: u32 = 32;
/// Bytes that a run stores and sends to the queue: a body of the largest size some times over.
const LEFT_BYTES_MAX: usize = 16 << 20;
/// How often the same error is kept, and how many errors in all.
const REPEATS_MAX: usize = 16;
const ERRORS_MAX: usize = 256;

/// Runs the plan.
pub fn run(
    plan: &Plan,
    trigger: Trigger<'_>,
    event: &EventView<'_>,
    device: &DeviceView,
    memory: &dyn Memory,
) -> Outcome {
    execute(plan, trigger, event, device, memory, Room::Own, &mut None).unwrap_or_default()
}

/// Runs the plan on a thread for which others wait. None: its code wants more than it gets there (blocks of more than 32
/// KiB, or much time, as was seen before); nothing has happened, and [`run`] is to be called where it holds up nobody.
pub fn run_shared(
    plan: &Plan,
    trigger: Trigger<'_>,
    event: &EventView<'_>,
    device: &DeviceView,
    memory: &dyn Memory,
) -> Option<Outcome> {
    execute(plan, trigger, event, device, memory, Room::Shared, &mut None)
}

/// Runs the plan and tells what each element received and produced. The trace is bounded; the outcome is that of [`run`].
pub fn run_traced(
    plan: &Plan,
    trigger: Trigger<'_>,
    event: &EventView<'_>,
    device: &DeviceView,
    memory: &dyn Memory,
) -> (Outcome, Vec<TraceStep>) {
    let mut trace = Some(Trace::default());
    let outcome = execute(plan, trigger, event, device, memory, Room::Own, &mut trace);
    (outcome.unwrap_or_default(), trace.map(Trace::into_steps).unwrap_or_default())
}

fn execute(
    plan: &Plan,
    trigger: Trigger<'_>,
    event: &EventView<'_>,
    device: &DeviceView,
    memory: &dyn Memory,
    room: Room,
    trace: &mut Option<Trace>,
) -> Option<Outcome> {
    if plan.is_empty() {
        return Some(stored_as_it_is(trigger, event, trace));
    }
    let last_texts = LastTexts::default();
    let world = World::new(plan, event, device, memory, &last_texts);
    let mut run = Run {
        plan,
        world: &world,
        event,
        memory,
        changes: Changes::none(device.status),
        budget: Budget::new(BUDGET),
        outcome: Outcome::default(),
        remembered: SmallVec::new(),
        leaving: 0,
        left_bytes: 0,
        code_time: CODE_TIME,
        room,
        leaves_the_room: false,
        trace,
    };
    run.start(trigger);
    (!run.leaves_the_room).then_some(run.outcome)
}

/// An empty cloud plane stores every event under its own elementName (contract: The project design).
fn stored_as_it_is(trigger: Trigger<'_>, event: &EventView<'_>, trace: &mut Option<Trace>) -> Outcome {
    let Trigger::DeviceEvent { element } = trigger else { return Outcome::default() };
    if let Some(trace) = trace {
        trace.begins(element, "stored", &Value::from(event.tree));
    }
    let effect = Effect::Store { element: Arc::from(element), value: event.payload.clone() };
    Outcome { effects: vec![effect], ..Outcome::default() }
}

/// A run under way.
pub(crate) struct Run<'e> {
    pub(crate) plan: &'e Plan,
    world: &'e World<'e>,
    event: &'e EventView<'e>,
    memory: &'e dyn Memory,
    pub(crate) changes: Changes<'e>,
    pub(crate) budget: Budget,
    outcome: Outcome,
    /// The states that elements have left in this run.
    remembered: SmallVec<[(u32, Bytes); 2]>,
    leaving: u32,
    left_bytes: usize,
    code_time: Duration,
    room: Room,
    /// Its code wants more than there is in the room.
    leaves_the_room: bool,
    /// What is told of the steps; only a traced run has it.
    trace: &'e mut Option<Trace>,
}

/// What an ability passes on: along which of the element's triggers, and what.
pub(crate) struct Passed<'e> {
    pub(crate) trigger: usize,
    pub(crate) value: Value<'e>,
}

impl Passed<'_> {
    /// The run goes no further here.
    pub(crate) fn nothing() -> Self {
        Self { trigger: usize::MAX, value: Value::Null }
    }
}

/// Links that are being followed.
struct Branch<'e> {
    links: std::slice::Iter<'e, Link>,
    value: Value<'e>,
}

impl<'e> Run<'e> {
    fn start(&mut self, trigger: Trigger<'_>) {
        let plan = self.plan;
        let Some(start) = plan.element(trigger.element()) else { return };
        let value = Value::from(self.event.tree);
        if let (Trigger::SettingChanged { .. }, Some(setting)) = (trigger, start.element.setting()) {
            let is_own = self.world.has_own_setting(setting, &self.changes);
            self.changes.change_setting(setting, value.clone(), is_own);
        }
        let Some(at) = start.element.begins(&trigger) else { return };
        if let Some(trace) = self.trace {
            trace.begins(&start.name, start.element.trigger_name(at), &value);
        }
        if let Some(links) = start.triggers.get(at) {
            self.follow(links, value);
        }
    }

    /// Follows links in their order, each to its end before the next.
    fn follow(&mut self, links: &'e [Link], value: Value<'e>) {
        let mut branches: SmallVec<[Branch<'e>; 4]> = SmallVec::new();
        branches.push(Branch { links: links.iter(), value });
        let mut steps = 0;
        while let Some(branch) = branches.last_mut() {
            let Some(link) = branch.links.next() else {
                branches.pop();
                continue;
            };
            let Some(target) = self.plan.elements.get(link.target as usize) else { continue };
            steps += 1;
            if steps > STEPS_MAX {
                self.fail(&target.name, Problem::new(format!("the run takes more than {STEPS_MAX} steps")));
                return;
            }
            let acted = target.element.act(link, &branch.value, self);
            if self.leaves_the_room {
                return;
            }
            if let Some(trace) = self.trace {
                trace.step(target, link, &branch.value, &acted);
            }
            match acted {
                Ok(passed) => {
                    let next = target.triggers.get(passed.trigger).filter(|links| !links.is_empty());
                    if let Some(links) = next {
                        branches.push(Branch { links: links.iter(), value: passed.value });
                    }
                }
                Err(problem) => self.fail(&target.name, problem),
            }
        }
    }

    /// An element has failed.
    pub(crate) fn fail(&mut self, element: &str, problem: Problem) {
        let errors = &mut self.outcome.errors;
        let repeats = errors.iter().filter(|error| error.element == element && error.message == problem.0).count();
        if repeats < REPEATS_MAX && errors.len() < ERRORS_MAX {
            errors.push(EventError { element: element.to_owned(), message: problem.0.into_owned() });
        }
    }

    /// What an expression gives for an incoming value.
    pub(crate) fn compute(&self, expression: &'e Expression, incoming: &Value<'e>) -> Computed<Value<'e>> {
        expression.value(&mut self.machine(incoming))
    }

    /// Whether a condition holds for an incoming value.
    pub(crate) fn holds(&self, expression: &'e Expression, incoming: &Value<'e>) -> Computed<bool> {
        expression.truth(&mut self.machine(incoming))
    }

    fn machine<'s>(&'s self, incoming: &'s Value<'e>) -> Machine<'s, 'e> {
        Machine::new(Some((self.world, &self.changes)), incoming, &self.budget)
    }

    /// The argument of that index.
    pub(crate) fn argument(&self, link: &'e Link, index: usize, incoming: &Value<'e>) -> Computed<Value<'e>> {
        match link.arguments.get(index) {
            None | Some(Argument::Incoming) => Ok(incoming.clone()),
            Some(Argument::Constant(tree, _)) => Ok(Value::from(tree)),
            Some(Argument::Computed(expression)) => self.compute(expression, incoming),
        }
    }

    /// The argument of that index, and its JSON.
    pub(crate) fn json_argument(
        &self,
        link: &'e Link,
        index: usize,
        incoming: &Value<'e>,
    ) -> Computed<(Value<'e>, RawJson)> {
        if let Some(Argument::Constant(tree, text)) = link.arguments.get(index) {
            return Ok((Value::from(tree), text.clone()));
        }
        let value = self.argument(link, index, incoming)?;
        let json = self.json(&value)?;
        Ok((value, json))
    }

    /// The JSON of a value; what the device sent keeps its bytes.
    pub(crate) fn json(&self, value: &Value<'e>) -> Computed<RawJson> {
        if is_same(value, self.event.tree) {
            return Ok(self.event.payload.clone());
        }
        let json = to_raw(value)?;
        self.budget.spend_bytes(json.bytes().len())?;
        Ok(json)
    }

    /// When the event was received.
    pub(crate) fn now(&self) -> Timestamp {
        self.event.received_at
    }

    /// Processor time that functions may still take in this run.
    pub(crate) fn code_time(&self) -> Duration {
        self.code_time
    }

    /// Where its code runs.
    pub(crate) fn room(&self) -> Room {
        self.room
    }

    /// The run ends here, to be made anew where its code has room.
    pub(crate) fn leave_the_room(&mut self) {
        self.leaves_the_room = true;
    }

    pub(crate) fn spend_code_time(&mut self, took: Duration, engines: u32) {
        self.code_time = self.code_time.saturating_sub(took);
        self.outcome.engines += engines;
    }

    /// One more message or call leaves the house; or that is refused.
    pub(crate) fn leave(&mut self) -> Computed<()> {
        self.leaving += 1;
        if self.leaving > LEAVING_MAX {
            return Err(Problem::new(format!("a run sends at most {LEAVING_MAX} notifications and calls")));
        }
        Ok(())
    }

    /// A value or a cloud event of so many bytes is left; or that is refused.
    pub(crate) fn leave_bytes(&mut self, bytes: usize) -> Computed<()> {
        let left = self.left_bytes.saturating_add(bytes);
        if left > LEFT_BYTES_MAX {
            return Err(Problem::new(format!("a run stores and sends at most {} MiB", LEFT_BYTES_MAX >> 20)));
        }
        self.left_bytes = left;
        Ok(())
    }

    /// Something should happen.
    pub(crate) fn effect(&mut self, effect: Effect) {
        self.outcome.effects.push(effect);
    }

    /// Something worth knowing of the step under way; told by a traced run only.
    pub(crate) fn note(&mut self, note: &str) {
        if let Some(trace) = self.trace {
            trace.note(note);
        }
    }

    /// Whether a setting has a value of the device's own, as this run sees it.
    pub(crate) fn has_own_setting(&self, setting: u32) -> bool {
        self.world.has_own_setting(setting, &self.changes)
    }

    /// The metadata label as this run's expressions see it.
    pub(crate) fn meta(&self, tag: &str) -> Option<Value<'e>> {
        self.changes.meta(tag).cloned().or_else(|| self.world.meta().member(tag))
    }

    /// The state that an element left, in this run or before.
    pub(crate) fn state(&self, element: u32) -> Option<Bytes> {
        let here = self.remembered.iter().find(|(other, _)| *other == element).map(|(_, state)| state.clone());
        here.or_else(|| self.memory.state(&self.plan.elements.get(element as usize)?.name))
    }

    /// An element leaves a state; its earlier one in this run no longer matters.
    pub(crate) fn remember(&mut self, element: u32, state: Bytes) {
        let Some(installed) = self.plan.elements.get(element as usize) else { return };
        let name = &installed.name;
        if self.remembered.iter().any(|(other, _)| *other == element) {
            self.remembered.retain(|(other, _)| *other != element);
            let is_earlier = |effect: &Effect| matches!(effect, Effect::Remember { element, .. } if element == name);
            self.outcome.effects.retain(|effect| !is_earlier(effect));
        }
        self.remembered.push((element, state.clone()));
        self.effect(Effect::Remember { element: name.clone(), state });
    }
}

/// Whether a value is that very tree, untouched.
fn is_same(value: &Value<'_>, tree: &Json<'_>) -> bool {
    match (value, tree) {
        (Value::Object(members), Json::Object(others)) => std::ptr::eq(*members, others.as_slice()),
        (Value::Array(items), Json::Array(others)) => std::ptr::eq(*items, others.as_slice()),
        (Value::Number(number), Json::Number(other)) => std::ptr::eq(*number, other),
        (Value::Text(text), Json::Text(other)) => std::ptr::eq(*text, other.as_ref()),
        (Value::Null, Json::Null) => true,
        (Value::Bool(truth), Json::Bool(other)) => truth == other,
        _ => false,
    }
}
