//! A run as its elements see it: what they read, and where they leave effects, states and failures.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use isobar_model::alarm::{AlarmFinding, ListedAlarms};
use isobar_model::event::STATE_BYTES_BESIDE;
use isobar_model::json::{Json, RawJson};
use isobar_model::meta::MetaSize;
use isobar_model::time::Timestamp;

use super::graph::{Argument, ELEMENTS_MAX, Graph, Link};
use crate::expression::{Changes, Declarations, Expression, Machine, SettingsSize, World, to_raw};
use crate::value::budget::Budget;
use crate::value::effect::{Effect, Outcome};
use crate::value::failures::Failures;
use crate::value::inputs::{EventView, Memory};
use crate::value::{Computed, Problem, Value};

/// Most processor time of all functions of one run together.
const CODE_TIME: Duration = Duration::from_millis(200);
/// Most bytes of the states of a device's elements, with their names. Larger states of older data stay, but cannot
/// grow.
pub(crate) const STATES_BYTES_MAX: usize = 1 << 20;
/// Most notes of one step, and their longest length in characters.
const NOTES_MAX: usize = 32;
const NOTE_CHARS_MAX: usize = 1_000;

/// A run in progress.
pub(crate) struct Run<'e> {
    graph: &'e Graph,
    pub(crate) declarations: &'e Declarations,
    world: &'e World<'e>,
    event: &'e EventView<'e>,
    memory: &'e dyn Memory,
    pub(crate) changes: Changes<'e>,
    pub(crate) budget: Budget,
    failures: Failures,
    /// Size of all element states after this run in bytes; `None` before it has set one.
    states_bytes: Option<usize>,
    /// Storage elements whose last values the run has changed.
    merged: Chosen,
    /// Alarms that the list shows as active, with the changes of this run.
    pub(crate) listed: Arc<ListedAlarms>,
    code_time: Duration,
    engines: u32,
    /// Notes of the current step, for a traced run.
    notes: Option<Vec<String>>,
}

/// Set of elements of a plan, by index.
#[derive(Default)]
struct Chosen([u64; ELEMENTS_MAX.div_ceil(64)]);

impl Chosen {
    /// Adds an element. Returns true if it was absent.
    fn add(&mut self, element: u32) -> bool {
        let Some(word) = self.0.get_mut(element as usize / 64) else { return true };
        let bit = 1 << (element % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

/// Value that an ability passes on, and the index of the element's trigger.
pub(crate) struct Passed<'e> {
    pub(crate) trigger: usize,
    pub(crate) value: Value<'e>,
}

impl Passed<'_> {
    /// Returns a result that ends the run at this element.
    pub(crate) fn nothing() -> Self {
        Self { trigger: usize::MAX, value: Value::Null }
    }
}

impl<'e> Run<'e> {
    pub(crate) fn new(graph: &'e Graph, world: &'e World<'e>, budget: Budget, is_traced: bool) -> Self {
        Self {
            graph,
            declarations: world.declarations,
            world,
            event: world.event,
            memory: world.memory,
            changes: Changes::none(world.device.status),
            budget,
            failures: Failures::default(),
            states_bytes: None,
            merged: Chosen::default(),
            listed: Arc::clone(&world.device.alarms),
            code_time: CODE_TIME,
            engines: 0,
            notes: is_traced.then(Vec::new),
        }
    }

    pub(crate) fn into_outcome(self) -> Outcome {
        Outcome::of(self.budget, self.failures, self.engines)
    }

    /// Returns the payload, with which the run begins.
    pub(crate) fn payload(&self) -> Value<'e> {
        Value::from(self.event.tree)
    }

    /// Notes the value of a setting whose change has triggered the run.
    pub(crate) fn note_setting(&mut self, setting: u32, value: Value<'e>) {
        let own_bytes = self.world.own_bytes(setting, &self.changes);
        self.changes.note_setting(setting, value, own_bytes);
    }

    /// Records the failure of an element.
    pub(crate) fn fail(&mut self, element: &str, problem: &Problem) {
        self.failures.add(element, problem);
    }

