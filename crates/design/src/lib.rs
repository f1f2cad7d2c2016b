//! The project design: a specification is compiled to a checked [`Plan`], which runs on every event.
//!
//! Nothing here does I/O, reads a clock or draws random numbers. A run takes its inputs ([`EventView`], [`DeviceView`],
//! [`Memory`]) and returns its effects ([`Outcome`]), which `hub` carries out.

mod budget;
mod code;
mod compile;
mod elements;
mod expression;
mod failures;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod held_bytes;
mod labels;
mod plan;
mod reference;
mod run;
mod setting;
mod trace;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use isobar_model::alarm::AlarmFinding;
use isobar_model::device::Location;
use isobar_model::event::EventError;
use isobar_model::ids::{DeviceId, EventId, OrganizationId};
use isobar_model::json::{Json, RawJson};
use isobar_model::role::Role;
use isobar_model::setting::setting_bytes;
use isobar_model::status::Status;
use isobar_model::time::Timestamp;

pub use budget::{LONG_RUN_UNITS, SHORT_RUN_BYTES_MAX};
pub use elements::device_event::Integration;
pub use failures::ERRORS_MAX;
pub use plan::Plan;
pub use run::{run, run_shared, run_short, run_traced};
pub use setting::{InputType, SettingDefinition};
pub use trace::{Produced, TraceStep};

/// Cause of a run.
#[derive(Clone, Copy, Debug)]
pub enum Trigger<'a> {
    /// A device event was posted to an element.
    DeviceEvent {
        /// Name of the element.
        element: &'a str,
    },
    /// A setting got a new value, by the API or by reset. The new value is the payload of the [`EventView`].
    SettingChanged {
        /// Name of the setting.
        name: &'a str,
    },
    /// An interval of the device has elapsed.
    Elapsed {
        /// Name of the interval element.
        element: &'a str,
    },
    /// A call of an http element has ended. The payload of the [`EventView`] is `{status, headers, body}` of a
    /// response, or `{message}` of a failure, with `status` if there was one.
    Answered {
        /// Name of the http element.
        element: &'a str,
        /// True if it got a response, false if it failed.
        response: bool,
    },
    /// A user clears an alarm. The payload of the [`EventView`] is `{key, comment}`.
    AlarmCleared {
        /// Name of the alarm element.
        element: &'a str,
        /// Key of the alarm.
        key: &'a str,
    },
    /// A user has acknowledged an alarm. The payload of the [`EventView`] is `{key, comment}`.
    AlarmAcknowledged {
        /// Name of the alarm element.
        element: &'a str,
    },
}

impl<'a> Trigger<'a> {
    /// Returns the element at which the run begins.
    pub fn element(&self) -> &'a str {
        match self {
            Trigger::DeviceEvent { element }
            | Trigger::Elapsed { element }
            | Trigger::Answered { element, .. }
            | Trigger::AlarmCleared { element, .. }
            | Trigger::AlarmAcknowledged { element } => element,
            Trigger::SettingChanged { name } => name,
        }
    }
}

/// The current event, as expressions see it.
#[derive(Clone, Copy, Debug)]
pub struct EventView<'a> {
    /// Identifier.
    pub id: EventId,
    /// Name of the element that it was posted to.
    pub element: &'a str,
    /// Time of receipt: never before that of an earlier event, even if the clock was set back.
    pub received_at: Timestamp,
    /// Time of the clock, by which durations are measured.
    pub now: Timestamp,
    /// Payload, as the device sent it.
    pub payload: &'a RawJson,
    /// Parsed `payload`.
    pub tree: &'a Json<'a>,
}

/// The device, as expressions see it.
#[derive(Clone, Debug)]
pub struct DeviceView {
    /// Identifier.
    pub id: DeviceId,
    /// Name.
    pub name: String,
    /// Organization that owns it.
    pub organization: OrganizationId,
    /// Metadata: a JSON object.
    pub meta: RawJson,
    /// Status.
    pub status: Status,
    /// Values by setting name, without the defaults, which the plan supplies.
    pub settings: Vec<(Arc<str>, RawJson)>,
}

impl DeviceView {
    /// Returns the size of its own settings in bytes ([`isobar_model::setting::setting_bytes`]).
    pub fn settings_bytes(&self) -> usize {
        self.settings.iter().map(|(name, value)| setting_bytes(name, value)).sum()
    }
}

