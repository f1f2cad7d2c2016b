//! Runs: an event follows the links of the plan and produces effects.

pub(crate) mod trace;

use std::sync::Arc;

use smallvec::SmallVec;

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

/// Runs the plan, to its end on this thread: see [`Plan::run_units`] for how long that may take.
pub fn run(
    plan: &Plan,
    trigger: Trigger<'_>,
    event: &EventView<'_>,
    device: &DeviceView,
    memory: &dyn Memory,
) -> Outcome {
    execute(plan, trigger, event, device, memory, &mut None)
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
    let outcome = execute(plan, trigger, event, device, memory, &mut trace);
    (outcome, trace.map(Trace::into_steps).unwrap_or_default())
}

fn execute(
    plan: &Plan,
    trigger: Trigger<'_>,
    event: &EventView<'_>,
    device: &DeviceView,
    memory: &dyn Memory,
    trace: &mut Option<Trace>,
) -> Outcome {
    if plan.is_empty() {
        return stored_as_it_is(trigger, event, memory, trace);
    }
    let last_texts = LastTexts::default();
    let world = World::new(&plan.declarations, event, device, memory, &last_texts);
    let run = Run::new(&plan.graph, &world, Budget::of_run(), trace.is_some());
    let mut walk = Walk { graph: &plan.graph, run, trace };
    walk.start(trigger);
    walk.lists_alarms();
    walk.run.into_outcome()
}

/// Stores an event under its own elementName, on an empty cloud plane (contract: The project design).
fn stored_as_it_is(
    trigger: Trigger<'_>,
    event: &EventView<'_>,
    memory: &dyn Memory,
    trace: &mut Option<Trace>,
) -> Outcome {
    let Trigger::DeviceEvent { element } = trigger else { return Outcome::default() };
    let mut budget = Budget::of_run();
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
    Outcome::of(budget, failures, 0)
}

/// A run that follows links.
struct Walk<'e> {
    graph: &'e Graph,
    run: Run<'e>,
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

    /// Lists the active alarms that the list lacks, as after a restore.
    fn lists_alarms(&mut self) {
        for index in &self.graph.alarms {
            if let Some(Element::Alarm(alarm)) = self.graph.elements.get(*index as usize).map(|it| &it.element) {
                alarm.list(*index, &mut self.run);
            }
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
}
