//! The nodes and the databases of the platform, for its operators.

use isobar_hub::{DatabaseState, PlatformNode};
use serde::Serialize;
use utoipa::ToSchema;

use super::values::Time;
use crate::request::Call;
use crate::response::{self, Answer};

pub(crate) async fn platform_fetch(call: &mut Call) -> Answer {
    let platform = call.hub().platform_fetch(call.caller()?).await?;
    let nodes = platform.nodes.into_iter().map(NodeJson::from).collect();
    let databases = platform.databases.into_iter().map(DatabaseJson::from).collect();
    response::ok(&PlatformJson { nodes, databases })
}

/// The nodes and the databases of a platform.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Platform)]
pub(crate) struct PlatformJson {
    /// The processes that have been seen in the last hour, by name.
    nodes: Vec<NodeJson>,
    /// The databases: the registry's, then those of telemetry.
    databases: Vec<DatabaseJson>,
}

/// A process that serves the platform.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Node)]
struct NodeJson {
    /// The name of its machine, and its port.
    name: String,
    /// The version of its program.
    version: String,
    /// A digest of its settings: those of all nodes are the same.
    settings: String,
    started_at: Time,
    /// Milliseconds by which its clock is ahead of the registry's; negative if it is behind.
    clock_ahead: i64,
    /// Milliseconds since its last sign of life.
    unseen_for: u64,
    /// True if it serves; false if it is gone.
    serves: bool,
}

impl From<PlatformNode> for NodeJson {
    fn from(PlatformNode { seen, serves }: PlatformNode) -> Self {
        Self {
            name: seen.node.name,
            version: seen.node.version,
            settings: seen.node.settings,
            started_at: Time(seen.node.started_at),
            clock_ahead: seen.node.clock_ahead,
            unseen_for: seen.unseen_for,
            serves,
        }
    }
}

/// A database that the platform uses.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Database)]
struct DatabaseJson {
    /// The name by which readiness tells it.
    name: String,
    /// Where it is, without user and password; null: files beside the program.
    place: Option<String>,
    /// True if it answers and takes changes.
    ready: bool,
    /// Why it is not ready; null if it is.
    message: Option<String>,
}

impl From<DatabaseState> for DatabaseJson {
    fn from(DatabaseState { name, place, fault }: DatabaseState) -> Self {
        Self { name, place, ready: fault.is_none(), message: fault.map(|fault| fault.message) }
    }
}
