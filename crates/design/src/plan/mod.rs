//! A checked, compiled `planes.cloud`.

mod compile;

use std::sync::Arc;

use isobar_model::error::Fault;
use isobar_model::json::{Json, RawJson};
use isobar_model::retention::DesignRetention;

use crate::code::CheckTime;
use crate::elements::Element;
use crate::elements::device_event::Integration;
use crate::elements::graph::{Graph, Installed};
use crate::expression::Declarations;
use crate::value::budget::{LONG_RUN_UNITS, READ_BYTES_PER_UNIT, STEP_UNITS};
use crate::value::held_bytes::{HeldBytes as _, block};
use crate::value::setting::SettingDefinition;

/// A checked, compiled `planes.cloud`. Compiled once per specification, shared by all devices of the project.
#[derive(Debug, Default)]
pub struct Plan {
    pub(crate) graph: Graph,
    pub(crate) declarations: Declarations,
    pub(crate) reads_last: bool,
    pub(crate) habits: Habits,
}

/// Properties of a plan besides its answers to events.
#[derive(Debug, Default)]
pub(crate) struct Habits {
    pub(crate) runs_code: bool,
    pub(crate) calls_out: bool,
    pub(crate) intervals: Vec<(Arc<str>, u32)>,
    pub(crate) missing_after_minutes: Option<u32>,
    /// Most steps of a run, wherever it begins.
    pub(crate) steps: u64,
    /// Deepest nesting of macros in any expression.
    pub(crate) macros_deep: u32,
}

/// Returns the units of a step that reads a payload of this size.
fn reading_units(payload_bytes: usize) -> u64 {
    (payload_bytes / READ_BYTES_PER_UNIT + 1 + STEP_UNITS) as u64
}

impl Plan {
    /// Compiles `planes` of a specification. Every fault has its path, as in
    /// `planes.cloud.elements.high.properties.expression`.
    pub fn compile(planes: &Json<'_>) -> Result<Plan, Vec<Fault>> {
        compile::compile(planes, CheckTime::default())
    }

    /// Compiles `planes` that were compiled before. Checking their code has more time, so that a design in force stays
    /// valid.
    pub fn compile_stored(planes: &Json<'_>) -> Result<Plan, Vec<Fault>> {
        compile::compile(planes, CheckTime::of_stored())
    }

    /// Returns true if the cloud plane has no elements: every event is stored under its own elementName.
    pub fn is_empty(&self) -> bool {
        self.graph.elements.is_empty()
    }

    /// Returns the settings that the design declares, by listOrder, then name.
    pub fn settings(&self) -> &[SettingDefinition] {
        &self.declarations.settings
    }

    /// Returns a setting by name.
    pub fn setting(&self, name: &str) -> Option<&SettingDefinition> {
        match &self.graph.element(name)?.element {
            Element::DeviceSetting(setting) => self.declarations.settings.get(setting.index()),
            _ => None,
        }
    }

    /// Returns true if an element is linked to changes of a setting.
    pub fn reacts_to(&self, setting: &str) -> bool {
        self.graph.element(setting).is_some_and(|it| {
            it.element.setting().is_some() && it.triggers.first().is_some_and(|links| !links.is_empty())
        })
    }

    /// Returns true if there is an alarm element of that name.
    pub fn raises(&self, element: &str) -> bool {
        self.graph.element(element).is_some_and(|it| matches!(it.element, Element::Alarm(_)))
    }

    /// Returns true if there is any alarm element.
    pub fn has_alarms(&self) -> bool {
        !self.graph.alarms.is_empty()
    }

    /// Returns the names of the storage elements.
    pub fn storage_elements(&self) -> &[Arc<str>] {
        &self.declarations.storages
    }

    /// Returns the descriptions of a storage element's keys: an object by path, `None` if there are none.
    pub fn storage_fields(&self, name: &str) -> Option<&RawJson> {
        match &self.graph.element(name)?.element {
            Element::Storage(storage) => storage.fields(),
            _ => None,
        }
    }

    /// Returns the retention of those storage elements that limit it.
    pub fn retention(&self) -> DesignRetention {
        let bounded = self.graph.elements.iter().filter_map(|it| match &it.element {
            Element::Storage(storage) => Some((Arc::clone(&it.name), storage.retention())),
            _ => None,
        });
        bounded.filter(|(_, retention)| !retention.is_unbounded()).collect()
    }

