//! The schema's history: steps of SQL, applied in order, never changed once released.
//!
//! The runner is ours, and short: those of sqlx and of sea-orm-migration note versions in tables of their own, which the
//! registries that there are lack, and neither spells one step for both dialects.

use sea_orm::ConnectionTrait;

use super::sql::{AdvisoryLock, Dialect, Sql, failure, one, run};
use crate::error::{Result, StoreError};

/// Every step; a step's version is its place in the list, from 1.
const STEPS: &[&str] = &[
    include_str!("0001_nouns.sql"),
    include_str!("0002_pulse.sql"),
    include_str!("0003_hosts.sql"),
    include_str!("0004_settings_past.sql"),
    include_str!("0005_lanes.sql"),
    include_str!("0006_one_index_an_order.sql"),
    include_str!("0009_retention.sql"),
];

/// Brings the schema up to date within a transaction that excludes other writers.
pub(super) async fn migrate(tx: &impl ConnectionTrait) -> Result<()> {
    let dialect = Dialect::of(tx);
    AdvisoryLock::Schema.hold(tx).await?;
    run(tx, Sql::new("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)")).await?;
    let found = version(tx).await?;
    for (version, step) in (1..).zip(STEPS).filter(|(version, _)| *version > found) {
        tx.execute_unprepared(&spelled(step, dialect)).await.map_err(failure)?;
        run(tx, Sql::new("INSERT INTO schema_version (version) VALUES (?)").bind(version)).await?;
    }
    Ok(())
}

/// The version of the schema that is there. A newer one is refused.
pub(super) async fn version(connection: &impl ConnectionTrait) -> Result<u64> {
    let row = one(connection, Sql::new("SELECT coalesce(max(version), 0) AS version FROM schema_version")).await?;
    let found = row.map_or(Ok(0), |row| row.count("version"))?;
    let known = STEPS.len() as u64;
    if found > known {
        return Err(StoreError::Damaged(format!(
            "the registry has version {found}, and this version of Isobar reads up to {known}"
        )));
    }
    Ok(found)
}

/// The step in the words of a dialect.
fn spelled(step: &str, dialect: Dialect) -> String {
    let words = match dialect {
        // SQLite numbers rows by an INTEGER PRIMARY KEY alone; its text compares by bytes, which is code points.
        Dialect::Sqlite => ["TEXT", "BLOB", "INTEGER PRIMARY KEY AUTOINCREMENT", "INTEGER"],
        Dialect::Postgres => {
            ["TEXT COLLATE \"C\"", "BYTEA", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "BIGINT"]
        }
    };
    ["{text}", "{bytes}", "{key}", "{number}"]
        .iter()
        .zip(words)
        .fold(step.to_owned(), |text, (mark, word)| text.replace(mark, word))
}
