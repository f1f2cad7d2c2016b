//! The schema's history: steps of SQL, applied in order, never changed once released.
//!
//! The runner is ours, and short: those of sqlx and of sea-orm-migration note versions in tables of their own, which the
//! registries that there are lack, and neither writes one step for both dialects. A test holds released steps to their digests.

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

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::STEPS;

    /// SHA-256 of the steps that were applied somewhere already, in their order. A step that is not listed may still be changed.
    const RELEASED: &[&str] = &[
        "ee95951e953e456f2f7dd3c6dbf1b8bb476d35b5847fc83db08ce67cb93987c2",
        "8a48fb2a78a88791d99afa4fdc8661b2635cf1475c59fcab316690aed3fa40c7",
        "2bd488f53f58a09bfb548bd343b0fa1c07a23fecdb8af707aed918c05e7222ec",
        "289aa12924148f5e6e9f6a2b19556d60938e3f2315a312342e8c8dbbb26d83ed",
        "9d9c7d11049d2314423a719738a0a8c2365bc54415e45dde8f0beebadf23793c",
        "c053103a0e4668559dc902f2d24552d3f122d405f67ca2afc1ecc0a47e17d73c",
    ];

    #[test]
    fn a_released_step_is_never_changed() {
        assert!(STEPS.len() >= RELEASED.len());
        for (version, (step, released)) in (1..).zip(STEPS.iter().zip(RELEASED)) {
            let digest: String = Sha256::digest(step).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digest, **released, "step {version}");
        }
    }
}