    /// Returns true if events may be posted to this element name (any name on an empty plane).
    pub fn accepts(&self, element: &str) -> bool {
        self.is_empty() || self.event_element(element).is_some()
    }

    fn event_element(&self, name: &str) -> Option<&Installed> {
        self.graph.element(name).filter(|it| matches!(it.element, Element::DeviceEvent(_)))
    }

    /// Returns the name of an element if it accepts device events.
    pub fn event_name(&self, element: &str) -> Option<Arc<str>> {
        if self.is_empty() {
            return Some(Arc::from(element));
        }
        self.event_element(element).map(|it| Arc::clone(&it.name))
    }

    /// Returns the deviceEvent elements of an integration type, in the order of the specification.
    pub fn device_events(&self, integration: Integration) -> impl Iterator<Item = &Arc<str>> {
        self.graph.elements.iter().filter_map(move |it| match &it.element {
            Element::DeviceEvent(event) if event.integration == integration => Some(&it.name),
            _ => None,
        })
    }

    /// Returns true if any expression reads `last`, so that last values must be loaded before a run.
    pub fn reads_last(&self) -> bool {
        self.reads_last
    }

    /// Returns true if it has function elements: a run may then take milliseconds and belongs on a thread that may
    /// block.
    pub fn runs_code(&self) -> bool {
        self.habits.runs_code
    }

    /// Returns true if a run on a payload of this size may take longer than a millisecond and so belongs on a thread
    /// that serves no calls. An upper estimate, made without reading the payload: every link that an event can follow
    /// reads all of it, and nested macros each iterate over as many items as the payload can have. Other inputs (last
    /// values, states, settings, constant lists) are not estimated: if they are large, [`crate::Outcome::units`] tells
    /// afterwards.
    pub fn may_take_long(&self, payload_bytes: usize) -> bool {
        self.run_units(payload_bytes) > LONG_RUN_UNITS
    }

    /// Returns the units that a run on a payload of this size may take, by that estimate.
    pub fn run_units(&self, payload_bytes: usize) -> u64 {
        // On an empty plane the value is merged, which takes two readings.
        self.units_of(self.habits.steps.max(2), payload_bytes)
    }

    /// Returns the units to change a setting to a value of this size, including the run that it triggers, by that
    /// estimate.
    pub fn change_units(&self, setting: &str, payload_bytes: usize) -> u64 {
        match self.graph.element(setting).map(|it| it.steps).filter(|steps| *steps > 0) {
            Some(steps) => self.units_of(steps.saturating_add(1), payload_bytes),
            // The value is read and checked against its definition.
            None => reading_units(payload_bytes),
        }
    }

    fn units_of(&self, steps: u64, payload_bytes: usize) -> u64 {
        // An item of a list takes at least two bytes.
        let items = (payload_bytes / 2).max(1) as u64;
        let rounds = items.saturating_pow(self.habits.macros_deep.saturating_sub(1));
        steps.saturating_mul(reading_units(payload_bytes)).saturating_mul(rounds)
    }

    /// Returns true if it calls servers outside (http elements).
    pub fn calls_out(&self) -> bool {
        self.habits.calls_out
    }

    /// Returns the interval elements, each with its interval in minutes, at least 1.
    pub fn intervals(&self) -> impl Iterator<Item = (&Arc<str>, u32)> {
        self.habits.intervals.iter().map(|(element, minutes)| (element, *minutes))
    }

    /// Returns the minutes, at least 1, without an event after which a device is missing; the shortest of several
    /// deviceMeta.
    pub fn missing_after_minutes(&self) -> Option<u32> {
        self.habits.missing_after_minutes
    }

    /// Returns an upper estimate of the plan's memory in bytes, without the engines that run its code: each thread
    /// keeps a few.
    pub fn held_bytes(&self) -> usize {
        let intervals = block(self.habits.intervals.capacity() * size_of::<(Arc<str>, u32)>());
        size_of::<Self>() + self.graph.held_bytes() + self.declarations.held_bytes() + intervals
    }
}
