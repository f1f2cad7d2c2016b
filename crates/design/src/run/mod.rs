//! Runs: an event follows the links of the plan and produces effects.

pub(crate) mod trace;

use std::sync::Arc;

use smallvec::SmallVec;

use crate::code::CodeThread;
use crate::elements::Element;
use crate::elements::context::Run;
use crate::elements::graph::{Graph, Link};
use crate::expression::{LastTexts, World};
use crate::plan::Plan;
use crate::value::Value;
use crate::value::budget::Budget;
use crate::value::effect::{Effect, Outcome};
use crate::value::failures::Failures;
use crate::value::inputs::{DeviceView, EventView, Memory, Trigger};
use trace::{Trace, TraceStep};

/// Runs the plan.
pub fn run(
    plan: &Plan,
    trigger: Trigger<'_>,
    event: &EventView<'_>,
    device: &DeviceView,
    memory: &dyn Memory,
) -> Outcome {
    execute(plan, trigger, event, device, memory, Place::Aside(CodeThread::Own), &mut None).unwrap_or_default()
}

/// Runs a plan without code on a thread that serves calls. Returns `None`, without effects, if it takes more than a
/// millisecond at worst ([`crate::LONG_RUN_UNITS`]) or emits more than [`crate::SHORT_RUN_BYTES_MAX`]: then call
/// [`run`] on a thread that may block.
pub fn run_short(
    plan: &Plan,
    trigger: Trigger<'_>,
    event: &EventView<'_>,
    device: &DeviceView,
    memory: &dyn Memory,
) -> Option<Outcome> {
    execute(plan, trigger, event, device, memory, Place::AmongCalls, &mut None)
}

/// Runs the plan on a thread that other runs share. Returns `None`, without effects, if its code needs more than it
/// gets there (blocks of more than 32 KiB, or much time, as seen before): then call [`run`] on a thread of its own.
pub fn run_shared(
    plan: &Plan,
    trigger: Trigger<'_>,
    event: &EventView<'_>,
    device: &DeviceView,
    memory: &dyn Memory,
) -> Option<Outcome> {
    execute(plan, trigger, event, device, memory, Place::Aside(CodeThread::Shared), &mut None)
}

/// Runs the plan and traces what each element received and produced, within limits on values, errors and notes
/// together. The outcome equals that of [`run`].
pub fn run_traced(
    plan: &Plan,
    trigger: Trigger<'_>,
    event: &EventView<'_>,
    device: &DeviceView,
    memory: &dyn Memory,
) -> (Outcome, Vec<TraceStep>) {
    let mut trace = Some(Trace::default());
    let outcome = execute(plan, trigger, event, device, memory, Place::Aside(CodeThread::Own), &mut trace);
    (outcome.unwrap_or_default(), trace.map(Trace::into_steps).unwrap_or_default())
}

/// Kind of thread of a run, which decides its limits.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// A thread that serves calls.
    AmongCalls,
    /// Another thread.
    Aside(CodeThread),
}

impl Place {
    /// Returns true if a run has exceeded its limits there and ends without an outcome.
    fn ends(self, budget: &Budget) -> bool {
        matches!(self, Self::AmongCalls) && budget.is_exceeded()
    }
}

fn execute(
    plan: &Plan,
    trigger: Trigger<'_>,
    event: &EventView<'_>,
    device: &DeviceView,
    memory: &dyn Memory,
    place: Place,
    trace: &mut Option<Trace>,
) -> Option<Outcome> {
    let (budget, code_thread) = match place {
        Place::AmongCalls => (Budget::of_short_run(), CodeThread::Shared),
        Place::Aside(thread) => (Budget::of_run(), thread),
    };
    if plan.is_empty() {
        return stored_as_it_is(trigger, event, memory, (budget, place), trace);
    }
    let last_texts = LastTexts::default();
    let world = World::new(&plan.declarations, event, device, memory, &last_texts);
    let run = Run::new(&plan.graph, &world, budget, code_thread, trace.is_some());
    let mut walk = Walk { graph: &plan.graph, run, place, trace };
    walk.start(trigger);
    let is_whole = !walk.is_given_up();
    is_whole.then(|| walk.run.into_outcome())
}

