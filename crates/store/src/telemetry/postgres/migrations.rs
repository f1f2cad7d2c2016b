//! Holds the history of the tables: steps of SQL, applied in order, never changed once released.

use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Row as _};

use super::connections::failed;
use crate::error::{Result, StoreError};

/// Steps of the tables, in order. The version of a step is its position, from 1.
const TABLE_STEPS: &[&str] = &[
    include_str!("migrations/0001_tables.sql"),
    include_str!("migrations/0002_nodes.sql"),
    include_str!("migrations/0003_membership.sql"),
];

/// Lock that keeps two processes that start at once from migrating at once.
const MIGRATION_LOCK: i64 = 0x0069_736f_6261_7211;

/// Error of a database without the tables.
#[derive(Debug, thiserror::Error)]
#[error("the database has no telemetry store")]
struct NoTables;

/// Fails if the tables are not there.
pub async fn must_be_there(pool: &PgPool) -> Result<()> {
    let found = sqlx::query("SELECT to_regclass('telemetry.schema_version') IS NOT NULL").fetch_one(pool).await;
    let is_there: bool = found.and_then(|row| row.try_get(0)).map_err(failed)?;
    if is_there { Ok(()) } else { Err(StoreError::unavailable(NoTables)) }
}

/// Makes the tables, or upgrades older ones. Refuses newer ones than this program knows.
pub async fn migrate(pool: &PgPool) -> Result<()> {
    let mut tx = pool.begin().await.map_err(failed)?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(MIGRATION_LOCK).execute(&mut *tx).await.map_err(failed)?;
    let begin = "CREATE SCHEMA IF NOT EXISTS telemetry; \
                 CREATE TABLE IF NOT EXISTS telemetry.schema_version (version BIGINT NOT NULL)";
    sqlx::raw_sql(begin).execute(&mut *tx).await.map_err(failed)?;
    let found = sqlx::query("SELECT coalesce(max(version), 0) FROM telemetry.schema_version");
    let found: i64 = found.fetch_one(&mut *tx).await.and_then(|row| row.try_get(0)).map_err(failed)?;
    let known = TABLE_STEPS.len() as i64;
    if found > known {
        return Err(StoreError::Damaged(format!(
            "telemetry has version {found}, and this version of Isobar reads up to {known}"
        )));
    }
    for (version, step) in (1_i64..).zip(TABLE_STEPS).filter(|(version, _)| *version > found) {
        sqlx::raw_sql(AssertSqlSafe(*step)).execute(&mut *tx).await.map_err(failed)?;
        let note = sqlx::query("INSERT INTO telemetry.schema_version (version) VALUES ($1)");
        note.bind(version).execute(&mut *tx).await.map_err(failed)?;
    }
    tx.commit().await.map_err(failed)
}
