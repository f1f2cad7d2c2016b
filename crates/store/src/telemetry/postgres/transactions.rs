//! Keeps the order of events in a database that was brought back from a dump. Events are ordered by the numbers of their
//! transactions, which begin anew with each server: later events would come before earlier ones.

use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPool;

use super::connections::{ReadColumn as _, failed};
use crate::error::Result;
use crate::postgres::begun;

/// Lock that keeps two processes that start at once from raising at once.
const ORDER_LOCK: i64 = 0x0069_736f_6261_7215;
/// Number that is added, the next number of the server, and the greatest of an event.
const NUMBERS: &str = "SELECT coalesce((SELECT millis FROM telemetry.moment WHERE name = 'transactions'), 0), \
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint, coalesce((SELECT max(xact) FROM telemetry.event), 0)";
const NOTE_RAISED: &str = "INSERT INTO telemetry.moment (name, millis) VALUES ('transactions', $1) \
    ON CONFLICT (name) DO UPDATE SET millis = excluded.millis";

/// Returns the number that is added to those of the server's transactions: 0, unless the server is behind the events that
/// the database has, or behind a place that is known. Then it is raised, for all processes.
pub async fn raised(pool: &PgPool, known: i64) -> Result<i64> {
    let mut tx = begun(pool).await.map_err(failed)?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(ORDER_LOCK).execute(&mut *tx).await.map_err(failed)?;
    let row = sqlx::query(NUMBERS).fetch_one(&mut *tx).await.map_err(failed)?;
    let (raised, next, newest): (i64, i64, i64) = (row.column(0)?, row.column(1)?, row.column(2)?);
    let behind = newest.max(known).saturating_sub(next.saturating_add(raised));
    if behind < 0 {
        tx.rollback().await.map_err(failed)?;
        return Ok(raised);
    }
    let raised = raised.saturating_add(behind).saturating_add(1);
    let default = format!(
        "ALTER TABLE telemetry.event ALTER COLUMN xact SET DEFAULT pg_current_xact_id()::text::bigint + {raised}"
    );
    sqlx::raw_sql(AssertSqlSafe(default)).execute(&mut *tx).await.map_err(failed)?;
    sqlx::query(NOTE_RAISED).bind(raised).execute(&mut *tx).await.map_err(failed)?;
    tx.commit().await.map_err(failed)?;
    tracing::warn!(
        raised,
        "the server's transactions are behind the events of the database, as after a dump: new ones are raised"
    );
    Ok(raised)
}
