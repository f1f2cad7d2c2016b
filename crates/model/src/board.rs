//! Dashboards of an organization: any number, the first of which is the oldest (contract: Beyond the specification).

use std::fmt;

use crate::appearance::Dashboard;
use crate::ids::{DashboardId, ProjectId};
use crate::json::Json;
use crate::time::Timestamp;

/// A dashboard of an organization, without its content.
#[derive(Clone, Debug, PartialEq)]
pub struct BoardHead {
    /// Its identifier.
    pub id: DashboardId,
    /// Its name.
    pub name: Option<String>,
    /// The project on whose devices' pages it is shown.
    pub project: Option<ProjectId>,
    /// True if it is shared by an organization above.
    pub is_inherited: bool,
    /// Number of writes, from 1.
    pub version: u64,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last write.
    pub updated_at: Timestamp,
}

impl BoardHead {
    /// Returns its entity tag.
    pub fn tag(&self) -> BoardTag {
        BoardTag { version: self.version, written: self.updated_at }
    }
}

/// A dashboard of an organization with its content.
#[derive(Clone, Debug, PartialEq)]
pub struct Board {
    /// The metadata that lists show.
    pub head: BoardHead,
    /// The content.
    pub dashboard: Dashboard,
}

/// The entity tag of one state of a dashboard. It holds the time of the write, so that a version number that is used
/// again after a restore gives another tag.
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

/// Returns the project in a dashboard's option `projectUuid`; `None` if there is none or it is not an id.
pub fn named_project(dashboard: &Dashboard) -> Option<ProjectId> {
    dashboard.options.tree().get("projectUuid").and_then(Json::as_text)?.parse().ok()
}
