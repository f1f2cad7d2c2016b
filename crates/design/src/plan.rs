//! A checked, compiled `planes.cloud`.

use std::collections::BTreeMap;
use std::sync::Arc;

use isobar_model::error::Fault;
use isobar_model::json::{Json, RawJson};
use isobar_model::retention::DesignRetention;

use crate::budget::{LONG_RUN_UNITS, READ_BYTES_PER_UNIT, STEP_UNITS};
use crate::code::CheckTime;
use crate::elements::device_event::Integration;
use crate::elements::function::CodeElement;
use crate::elements::{Element, Shape};
use crate::expression::Expression;
use crate::setting::SettingDefinition;

/// A checked, compiled `planes.cloud`. Compiled once per specification, shared by all devices of the project.
#[derive(Debug, Default)]
pub struct Plan {
    pub(crate) elements: Vec<Installed>,
    /// Where an element is, by its name: ordered, for the names are a client's choice, and mostly there are few.
    pub(crate) by_name: BTreeMap<Arc<str>, u32>,
    /// By listOrder, then name.
    pub(crate) settings: Vec<SettingDefinition>,
    /// The trees of their default values.
    pub(crate) defaults: Vec<Json<'static>>,
    pub(crate) storages: Vec<Arc<str>>,
    pub(crate) reads_last: bool,
    pub(crate) habits: Habits,
}

/// What a plan does besides answering events, gathered once.
#[derive(Debug, Default)]
pub(crate) struct Habits {
    pub(crate) runs_code: bool,
    pub(crate) calls_out: bool,
    pub(crate) intervals: Vec<(Arc<str>, u32)>,
    pub(crate) missing_after_minutes: Option<u32>,
    /// The most steps that a run can take, wherever it begins.
    pub(crate) steps: u64,
    /// How deep macros stand in macros, in any expression.
    pub(crate) macros_deep: u32,
}

/// An element in its place.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) name: Arc<str>,
    pub(crate) shape: &'static Shape,
    pub(crate) element: Element,
    /// Links by trigger, in the order of the element type's triggers.
    pub(crate) triggers: Vec<Vec<Link>>,
    /// The most steps that a run takes which begins here.
    pub(crate) steps: u64,
}

/// A link to an ability of another element.
#[derive(Debug)]
pub(crate) struct Link {
    /// The element, by its index in the plan.
    pub(crate) target: u32,
    /// The ability, by its index in the element type's abilities.
    pub(crate) ability: usize,
    /// One for each argument of the ability.
    pub(crate) arguments: Vec<Argument>,
}

/// What an ability gets for an argument.
#[derive(Debug)]
pub(crate) enum Argument {
    /// The incoming value.
    Incoming,
    /// A JSON value that is itself; its tree and its text.
    Constant(Json<'static>, RawJson),
    /// What an expression gives.
    Computed(Expression),
}

/// Units of a step that reads a payload of so many bytes.
fn reading_units(payload_bytes: usize) -> u64 {
    (payload_bytes / READ_BYTES_PER_UNIT + 1 + STEP_UNITS) as u64
}

impl Plan {
    /// Compiles `planes` of a specification. Every fault has its path, as in
    /// `planes.cloud.elements.high.properties.expression`.
    pub fn compile(planes: &Json<'_>) -> Result<Plan, Vec<Fault>> {
        crate::compile::compile(planes, CheckTime::default())
    }

    /// Compiles `planes` that were compiled before: their code has more time, so that what was in force stays so.
    pub fn compile_stored(planes: &Json<'_>) -> Result<Plan, Vec<Fault>> {
        crate::compile::compile(planes, CheckTime::of_stored())
    }

    /// Whether the cloud plane has no elements: every event is stored under its own elementName.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// The settings that the design declares, by listOrder, then name.
    pub fn settings(&self) -> &[SettingDefinition] {
        &self.settings
    }

    /// One of them.
    pub fn setting(&self, name: &str) -> Option<&SettingDefinition> {
        match &self.element(name)?.element {
            Element::DeviceSetting(setting) => self.settings.get(setting.index()),
            _ => None,
        }
    }

    /// Whether anything is linked to the changes of a setting.
    pub fn reacts_to(&self, setting: &str) -> bool {
        self.element(setting).is_some_and(|it| {
            it.element.setting().is_some() && it.triggers.first().is_some_and(|links| !links.is_empty())
        })
    }

    /// Whether it has an alarm element of that name.
    pub fn raises(&self, element: &str) -> bool {
        self.element(element).is_some_and(|it| matches!(it.element, Element::Alarm(_)))
    }

    /// The names of the storage elements.
    pub fn storage_elements(&self) -> &[Arc<str>] {
        &self.storages
    }

    /// Returns what the design says of the keys of a storage element's values: an object by path, none if it says nothing.
    pub fn storage_fields(&self, name: &str) -> Option<&RawJson> {
        match &self.element(name)?.element {
            Element::Storage(storage) => storage.fields(),
            _ => None,
        }
    }

