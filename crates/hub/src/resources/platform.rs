//! Shows operators the nodes that serve the platform, and the databases that it uses.

use isobar_model::access::{Action, Caller};
use isobar_model::error::Result;
use isobar_store::registry::SeenNode;

use crate::jobs::nodes::GONE_AFTER;
use crate::{DatabaseState, Hub};

/// The nodes and the databases of a platform.
#[derive(Clone, Debug)]
pub struct PlatformState {
    /// Processes that have been seen in the last hour, by name; this one alone, if no others may serve.
    pub nodes: Vec<PlatformNode>,
    /// Databases: first the registry's, then those of telemetry.
    pub databases: Vec<DatabaseState>,
}

/// A process of the platform.
#[derive(Clone, Debug)]
pub struct PlatformNode {
    /// The process, and the time since its last sign of life.
    pub seen: SeenNode,
    /// True if it serves: its last sign of life is recent.
    pub serves: bool,
}

impl Hub {
    /// Returns the nodes and the databases of the platform. Waits for databases as long as [`Hub::ready`].
    ///
    /// Needs `PlatformRead`.
    pub async fn platform_fetch(&self, caller: &Caller) -> Result<PlatformState> {
        self.0.identity.allow(caller, Action::PlatformRead).await?;
        let nodes = match self.config().has_other_nodes {
            true => self.registry().nodes().await?,
            false => vec![SeenNode { node: self.0.jobs.own_node(self.started_at()), unseen_for: 0 }],
        };
        let judged = |seen: SeenNode| {
            let serves = u128::from(seen.unseen_for) < GONE_AFTER.as_millis();
            PlatformNode { seen, serves }
        };
        Ok(PlatformState { nodes: nodes.into_iter().map(judged).collect(), databases: self.databases().await })
    }
}
