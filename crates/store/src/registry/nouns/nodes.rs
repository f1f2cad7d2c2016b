//! Stores the processes that serve one platform. The rows contain no tenant's data, and so need no permit.

use isobar_model::time::Timestamp;

use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::{Sql, all, one};

/// The database's time, in milliseconds.
const DATABASE_NOW: &str = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)";
/// Time in milliseconds after which the row of a process that is gone is removed.
const GONE_AFTER: i64 = 3_600_000;

/// A process that serves the platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingNode {
    /// Its identifier, which no other process has.
    pub id: String,
    /// The name of its machine.
    pub name: String,
    /// The version of its program.
    pub version: String,
    /// A digest of its settings.
    pub settings: String,
    /// Digests of the settings one by one, with their names; empty for one of an earlier version.
    pub setting_digests: Vec<(String, String)>,
    /// Time at which it has started.
    pub started_at: Timestamp,
    /// Milliseconds by which its clock is ahead of the database's; negative if it is behind.
    pub clock_ahead: i64,
}

/// A process, and how long ago it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenNode {
    /// The process.
    pub node: ServingNode,
    /// Milliseconds since its last sign of life, by the database's clock.
    pub unseen_for: u64,
}

impl ServingNode {
    /// Returns the names of the settings in which another process differs, as far as both have noted them.
    pub fn differs_in(&self, other: &Self) -> Vec<&str> {
        let own = self.setting_digests.iter();
        let differs = own.filter(|(name, digest)| {
            other.setting_digests.iter().any(|(theirs, other)| theirs == name && other != digest)
        });
        differs.map(|(name, _)| name.as_str()).collect()
    }

    /// Returns the digests of its settings as they are stored: that of all first.
    fn stored_settings(&self) -> String {
        let digests = self.setting_digests.iter().map(|(name, digest)| format!(" {name}={digest}"));
        std::iter::once(self.settings.clone()).chain(digests).collect()
    }
}

impl Registry {
    /// Notes that a process serves, and returns the database's time. Removes processes that have long been gone.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the registry is on SQLite.
    pub async fn node_renew(&self, node: &ServingNode) -> Result<Timestamp> {
        let renew = Sql::new(format!(
            "WITH gone AS (DELETE FROM nodes WHERE seen_at < {DATABASE_NOW} - {GONE_AFTER}) \
             INSERT INTO nodes (id, name, version, settings, started_at, seen_at, clock_ahead) \
             SELECT ?, ?, ?, ?, CAST(? AS BIGINT), {DATABASE_NOW}, CAST(? AS BIGINT) \
             ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, clock_ahead = excluded.clock_ahead \
             RETURNING seen_at"
        ));
        let renew = renew.bind(node.id.as_str()).bind(node.name.as_str()).bind(node.version.as_str());
        let renew = renew.bind(node.stored_settings()).bind(node.started_at).bind(node.clock_ahead);
        let tx = self.db.begin().await?;
        let row = one(&tx, renew).await?;
        tx.commit().await?;
        row.ok_or_else(|| StoreError::Damaged("a node has no row".to_owned()))?.time("seen_at")
    }

    /// Returns the database's time.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the registry is on SQLite.
    pub async fn time(&self) -> Result<Timestamp> {
        let row = one(&self.db.read, Sql::new(format!("SELECT {DATABASE_NOW} AS at"))).await?;
        row.ok_or_else(|| StoreError::Damaged("the registry has no time".to_owned()))?.time("at")
    }

    /// Lists the processes that have been seen in the last hour, by name.
    pub async fn nodes(&self) -> Result<Vec<SeenNode>> {
        let query = Sql::new(format!(
            "SELECT id, name, version, settings, started_at, clock_ahead, greatest({DATABASE_NOW} - seen_at, 0) AS unseen \
             FROM nodes ORDER BY name, started_at"
        ));
        let rows = all(&self.db.read, query).await?;
        let seen = |row: &crate::registry::sql::Row| {
            let stored = row.text("settings")?;
            let (settings, digests) = stored.split_once(' ').unwrap_or((&stored, ""));
            let digests = digests.split(' ').filter_map(|digest| digest.split_once('='));
            let node = ServingNode {
                id: row.text("id")?,
                name: row.text("name")?,
                version: row.text("version")?,
                settings: settings.to_owned(),
                setting_digests: digests.map(|(name, digest)| (name.to_owned(), digest.to_owned())).collect(),
                started_at: row.time("started_at")?,
                clock_ahead: row.number("clock_ahead")?,
            };
            Ok(SeenNode { node, unseen_for: row.count("unseen")? })
        };
        rows.iter().map(seen).collect()
    }

    /// Notes that a process serves no more.
    pub async fn node_leave(&self, id: &str) -> Result<()> {
        self.db.write.run(Sql::new("DELETE FROM nodes WHERE id = ?").bind(id)).await.map(drop)
    }
}
