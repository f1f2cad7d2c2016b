//! Notifications of users in the application (specification: Notification; contract: Resources).

use serde::Serialize;
use utoipa::ToSchema;

use crate::check::Input;
use crate::error::Result;
use crate::ids::{AlarmId, DeviceId, NotificationId, OrganizationId, UserId};
use crate::json::Json;
use crate::role::Role;
use crate::time::Timestamp;

/// Longest message of a notification, in characters. Longer messages of Isobar itself are cut.
pub const MESSAGE_MAX: usize = 10_000;

/// The source of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ToSchema)]
pub enum NotificationKind {
    /// A device's design.
    #[serde(rename = "deviceNotification")]
    Device,
    /// The system's administrator, or the system itself.
    #[serde(rename = "systemNotification")]
    System,
    /// An event of the user's own account.
    #[serde(rename = "accountNotification")]
    Account,
}

impl NotificationKind {
    /// Every kind.
    pub const ALL: [NotificationKind; 3] =
        [NotificationKind::Device, NotificationKind::System, NotificationKind::Account];

    /// Returns its name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            NotificationKind::Device => "deviceNotification",
            NotificationKind::System => "systemNotification",
            NotificationKind::Account => "accountNotification",
        }
    }

    /// Returns the kind of that name.
    pub fn named(name: &str) -> Option<NotificationKind> {
        NotificationKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The recipients of a notice, fixed when it is sent: later users do not get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// One user.
    User(UserId),
    /// All users. They get it in the application whatever their preferences are.
    Everybody,
    /// The users of one organization with at least a rank, without those of organizations beneath it.
    Organization {
        /// The organization.
        id: OrganizationId,
        /// The lowest role that gets it.
        minimum_role: Role,
    },
}

/// A message to users.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// Its identifier; a repeated one has no effect.
    pub id: NotificationId,
    /// Its source.
    pub kind: NotificationKind,
    /// Its recipients.
    pub to: Audience,
    /// The text, of at most [`MESSAGE_MAX`] characters.
    pub message: String,
    /// The device that it is about.
    pub device: Option<DeviceId>,
    /// The alarm that it is about.
    pub alarm: Option<AlarmId>,
    /// Time of the event.
    pub at: Timestamp,
}

/// A notification of one user.
#[derive(Clone, Debug, PartialEq)]
pub struct Notification {
    /// Its identifier.
    pub id: NotificationId,
    /// Its source.
    pub kind: NotificationKind,
    /// The text.
    pub message: String,
    /// The device that it is about.
    pub device: Option<DeviceId>,
    /// The alarm that it is about.
    pub alarm: Option<AlarmId>,
    /// True if the user has read it.
    pub read: bool,
    /// Time of the event.
    pub created_at: Timestamp,
}

/// Reads the body that marks notifications: `{read}`.
pub fn read_mark(body: &Json<'_>) -> Result<bool> {
    let mut input = Input::body(body)?;
    input.require("read");
    let read = input.boolean("read").unwrap_or_default();
    input.unless_any(read)
}

/// Reads the body of a message to all users: `{message}`.
pub fn read_message(body: &Json<'_>) -> Result<String> {
    let mut input = Input::body(body)?;
    let message = input.required_text("message", 1, MESSAGE_MAX);
    input.unless_any(message)
}
