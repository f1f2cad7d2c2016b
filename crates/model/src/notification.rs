//! Notifications: what users are told in the application (specification: Notification; contract: Resources).

use serde::Serialize;
use utoipa::ToSchema;

use crate::check::Input;
use crate::error::Result;
use crate::ids::{AlarmId, DeviceId, NotificationId, OrganizationId, UserId};
use crate::json::Json;
use crate::role::Role;
use crate::time::Timestamp;

/// Longest message of a notification, in characters. A longer one that Isobar itself makes is cut.
pub const MESSAGE_MAX: usize = 10_000;

/// What a notification is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ToSchema)]
pub enum NotificationKind {
    /// A device's design has something to say.
    #[serde(rename = "deviceNotification")]
    Device,
    /// The system's administrator, or the system itself, has.
    #[serde(rename = "systemNotification")]
    System,
    /// Something happened to the user's own account.
    #[serde(rename = "accountNotification")]
    Account,
}

impl NotificationKind {
    /// Every kind.
    pub const ALL: [NotificationKind; 3] =
        [NotificationKind::Device, NotificationKind::System, NotificationKind::Account];

    /// Its name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            NotificationKind::Device => "deviceNotification",
            NotificationKind::System => "systemNotification",
            NotificationKind::Account => "accountNotification",
        }
    }

    /// The kind of that name.
    pub fn named(name: &str) -> Option<NotificationKind> {
        NotificationKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Whom a notice is for. It is settled when the notice is given out: who comes later hears nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// One user.
    User(UserId),
    /// Every user there is. What is told to everybody appears in the application whatever the preferences are.
    Everybody,
    /// The users of one organization, not of those beneath it, of at least a rank.
    Organization {
        /// The organization.
        id: OrganizationId,
        /// The lowest role that hears of it.
        minimum_role: Role,
    },
}

/// Something that users are to be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// Its identifier. The same one again changes nothing.
    pub id: NotificationId,
    /// What it is about.
    pub kind: NotificationKind,
    /// Whom it is for.
    pub to: Audience,
    /// The text, of at most [`MESSAGE_MAX`] characters.
    pub message: String,
    /// The device that it is about.
    pub device: Option<DeviceId>,
    /// The alarm that it tells of.
    pub alarm: Option<AlarmId>,
    /// When it happened.
    pub at: Timestamp,
}

/// A notification as one user has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Notification {
    /// Its identifier.
    pub id: NotificationId,
    /// What it is about.
    pub kind: NotificationKind,
    /// The text.
    pub message: String,
    /// The device that it is about.
    pub device: Option<DeviceId>,
    /// The alarm that it tells of.
    pub alarm: Option<AlarmId>,
    /// Whether the user has read it.
    pub read: bool,
    /// When it happened.
    pub created_at: Timestamp,
}

/// Reads the body that marks notifications: `{read}`.
pub fn read_mark(body: &Json<'_>) -> Result<bool> {
    let mut input = Input::body(body)?;
    input.require("read");
    let read = input.boolean("read").unwrap_or_default();
    input.unless_any(read)
}

/// Reads the body that tells everybody something: `{message}`.
pub fn read_message(body: &Json<'_>) -> Result<String> {
    let mut input = Input::body(body)?;
    let message = input.required_text("message", 1, MESSAGE_MAX);
    input.unless_any(message)
}