    /// What is kept of the values of those storage elements that bound it.
    pub fn retention(&self) -> DesignRetention {
        let bounded = self.elements.iter().filter_map(|it| match &it.element {
            Element::Storage(storage) => Some((Arc::clone(&it.name), storage.retention())),
            _ => None,
        });
        bounded.filter(|(_, retention)| !retention.is_unbounded()).collect()
    }

    /// Whether events may be posted to this element name (any name on an empty plane).
    pub fn accepts(&self, element: &str) -> bool {
        self.is_empty() || self.event_element(element).is_some()
    }

    fn event_element(&self, name: &str) -> Option<&Installed> {
        self.element(name).filter(|it| matches!(it.element, Element::DeviceEvent(_)))
    }

    /// The name of an element that takes device events; none if this one does not.
    pub fn event_name(&self, element: &str) -> Option<Arc<str>> {
        if self.is_empty() {
            return Some(Arc::from(element));
        }
        self.event_element(element).map(|it| Arc::clone(&it.name))
    }

    /// The deviceEvent elements of an integration type, in the order of the specification.
    pub fn device_events(&self, integration: Integration) -> impl Iterator<Item = &Arc<str>> {
        self.elements.iter().filter_map(move |it| match &it.element {
            Element::DeviceEvent(event) if event.integration == integration => Some(&it.name),
            _ => None,
        })
    }

    /// Whether any expression reads `last` (so that last values must be loaded before a run).
    pub fn reads_last(&self) -> bool {
        self.reads_last
    }

    /// Whether it has code of its own (function elements): a run may then take milliseconds, and belongs where it may block.
    pub fn runs_code(&self) -> bool {
        self.habits.runs_code
    }

    /// Whether a run on a payload of so many bytes may take longer than a millisecond: then it belongs on a thread on which
    /// nobody waits. An upper estimate, made without a look at the payload: every link that an event can follow reads all of
    /// it, and of macros within macros each goes over as many items as the payload can have. What a run reads besides (last
    /// values, states, settings, lists that stand in expressions) is not known here: [`crate::run_short`] gives it up.
    pub fn may_take_long(&self, payload_bytes: usize) -> bool {
        self.run_units(payload_bytes) > LONG_RUN_UNITS
    }

    /// Units that a run on a payload of so many bytes may take, by that estimate.
    pub fn run_units(&self, payload_bytes: usize) -> u64 {
        // On an empty plane the value is merged, which is two readings.
        self.units_of(self.habits.steps.max(2), payload_bytes)
    }

    /// Units that it may take to change a setting to a value of so many bytes, with the run that follows on it, by that
    /// estimate.
    pub fn change_units(&self, setting: &str, payload_bytes: usize) -> u64 {
        match self.element(setting).map(|it| it.steps).filter(|steps| *steps > 0) {
            Some(steps) => self.units_of(steps.saturating_add(1), payload_bytes),
            // It is read, and held against its definition.
            None => reading_units(payload_bytes),
        }
    }

    fn units_of(&self, steps: u64, payload_bytes: usize) -> u64 {
        // An item of a list takes two bytes.
        let items = (payload_bytes / 2).max(1) as u64;
        let rounds = items.saturating_pow(self.habits.macros_deep.saturating_sub(1));
        steps.saturating_mul(reading_units(payload_bytes)).saturating_mul(rounds)
    }

    /// Whether any of its code has lately taken time that others would feel (5 ms in a call). Such code gets what others leave
    /// of the processors.
    pub fn has_heavy_code(&self) -> bool {
        self.functions().any(CodeElement::is_heavy)
    }

    /// Whether any of its code was seen to want large blocks of memory, or far more time than it has.
    pub fn has_large_code(&self) -> bool {
        self.functions().any(CodeElement::is_large)
    }

    fn functions(&self) -> impl Iterator<Item = &CodeElement> {
        self.elements.iter().filter_map(|it| match &it.element {
            Element::Function(function) => Some(function),
            _ => None,
        })
    }

    /// Whether it calls servers outside (http elements).
    pub fn calls_out(&self) -> bool {
        self.habits.calls_out
    }

    /// The interval elements, each with its minutes (1 and more).
    pub fn intervals(&self) -> impl Iterator<Item = (&Arc<str>, u32)> {
        self.habits.intervals.iter().map(|(element, minutes)| (element, *minutes))
    }

    /// After how many minutes (1 and more) without an event a device is missing; of several deviceMeta the shortest time holds.
    pub fn missing_after_minutes(&self) -> Option<u32> {
        self.habits.missing_after_minutes
    }

    pub(crate) fn element(&self, name: &str) -> Option<&Installed> {
        self.by_name.get(name).and_then(|at| self.elements.get(*at as usize))
    }
}
