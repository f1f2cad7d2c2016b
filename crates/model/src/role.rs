//! Roles of users (contract: Roles and reach).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A user's role, in rising rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Reads what is in reach.
    BasicUser,
    /// Creates and changes devices and their settings.
    Technician,
    /// Deletes devices, runs the webhook, manages users.
    Manager,
    /// Manages organizations and projects.
    Administrator,
    /// All of administrator, and dry runs of designs.
    Developer,
    /// Reaches everything.
    SystemAdmin,
}

impl Role {
    /// Every role, lowest rank first.
    pub const ALL: [Role; 6] =
        [Role::BasicUser, Role::Technician, Role::Manager, Role::Administrator, Role::Developer, Role::SystemAdmin];

    /// Returns its name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Role::BasicUser => "basicUser",
            Role::Technician => "technician",
            Role::Manager => "manager",
            Role::Administrator => "administrator",
            Role::Developer => "developer",
            Role::SystemAdmin => "systemAdmin",
        }
    }

    /// Returns the role of that name.
    pub fn named(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}
