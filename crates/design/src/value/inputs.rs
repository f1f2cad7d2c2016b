//! Inputs of a run: its cause, the event, the device, and what earlier events have left.

use std::sync::Arc;

use bytes::Bytes;
use isobar_model::alarm::ListedAlarms;
use isobar_model::ids::{DeviceId, EventId, OrganizationId};
use isobar_model::json::{Json, RawJson};
use isobar_model::setting::setting_bytes;
use isobar_model::status::Status;
use isobar_model::time::Timestamp;

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
    /// Alarms that the list shows as active.
    pub alarms: Arc<ListedAlarms>,
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
