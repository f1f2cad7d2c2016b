//! Element types of a cloud plane, one file each: a shape, a reader of its properties, and its abilities.

pub(crate) mod alarm;
pub(crate) mod changed;
pub(crate) mod cloud_event;
pub(crate) mod condition;
pub(crate) mod context;
pub(crate) mod device_event;
pub(crate) mod device_meta;
pub(crate) mod device_setting;
mod fields;
pub(crate) mod function;
pub(crate) mod graph;
pub(crate) mod http;
pub(crate) mod interval;
pub(crate) mod meaning;
pub(crate) mod notification;
mod payload_bytes;
pub(crate) mod properties;
mod reference;
pub(crate) mod storage;
pub(crate) mod template;
pub(crate) mod throttle;
pub(crate) mod transform;
pub(crate) mod window;

use context::{Passed, Run};
use graph::Link;
use properties::Properties;

use crate::value::held_bytes::HeldBytes;
use crate::value::inputs::Trigger;
use crate::value::{Computed, Problem, Value};

/// Abilities and triggers of an element type (contract: The project design, the table).
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) abilities: &'static [Ability],
    pub(crate) triggers: &'static [&'static str],
    /// Reads the properties of an element of this type.
    pub(crate) read: fn(&mut Properties<'_>) -> Element,
}

/// An ability: its name and those of its arguments.
#[derive(Debug)]
pub(crate) struct Ability {
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static [&'static str],
}

/// The usable element types.
pub(crate) const SHAPES: [&Shape; 15] = [
    &device_event::SHAPE,
    &storage::SHAPE,
    &cloud_event::SHAPE,
    &device_setting::SHAPE,
    &device_meta::SHAPE,
    &condition::SHAPE,
    &transform::SHAPE,
    &changed::SHAPE,
    &function::SHAPE,
    &window::SHAPE,
    &throttle::SHAPE,
    &notification::SHAPE,
    &alarm::SHAPE,
    &http::SHAPE,
    &interval::SHAPE,
];

impl Shape {
    /// Finds the shape of a type; the error says what is wrong.
    pub(crate) fn named(name: &str) -> Result<&'static Shape, String> {
        let found = SHAPES.into_iter().find(|shape| shape.name == name);
        found.ok_or_else(|| "unknown element type".to_owned())
    }

    /// Returns the name of a trigger.
    pub(crate) fn trigger_name(&self, at: usize) -> &'static str {
        self.triggers.get(at).copied().unwrap_or_default()
    }
}

/// An element, with its properties.
#[derive(Debug)]
pub(crate) enum Element {
    DeviceEvent(device_event::DeviceEvent),
    Storage(storage::Storage),
    CloudEvent(cloud_event::CloudEvent),
    DeviceSetting(device_setting::DeviceSetting),
    DeviceMeta(device_meta::DeviceMeta),
    Condition(condition::Condition),
    Transform(transform::Transform),
    Changed(changed::Changed),
    Function(function::CodeElement),
    Window(window::Window),
    Throttle(throttle::Throttle),
    Notification(notification::Notification),
    Alarm(alarm::Alarm),
    Http(http::Http),
    Interval(interval::Interval),
}

impl Element {
    /// Uses the ability of a link.
    pub(crate) fn act<'e>(&'e self, link: &'e Link, incoming: &Value<'e>, run: &mut Run<'e>) -> Computed<Passed<'e>> {
        match self {
            Element::DeviceEvent(_) => Err(Problem::new("a deviceEvent has no abilities")),
            Element::Storage(storage) => storage.store(link, incoming, run),
            Element::CloudEvent(event) => event.send(link, incoming, run),
            Element::DeviceSetting(setting) => setting.act(link, incoming, run),
            Element::DeviceMeta(_) => device_meta::act(link, incoming, run),
            Element::Condition(condition) => condition.evaluate(incoming, run),
            Element::Transform(transform) => transform.evaluate(incoming, run),
            Element::Changed(changed) => changed.evaluate(link, incoming, run),
            Element::Function(function) => function.evaluate(incoming, run),
            Element::Window(window) => window.push(link, incoming, run),
            Element::Throttle(throttle) => throttle.pass(link, incoming, run),
            Element::Notification(notification) => notification.notify(incoming, run),
            Element::Alarm(alarm) => alarm.act(link, incoming, run),
            Element::Http(http) => http.request(incoming, run),
            Element::Interval(_) => Err(Problem::new("an interval has no abilities")),
        }
    }

    /// Returns true if it keeps a state for later runs.
    pub(crate) fn remembers(&self) -> bool {
        matches!(self, Element::Changed(_) | Element::Window(_) | Element::Throttle(_) | Element::Alarm(_))
    }

    /// Returns the index of the trigger at which a run begins, if it may begin here.
    pub(crate) fn begins(&self, trigger: &Trigger<'_>) -> Option<usize> {
        match (self, trigger) {
            (Element::DeviceEvent(_), Trigger::DeviceEvent { .. })
            | (Element::DeviceSetting(_), Trigger::SettingChanged { .. })
            | (Element::Interval(_), Trigger::Elapsed { .. }) => Some(0),
            (Element::Alarm(_), Trigger::AlarmCleared { .. }) => Some(alarm::CLEARED),
            (Element::Alarm(_), Trigger::AlarmAcknowledged { .. }) => Some(alarm::ACKNOWLEDGED),
            (Element::Http(_), Trigger::Answered { response, .. }) => Some(usize::from(!response)),
            _ => None,
        }
    }

    /// Returns the index of its setting.
    pub(crate) fn setting(&self) -> Option<u32> {
        match self {
            Element::DeviceSetting(setting) => Some(setting.setting),
            _ => None,
        }
    }
}

impl HeldBytes for Element {
    fn held_bytes(&self) -> usize {
        match self {
            // These hold only names, which are shared with the plan.
            Element::DeviceEvent(_)
            | Element::CloudEvent(_)
            | Element::DeviceSetting(_)
            | Element::DeviceMeta(_)
            | Element::Throttle(_)
            | Element::Interval(_) => 0,
            Element::Storage(storage) => storage.held_bytes(),
            Element::Condition(condition) => condition.held_bytes(),
            Element::Transform(transform) => transform.held_bytes(),
            Element::Changed(changed) => changed.held_bytes(),
            Element::Function(function) => function.held_bytes(),
            Element::Window(window) => window.held_bytes(),
            Element::Notification(notification) => notification.held_bytes(),
            Element::Alarm(alarm) => alarm.held_bytes(),
            Element::Http(http) => http.held_bytes(),
        }
    }
}
