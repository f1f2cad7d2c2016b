//! Warnings at the start of one of several nodes: what they must have in common.

use isobar_store::registry::Registry;

use crate::config::Settings;
use crate::upkeep::NODE_GONE_AFTER;

/// Logs what will go wrong with this node beside those that serve already.
pub async fn warn(settings: &Settings, registry: &Registry) {
    if !settings.may_have_other_nodes() {
        return;
    }
    let others = match registry.nodes().await {
        Ok(nodes) => nodes.iter().filter(|seen| seen.unseen_for < NODE_GONE_AFTER).count(),
        Err(error) => return tracing::warn!(%error, "cannot read which other nodes serve"),
    };
    if others > 0 && settings.public_url.is_none() {
        tracing::warn!(
            "public_url is not set, and other nodes serve: each then has the address that it listens on, which is in links and \
             e-mails. Set public_url to the address of the balancer, the same on every node"
        );
    }
}
