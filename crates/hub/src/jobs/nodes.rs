//! Tells the other nodes over the same stores that this one serves, and compares its clock with the registry's.

use std::sync::Arc;
use std::time::Duration;

use isobar_model::time::{Clock, Timestamp};
use isobar_store::error::StoreError;
use isobar_store::registry::{SeenNode, ServingNode};

use super::Jobs;
use crate::supervisor::Shift;

/// Name of the worker.
pub(crate) const NODES_WORKER: &str = "nodes";
/// Interval between two signs of life.
const RENEWED_EVERY: Duration = Duration::from_secs(1);
/// Time after its last sign of life from which a node counts as gone.
pub(crate) const GONE_AFTER: Duration = Duration::from_secs(5);
/// Nodes that serve, and the difference of the own clock.
const NODES_GAUGE: &str = "isobar_nodes";
const CLOCK_GAUGE: &str = "isobar_clock_ahead_seconds";

impl Jobs {
    /// Renews the row of this node, until the hub stops; then removes it.
    pub(crate) async fn run_nodes(self: Arc<Self>, mut shift: Shift) {
        let mut node = self.own_node(self.env.now());
        let mut is_told = false;
        loop {
            self.env.reaches(NODES_WORKER);
            match self.renew_node(&mut node).await {
                Ok(nodes) => self.compare(&node, &nodes, &mut is_told),
                Err(error) => tracing::warn!(%error, "cannot tell other nodes that this one serves, will retry"),
            }
            shift.well();
            if shift.pause(RENEWED_EVERY).await {
                break;
            }
        }
        if let Err(error) = self.env.registry().node_leave(&node.id).await {
            tracing::warn!(%error, "cannot tell other nodes that this one ends, they will notice");
        }
    }

    /// Describes this node, which started at a time, under a new identifier.
    pub(crate) fn own_node(&self, started_at: Timestamp) -> ServingNode {
        let databases = self.env.telemetry().databases().into_iter().map(|(number, _)| number).collect();
        let (settings, setting_digests) = self.env.config().digests(databases);
        ServingNode {
            id: self.env.new_id().to_string(),
            name: self.env.config().node_name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings,
            setting_digests,
            started_at,
            clock_ahead: 0,
        }
    }

    async fn renew_node(&self, node: &mut ServingNode) -> Result<Vec<SeenNode>, StoreError> {
        let before = self.env.now();
        let registry = self.env.registry().node_renew(node).await?;
        node.clock_ahead = self.note_registry_time(before, registry);
        self.env.registry().nodes().await
    }

    /// Compares the clock with the registry's, before anything is served.
    ///
    /// # Errors
    /// The registry does not answer.
    pub(crate) async fn compare_clock(&self) -> Result<(), StoreError> {
        if self.env.config().has_other_nodes {
            let before = self.env.now();
            let registry = self.env.registry().time().await?;
            self.note_registry_time(before, registry);
        }
        Ok(())
    }

    /// Notes what the registry's clock has shown between a moment and now, and returns by how many milliseconds this one is
    /// ahead. A clock that tests move is not compared, but what it has jumped counts.
    fn note_registry_time(&self, before: Timestamp, registry: Timestamp) -> i64 {
        let (clock, difference) = (self.env.clock(), self.env.clock_difference());
        if let Clock::Manual(_) = clock {
            return difference.ahead(clock);
        }
        let after = self.env.now();
        // The registry has looked at its clock at some moment between the two.
        let ahead = match registry {
            registry if registry < before => before.millis() - registry.millis(),
            registry if registry > after => after.millis() - registry.millis(),
            _ => 0,
        };
        difference.note(clock, ahead);
        ahead
    }

    /// Publishes what the list of nodes says, and logs once where nodes differ.
    fn compare(&self, own: &ServingNode, nodes: &[SeenNode], is_told: &mut bool) {
        let serving = || nodes.iter().filter(|seen| u128::from(seen.unseen_for) < GONE_AFTER.as_millis());
        metrics::gauge!(NODES_GAUGE).set(serving().count() as f64);
        metrics::gauge!(CLOCK_GAUGE).set(own.clock_ahead as f64 / 1e3);
        let other = serving().map(|seen| &seen.node).find(|node| node.settings != own.settings);
        if let Some(other) = other.filter(|_| !std::mem::replace(is_told, true)) {
            let settings = own.differs_in(other).join(", ");
            tracing::warn!(
                node = other.name,
                settings,
                "another node has other settings, and answers otherwise: see isobar nodes"
            );
        }
    }
}
