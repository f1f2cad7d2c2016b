//! The project design: a specification becomes a checked [`Plan`]; a plan runs on every event.
//!
//! Nothing here does I/O, reads a clock or a random number. A run takes what it may see ([`Context`]) and
//! returns what should happen ([`Outcome`]); `hub` carries it out.

use std::sync::Arc;

use bytes::Bytes;
use isobar_model::device::Location;
use isobar_model::error::Fault;
use isobar_model::event::EventError;
use isobar_model::ids::{DeviceId, EventId, OrganizationId};
use isobar_model::json::{Json, RawJson};
use isobar_model::status::Status;
use isobar_model::time::Timestamp;

/// A checked, compiled `planes.cloud`. Compiled once per specification, shared by all devices of the project.
pub struct Plan { /* private */ }

impl Plan {
    /// Compiles `planes` of a specification. Every fault has its path, as in
    /// `planes.cloud.elements.high.properties.expression`.
    pub fn compile(planes: &Json<'_>) -> Result<Plan, Vec<Fault>>;
    /// Whether the cloud plane has no elements: every event is stored under its own elementName.
    pub fn is_empty(&self) -> bool;
    /// The settings that the design declares, by listOrder, then name.
    pub fn settings(&self) -> &[SettingDefinition];
    /// One of them.
    pub fn setting(&self, name: &str) -> Option<&SettingDefinition>;
    /// The names of the storage elements.
    pub fn storage_elements(&self) -> &[Arc<str>];
    /// Whether events may be posted to this element name (any name on an empty plane).
    pub fn accepts(&self, element: &str) -> bool;
    /// Whether any expression reads `last` (so that last values must be loaded before a run).
    pub fn reads_last(&self) -> bool;
}

/// A device setting as the design declares it.
pub struct SettingDefinition { pub name: Arc<str>, pub title: RawJson, pub description: RawJson, pub input_type: InputType,
    pub input_type_properties: RawJson, pub default_value: RawJson, pub list_order: i64 }

impl SettingDefinition {
    /// Whether the setting may have this value (contract: Settings): the message for the client if not.
    pub fn check(&self, value: &Json<'_>) -> Result<(), String>;
}

/// What sets a run off.
pub enum Trigger<'a> {
    /// A device event was posted to an element.
    DeviceEvent { element: &'a str },
    /// A setting got a new value, by the API or by reset.
    SettingChanged { name: &'a str },
}

/// The event under way, as expressions see it.
pub struct EventView<'a> { pub id: EventId, pub element: &'a str, pub received_at: Timestamp, pub payload: &'a RawJson, pub tree: &'a Json<'a> }

/// The device, as expressions see it.
pub struct DeviceView { pub id: DeviceId, pub name: String, pub organization: OrganizationId, pub meta: RawJson, pub status: Status,
    /// Values by setting name: the device's own ones; the plan supplies the defaults.
    pub settings: Vec<(Arc<str>, RawJson)> }

/// What earlier events left for this device.
pub trait Memory {
    /// The last values of a storage element.
    fn last(&self, element: &str) -> Option<RawJson>;
    /// The state that an element left (bytes that only that element type can read).
    fn state(&self, element: &str) -> Option<Bytes>;
}

/// What should happen after a run, in order.
pub enum Effect {
    Store { element: Arc<str>, value: RawJson },
    Send { element: Arc<str>, payload: RawJson, ttl_minutes: Option<u32> },
    SetStatus(Status),
    SetMeta { tag: String, value: RawJson },
    SetLocation(Location),
    SetSetting { element: Arc<str>, value: Option<RawJson> /* None: reset */ },
    /// The element's state after the run.
    Remember { element: Arc<str>, state: Bytes },
}

pub struct Outcome { pub effects: Vec<Effect>, pub errors: Vec<EventError> }

/// Runs the plan.
pub fn run(plan: &Plan, trigger: Trigger<'_>, event: &EventView<'_>, device: &DeviceView, memory: &dyn Memory) -> Outcome;