/// Stores an event under its own elementName, on an empty cloud plane (contract: The project design).
fn stored_as_it_is(
    trigger: Trigger<'_>,
    event: &EventView<'_>,
    memory: &dyn Memory,
    (mut budget, place): (Budget, Place),
    trace: &mut Option<Trace>,
) -> Option<Outcome> {
    let Trigger::DeviceEvent { element } = trigger else { return Some(Outcome::default()) };
    if let Some(trace) = trace {
        trace.begins(element, "stored", &Value::from(event.tree), Vec::new());
    }
    let mut failures = Failures::default();
    // Stored whatever it costs: nothing else follows.
    let _ = budget.spend_merging(memory.last_bytes(element) + event.payload.bytes().len());
    let effect = Effect::Store { element: Arc::from(element), value: event.payload.clone() };
    if let Err(problem) = budget.emit(effect) {
        failures.add(element, &problem);
    }
    let is_whole = !place.ends(&budget);
    is_whole.then(|| Outcome::of(budget, failures, 0))
}

/// A run that follows links.
struct Walk<'e> {
    graph: &'e Graph,
    run: Run<'e>,
    place: Place,
    /// Trace of the steps, for a traced run.
    trace: &'e mut Option<Trace>,
}

/// Links that are being followed.
struct Branch<'e> {
    links: std::slice::Iter<'e, Link>,
    value: Value<'e>,
}

impl<'e> Walk<'e> {
    fn start(&mut self, trigger: Trigger<'_>) {
        let graph = self.graph;
        let Some(start) = graph.element(trigger.element()) else { return };
        let value = self.run.payload();
        if let (Trigger::SettingChanged { .. }, Some(setting)) = (trigger, start.element.setting()) {
            self.run.note_setting(setting, value.clone());
        }
        let Some(at) = start.element.begins(&trigger) else { return };
        if let (Trigger::AlarmCleared { key, .. }, Element::Alarm(alarm)) = (trigger, &start.element) {
            let index = graph.index(&start.name).unwrap_or_default();
            match alarm.clear(key, index, &mut self.run) {
                Ok(true) => {}
                Ok(false) => return,
                Err(problem) => return self.run.fail(&start.name, &problem),
            }
        }
        if let Some(trace) = self.trace {
            trace.begins(&start.name, start.shape.trigger_name(at), &value, self.run.take_notes());
        }
        if let Some(links) = start.triggers.get(at) {
            self.follow(links, value);
        }
    }

    /// Follows links in order, each to its end before the next.
    fn follow(&mut self, links: &'e [Link], value: Value<'e>) {
        let mut branches: SmallVec<[Branch<'e>; 4]> = SmallVec::new();
        branches.push(Branch { links: links.iter(), value });
        while let Some(branch) = branches.last_mut() {
            let Some(link) = branch.links.next() else {
                branches.pop();
                continue;
            };
            let Some(target) = self.graph.elements.get(link.target as usize) else { continue };
            if let Err(problem) = self.run.budget.step() {
                self.run.fail(&target.name, &problem);
                return;
            }
            let acted = target.element.act(link, &branch.value, &mut self.run);
            if self.is_given_up() {
                return;
            }
            if let Some(trace) = self.trace {
                trace.step(target, link, &branch.value, &acted, self.run.take_notes());
            }
            match acted {
                Ok(passed) => {
                    let next = target.triggers.get(passed.trigger).filter(|links| !links.is_empty());
                    if let Some(links) = next {
                        branches.push(Branch { links: links.iter(), value: passed.value });
                    }
                }
                Err(problem) => self.run.fail(&target.name, &problem),
            }
        }
    }

    /// Returns true if the run must be repeated on another thread.
    fn is_given_up(&self) -> bool {
        self.run.needs_own_thread() || self.place.ends(&self.run.budget)
    }
}