/// State that earlier events of this device have left.
pub trait Memory {
    /// Returns the last values of a storage element.
    fn last(&self, element: &str) -> Option<RawJson>;
    /// Returns the size of a storage element's last values in bytes; 0 before anything was stored.
    fn last_bytes(&self, element: &str) -> usize;
    /// Returns the state of an element, in a format private to its type.
    fn state(&self, element: &str) -> Option<Bytes>;
    /// Returns the elements that have a state, including those that the design no longer has, with its size in bytes.
    fn states(&self) -> Vec<(Arc<str>, usize)>;
    /// Returns the size of all states in bytes, each with its name and [`isobar_model::event::STATE_BYTES_BESIDE`].
    fn states_bytes(&self) -> usize;
}

/// Memory of a device without earlier events.
#[derive(Clone, Copy, Debug)]
pub struct EmptyMemory;

impl Memory for EmptyMemory {
    fn last(&self, _: &str) -> Option<RawJson> {
        None
    }

    fn last_bytes(&self, _: &str) -> usize {
        0
    }

    fn state(&self, _: &str) -> Option<Bytes> {
        None
    }

    fn states(&self) -> Vec<(Arc<str>, usize)> {
        Vec::new()
    }

    fn states_bytes(&self) -> usize {
        0
    }
}

/// A consequence of a run, to be carried out.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// A value is stored.
    Store {
        /// Name of the storage element.
        element: Arc<str>,
        /// The value.
        value: RawJson,
    },
    /// A cloud event is queued for the device.
    Send {
        /// Name of the cloudEvent element.
        element: Arc<str>,
        /// Payload.
        payload: RawJson,
        /// Minutes until it expires, if ever.
        ttl_minutes: Option<u32>,
    },
    /// The device gets another status.
    SetStatus(Status),
    /// A metadata label of the device gets another value.
    SetMeta {
        /// Name of the label.
        tag: String,
        /// Value.
        value: RawJson,
    },
    /// The device moves.
    SetLocation(Location),
    /// A setting of the device changes.
    SetSetting {
        /// Name of the setting.
        element: Arc<str>,
        /// Value; `None` resets it to the default of the design.
        value: Option<RawJson>,
    },
    /// An element keeps this state for later runs.
    Remember {
        /// Name of the element.
        element: Arc<str>,
        /// State that [`Memory::state`] returns later.
        state: Bytes,
    },
    /// The state of an element is deleted, as the design no longer has the element.
    Forget {
        /// Name of the element.
        element: Arc<str>,
    },
    /// Users of the device's organization with at least this role are notified.
    Notify {
        /// Name of the notification element.
        element: Arc<str>,
        /// Text of the notification.
        message: String,
        /// Lowest role that is notified.
        minimum_role: Role,
        /// Key of the element's alarm that it is about.
        alarm: Option<Box<str>>,
    },
    /// An alarm of the device is raised or cleared.
    Alarm(Box<AlarmFinding>),
    /// A server outside is called; the answer arrives as [`Trigger::Answered`].
    Call {
        /// Name of the http element.
        element: Arc<str>,
        /// Request.
        request: OutgoingRequest,
    },
}

/// A call to a server outside. The caller must check that its address may be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingRequest {
    /// Method: one of `GET`, `HEAD`, `POST`, `PUT`, `PATCH`, `DELETE`.
    pub method: &'static str,
    /// Address, as the design made it, with the scheme http or https.
    pub url: String,
    /// Headers, including `content-type` of the body; valid for HTTP, with unique names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body: JSON, or plain text.
    pub body: Option<String>,
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Effects, in order.
    pub effects: Vec<Effect>,
    /// Failures; the rest of the design ran nevertheless.
    pub errors: Vec<EventError>,
    /// Engines that were made for its code, about a millisecond each. Usually none, as threads keep them.
    pub engines: u32,
    /// Units of work that it took: some ten nanoseconds each, at worst 40. More than [`LONG_RUN_UNITS`] have blocked
    /// the thread noticeably.
    pub units: u64,
    /// Bytes that it emits.
    pub bytes: usize,
}

impl PartialEq for Outcome {
    /// Compares what two runs return, not their cost.
    fn eq(&self, other: &Self) -> bool {
        self.effects == other.effects && self.errors == other.errors
    }
}