    /// Evaluates an expression on an incoming value.
    pub(crate) fn compute(&self, expression: &'e Expression, incoming: &Value<'e>) -> Computed<Value<'e>> {
        let value = expression.value(&mut self.machine(incoming))?;
        self.budget.spend_number(&value)?;
        Ok(value)
    }

    /// Evaluates a condition on an incoming value.
    pub(crate) fn holds(&self, expression: &'e Expression, incoming: &Value<'e>) -> Computed<bool> {
        expression.truth(&mut self.machine(incoming))
    }

    fn machine<'s>(&'s self, incoming: &'s Value<'e>) -> Machine<'s, 'e> {
        Machine::new(Some((self.world, &self.changes)), incoming, &self.budget)
    }

    /// Returns the argument at an index.
    pub(crate) fn argument(&self, link: &'e Link, index: usize, incoming: &Value<'e>) -> Computed<Value<'e>> {
        match link.arguments.get(index) {
            None | Some(Argument::Incoming) => {
                self.budget.spend_number(incoming)?;
                Ok(incoming.clone())
            }
            Some(Argument::Constant(tree, _)) => {
                let value = Value::from(tree);
                self.budget.spend_number(&value)?;
                Ok(value)
            }
            Some(Argument::Computed(expression)) => self.compute(expression, incoming),
        }
    }

    /// Returns the argument at an index, with its JSON.
    pub(crate) fn json_argument(
        &self,
        link: &'e Link,
        index: usize,
        incoming: &Value<'e>,
    ) -> Computed<(Value<'e>, RawJson)> {
        let value = self.argument(link, index, incoming)?;
        if let Some(Argument::Constant(_, text)) = link.arguments.get(index) {
            return Ok((value, text.clone()));
        }
        let json = self.json(&value)?;
        Ok((value, json))
    }

    /// Converts a value to JSON; an unchanged payload keeps its bytes.
    pub(crate) fn json(&self, value: &Value<'e>) -> Computed<RawJson> {
        if is_same(value, self.event.tree) {
            return Ok(self.event.payload.clone());
        }
        to_raw(value, &self.budget)
    }

    /// Returns the parsed tree of the JSON if it is the payload, which need not be parsed again.
    pub(crate) fn tree_of(&self, json: &RawJson) -> Option<&'e Json<'e>> {
        std::ptr::eq(json.bytes(), self.event.payload.bytes()).then_some(self.event.tree)
    }

    /// Returns the time of receipt.
    pub(crate) fn received_at(&self) -> Timestamp {
        self.event.received_at
    }

    /// Returns the time of the clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.event.now
    }

    /// Returns the processor time left for functions of this run.
    pub(crate) fn code_time(&self) -> Duration {
        self.code_time
    }

    pub(crate) fn spend_code_time(&mut self, took: Duration, engines: u32) {
        self.code_time = self.code_time.saturating_sub(took);
        self.engines += engines;
    }

    /// Stores a value of a storage element. Merging it into the last values is charged, once for all values of the run.
    pub(crate) fn store(&mut self, index: u32, element: &Arc<str>, value: RawJson) -> Computed<()> {
        // Other values than objects are not merged.
        if value.bytes().first() == Some(&b'{') {
            self.budget.spend_merging(value.bytes().len())?;
        }
        if self.merged.add(index) {
            self.budget.spend_merging(self.memory.last_bytes(element))?;
        }
        self.budget.emit(Effect::Store { element: Arc::clone(element), value })
    }

    /// Adds a note to the current step of a traced run.
    pub(crate) fn note(&mut self, note: &str) {
        if let Some(notes) = self.notes.as_mut().filter(|notes| notes.len() < NOTES_MAX) {
            notes.push(note.chars().take(NOTE_CHARS_MAX).collect());
        }
    }

    /// Returns the notes of the current step, which ends.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        self.notes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns true if the device has its own value of a setting, as this run sees it.
    pub(crate) fn has_own_setting(&self, setting: u32) -> Computed<bool> {
        self.world.finds_own_setting(setting, &self.changes, &self.budget)
    }

    /// Returns the size of the device's own settings with this value of a setting, or with its default; an error if too
    /// large.
    pub(crate) fn settings_size_with(&self, setting: u32, value: Option<&RawJson>) -> Computed<SettingsSize> {
        self.world.settings_size_with(setting, value, &self.changes, &self.budget)
    }

    /// Returns a metadata label as this run's expressions see it.
    pub(crate) fn label(&self, tag: &str) -> Computed<Option<Value<'e>>> {
        if let Some(changed) = self.changes.labels.get(tag) {
            return Ok(Some(changed.clone()));
        }
        self.world.meta(&self.budget)?.member(tag, &self.budget)
    }

    /// Returns the size of the metadata before this run.
    pub(crate) fn meta_size(&self) -> Computed<MetaSize> {
        let before = self.world.meta(&self.budget)?;
        Ok(MetaSize { labels: before.len().unwrap_or(0), bytes: self.world.meta_bytes() })
    }

    /// Returns the state of an element, set in this run or before.
    pub(crate) fn state(&self, element: u32) -> Option<Bytes> {
        let name = &self.graph.elements.get(element as usize)?.name;
        let state = self.budget.state(name).or_else(|| self.memory.state(name));
        state.filter(|state| !state.is_empty())
    }

    /// Sets the state of an element, if it fits among those of the device.
    pub(crate) fn remember(&mut self, element: u32, state: Bytes) -> Computed<()> {
        let Some(installed) = self.graph.elements.get(element as usize) else { return Ok(()) };
        let name = &installed.name;
        let weight = |state: &Bytes| name.len() + state.len() + STATE_BYTES_BESIDE;
        let before = self.state(element).as_ref().map_or(0, weight);
        let grows = weight(&state) > before;
        let others = |run: &Self| run.states_bytes.unwrap_or_else(|| run.memory.states_bytes()).saturating_sub(before);
        let mut after = others(self) + weight(&state);
        if grows && after > STATES_BYTES_MAX {
            self.forget_strangers()?;
            after = others(self) + weight(&state);
        }
        if grows && after > STATES_BYTES_MAX {
            let most = STATES_BYTES_MAX >> 10;
            return Err(Problem::new(format!("what the elements of a device remember takes at most {most} KiB")));
        }
        self.budget.emit(Effect::Remember { element: Arc::clone(name), state })?;
        self.states_bytes = Some(after);
        Ok(())
    }

    /// Sets the state of an alarm element, and emits what the list is to show; both or neither.
    pub(crate) fn remember_alarm(&mut self, element: u32, state: Bytes, finding: AlarmFinding) -> Computed<()> {
        let others_bytes = finding.element.len() + state.len();
        let effect = Effect::Alarm(Box::new(finding));
        self.budget.may_emit(&effect, others_bytes)?;
        self.remember(element, state)?;
        self.list_alarm(effect)
    }

    /// Emits what the list is to show of an alarm.
    pub(crate) fn list_alarm(&mut self, effect: Effect) -> Computed<()> {
        if let Effect::Alarm(finding) = &effect
            && !self.listed.shows(finding)
        {
            Arc::make_mut(&mut self.listed).apply(finding);
        }
        self.budget.emit(effect)
    }

    /// Deletes states of elements that the design no longer has, to make room.
    fn forget_strangers(&mut self) -> Computed<()> {
        let states = self.memory.states();
        self.budget.spend(states.len())?;
        let mut bytes = self.states_bytes.unwrap_or_else(|| self.memory.states_bytes());
        for (element, state) in states {
            let is_known = self.graph.element(&element).is_some_and(|it| it.element.remembers());
            if !is_known && self.budget.state(&element).is_none() {
                bytes = bytes.saturating_sub(element.len() + state + STATE_BYTES_BESIDE);
                self.budget.emit(Effect::Forget { element })?;
            }
        }
        self.states_bytes = Some(bytes);
        Ok(())
    }
}

/// Returns true if a value is exactly that tree, by address.
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
