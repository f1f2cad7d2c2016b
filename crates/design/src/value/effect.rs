//! Effects of a run, as data, and its outcome.

use std::sync::Arc;

use bytes::Bytes;
use isobar_model::alarm::AlarmFinding;
use isobar_model::device::Location;
use isobar_model::event::EventError;
use isobar_model::json::RawJson;
use isobar_model::role::Role;
use isobar_model::status::Status;

use super::budget::Budget;
use super::failures::Failures;

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
        /// State that [`crate::Memory::state`] returns later.
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
    /// A server outside is called; the answer arrives as [`crate::Trigger::Answered`].
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
    /// Units of work that it took: some ten nanoseconds each, at worst 40. More than [`crate::LONG_RUN_UNITS`] have
    /// blocked the thread noticeably.
    pub units: u64,
    /// Bytes that it emits.
    pub bytes: usize,
}

impl Outcome {
    pub(crate) fn of(budget: Budget, failures: Failures, engines: u32) -> Self {
        let (units, bytes) = (budget.spent(), budget.left_bytes());
        Self { effects: budget.into_effects(), errors: failures.into_errors(), engines, units, bytes }
    }
}

impl PartialEq for Outcome {
    /// Compares what two runs return, not their cost.
    fn eq(&self, other: &Self) -> bool {
        self.effects == other.effects && self.errors == other.errors
    }
}
