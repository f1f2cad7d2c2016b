//! The project design: a specification becomes a checked [`Plan`]; a plan runs on every event.
//!
//! Nothing here does I/O, reads a clock or a random number. A run takes what it may see ([`EventView`], [`DeviceView`],
//! [`Memory`]) and returns what should happen ([`Outcome`]); `hub` carries it out.

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

/// What sets a run off.
#[derive(Clone, Copy, Debug)]
pub enum Trigger<'a> {
    /// A device event was posted to an element.
    DeviceEvent {
        /// Its elementName.
        element: &'a str,
    },
    /// A setting got a new value, by the API or by reset. The new value is the payload of the [`EventView`].
    SettingChanged {
        /// The setting.
        name: &'a str,
    },
    /// An interval of the device has elapsed.
    Elapsed {
        /// The interval element.
        element: &'a str,
    },
    /// A call of an http element has ended. The payload of the [`EventView`] is `{status, headers, body}` of a response,
    /// `{message}` of a failure, with `status` if there was one.
    Answered {
        /// The http element.
        element: &'a str,
        /// Whether it got a response; else it failed.
        response: bool,
    },
    /// Somebody clears an alarm by hand. The payload of the [`EventView`] is `{key, comment}`.
    AlarmCleared {
        /// The alarm element.
        element: &'a str,
        /// The alarm's key.
        key: &'a str,
    },
    /// Somebody has acknowledged an alarm. The payload of the [`EventView`] is `{key, comment}`.
    AlarmAcknowledged {
        /// The alarm element.
        element: &'a str,
    },
}

impl<'a> Trigger<'a> {
    /// The element that the run begins at.
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

/// The event under way, as expressions see it.
#[derive(Clone, Copy, Debug)]
pub struct EventView<'a> {
    /// Its identifier.
    pub id: EventId,
    /// The element that it was posted to.
    pub element: &'a str,
    /// When it was received: never before the event before it, even where the clock was set back.
    pub received_at: Timestamp,
    /// What the clock says, by which time is measured.
    pub now: Timestamp,
    /// What the device sent.
    pub payload: &'a RawJson,
    /// The tree over `payload`.
    pub tree: &'a Json<'a>,
}

/// The device, as expressions see it.
#[derive(Clone, Debug)]
pub struct DeviceView {
    /// Its identifier.
    pub id: DeviceId,
    /// Its name.
    pub name: String,
    /// The organization that owns it.
    pub organization: OrganizationId,
    /// Its metadata: an object.
    pub meta: RawJson,
    /// Its status.
    pub status: Status,
    /// Values by setting name: the device's own ones; the plan supplies the defaults.
    pub settings: Vec<(Arc<str>, RawJson)>,
}

impl DeviceView {
    /// Bytes that its own values take ([`isobar_model::setting::setting_bytes`]).
    pub fn settings_bytes(&self) -> usize {
        self.settings.iter().map(|(name, value)| setting_bytes(name, value)).sum()
    }
}

/// What earlier events left for this device.
pub trait Memory {
    /// The last values of a storage element.
    fn last(&self, element: &str) -> Option<RawJson>;
    /// How many bytes are kept to tell them; 0 before anything was stored.
    fn last_bytes(&self, element: &str) -> usize;
    /// The state that an element left (bytes that only that element type can read).
    fn state(&self, element: &str) -> Option<Bytes>;
    /// Which elements have left a state, those that the design no longer has among them, and its bytes.
    fn states(&self) -> Vec<(Arc<str>, usize)>;
    /// How many bytes all of these take: each with its name and [`isobar_model::event::STATE_BYTES_BESIDE`].
    fn states_bytes(&self) -> usize;
}

/// The memory of a device that no event came from before.
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

/// What should happen after a run, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// A value is stored.
    Store {
        /// The storage element.
        element: Arc<str>,
        /// The value.
        value: RawJson,
    },
    /// A cloud event is queued for the device.
    Send {
        /// The cloudEvent element.
        element: Arc<str>,
        /// What it carries.
        payload: RawJson,
        /// After how many minutes it expires, if ever.
        ttl_minutes: Option<u32>,
    },
    /// The device gets another status.
    SetStatus(Status),
    /// A metadata label of the device gets another value.
    SetMeta {
        /// The label.
        tag: String,
        /// Its value.
        value: RawJson,
    },
    /// The device moves.
    SetLocation(Location),
    /// A setting of the device changes.
    SetSetting {
        /// The setting.
        element: Arc<str>,
        /// Its value; none: back to the default of the design.
        value: Option<RawJson>,
    },
    /// The element's state after the run.
    Remember {
        /// The element.
        element: Arc<str>,
        /// What [`Memory::state`] gives it back.
        state: Bytes,
    },
    /// The element's state is given up: the design has no such element any more.
    Forget {
        /// The element.
        element: Arc<str>,
    },
    /// People are told something: the users of the device's organization of at least that role.
    Notify {
        /// The notification element.
        element: Arc<str>,
        /// What they read.
        message: String,
        /// The lowest role that is told.
        minimum_role: Role,
        /// The key of the element's alarm that it tells of.
        alarm: Option<Box<str>>,
    },
    /// An alarm of the device is raised or cleared.
    Alarm(Box<AlarmFinding>),
    /// A server outside is called; the answer comes back as [`Trigger::Answered`].
    Call {
        /// The http element.
        element: Arc<str>,
        /// What is sent.
        request: OutgoingRequest,
    },
}

/// A call to a server outside. Whether its address may be called is the caller's to check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingRequest {
    /// The method: one of `GET`, `HEAD`, `POST`, `PUT`, `PATCH`, `DELETE`.
    pub method: &'static str,
    /// The address: http or https; otherwise as the design made it.
    pub url: String,
    /// Headers with their values, `content-type` of the body included; names in lower case, each once, sound for HTTP.
    pub headers: Vec<(String, String)>,
    /// JSON, or a text as it is.
    pub body: Option<String>,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What should happen, in order.
    pub effects: Vec<Effect>,
    /// What failed; the rest of the design ran all the same.
    pub errors: Vec<EventError>,
    /// Engines that had to be made for its code: about a millisecond each. Mostly none, for threads keep them.
    pub engines: u32,
    /// Units of work that it has taken: some ten nanoseconds each, at the worst 40. One of more than [`LONG_RUN_UNITS`] has
    /// held its thread for what others may feel.
    pub units: u64,
    /// Bytes that it leaves.
    pub bytes: usize,
}

impl PartialEq for Outcome {
    /// The same comes of two runs, whatever they have cost.
    fn eq(&self, other: &Self) -> bool {
        self.effects == other.effects && self.errors == other.errors
    }
}
