//! The dashboards of an organization: any number, the oldest of which is its first (contract: Beyond the specification).

use std::fmt;

use crate::appearance::Dashboard;
use crate::ids::{DashboardId, ProjectId};
use crate::json::Json;
use crate::time::Timestamp;

/// A dashboard of an organization, without what it shows.
#[derive(Clone, Debug, PartialEq)]
pub struct BoardHead {
    /// Its identifier.
    pub id: DashboardId,
    /// Its name.
    pub name: Option<String>,
    /// The project on whose devices' pages it is shown.
    pub project: Option<ProjectId>,
    /// True if it belongs to an organization above, which lends it.
    pub is_inherited: bool,
    /// How often it was written, from 1.
    pub version: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
}

impl BoardHead {
    /// Returns its entity tag.
    pub fn tag(&self) -> BoardTag {
        BoardTag { version: self.version, written: self.updated_at }
    }
}

/// A dashboard of an organization, whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Board {
    /// What lists tell of it.
    pub head: BoardHead,
    /// What it shows.
    pub dashboard: Dashboard,
}

/// Names a dashboard as it is, and no other state of it: its entity tag. With the moment it was written a tag stays its own
/// when a backup is restored and its version is given out once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoardTag {
    version: u64,
    written: Timestamp,
}

impl fmt::Display for BoardTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:x}", self.version, self.written.millis())
    }
}

/// Returns the project that a dashboard names in its options, as `projectUuid`. What names none there is passed over.
pub fn named_project(dashboard: &Dashboard) -> Option<ProjectId> {
    dashboard.options.tree().get("projectUuid").and_then(Json::as_text)?.parse().ok()
}
