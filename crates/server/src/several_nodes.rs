//! Warnings at the start of one of several nodes: what they must have in common, and what PostgreSQL must have room for.

use isobar_store::registry::{REGISTRY_CONNECTIONS_MAX, Registry};
use isobar_store::telemetry::postgres::TELEMETRY_CONNECTIONS_MAX;
use isobar_store::{server_of, usable_connections};

use crate::config::{Settings, TelemetryPlace};
use crate::upkeep::NODE_GONE_AFTER;

/// Logs what will go wrong with this node beside those that serve already.
pub async fn warn(settings: &Settings, registry: &Registry) {
    if !settings.may_have_other_nodes() {
        return;
    }
    let others = match registry.nodes().await {
        Ok(nodes) => nodes.iter().filter(|seen| seen.unseen_for < NODE_GONE_AFTER).count() as u64,
        Err(error) => return tracing::warn!(%error, "cannot read which other nodes serve"),
    };
    if others > 0 && settings.public_url.is_none() {
        tracing::warn!(
            "public_url is not set, and other nodes serve: each then has the address that it listens on, which is in links and \
             e-mails. Set public_url to the address of the balancer, the same on every node"
        );
    }
    for (address, own) in connections_of(settings) {
        let wanted = own.saturating_mul(others + 1);
        match usable_connections(&address).await {
            Ok(usable) if usable < wanted => {
                let server = server_of(&address);
                tracing::warn!(
                    server,
                    usable,
                    wanted,
                    nodes = others + 1,
                    "PostgreSQL allows fewer connections than the nodes may take, and calls will be refused: raise its \
                     max_connections, or the limit of the role or database"
                );
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "cannot read how many connections PostgreSQL allows"),
        }
    }
}

/// Returns each server of PostgreSQL, by an address on it, with the connections that one node may take there.
fn connections_of(settings: &Settings) -> Vec<(String, u64)> {
    let telemetry = match &settings.telemetry {
        TelemetryPlace::Postgres(databases) => databases.as_slice(),
        TelemetryPlace::Folder(_) => &[],
    };
    let databases = telemetry.iter().map(|address| (address, TELEMETRY_CONNECTIONS_MAX));
    let mut servers: Vec<(String, u64)> = Vec::new();
    for (address, connections) in std::iter::once((&settings.registry, REGISTRY_CONNECTIONS_MAX)).chain(databases) {
        match servers.iter_mut().find(|(other, _)| server_of(other) == server_of(address)) {
            Some((_, sum)) => *sum += u64::from(connections),
            None => servers.push((address.clone(), u64::from(connections))),
        }
    }
    servers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, load_from};

    #[test]
    fn connections_of_databases_on_one_server_are_summed() {
        let stores = [
            ("ISOBAR_STORES__REGISTRY", "postgres://isobar:secret@db-0/registry"),
            ("ISOBAR_STORES__TELEMETRY", "postgres://other@db-0:5432/telemetry,postgres://isobar@db-1/telemetry"),
        ];
        let environment = stores.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settings = load_from(&Flags::default(), environment).unwrap().settings;
        let sums: Vec<u64> = connections_of(&settings).into_iter().map(|(_, sum)| sum).collect();
        let (registry, telemetry) = (u64::from(REGISTRY_CONNECTIONS_MAX), u64::from(TELEMETRY_CONNECTIONS_MAX));
        assert_eq!(sums, [registry + telemetry, telemetry]);
    }
}
