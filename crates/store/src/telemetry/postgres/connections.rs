//! Opens the connections to PostgreSQL: one that writes, and some that read.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Decode, Postgres, Row as _, Type};

use super::super::time_order::{TimeOrder, id_of, order_of};
use crate::error::{Result, StoreError};
use isobar_model::ids::EventId;

/// Bounds the connections that read.
const READ_CONNECTIONS_MAX: u32 = 8;
/// Bounds the connections that change devices outside of groups: a forgotten device, retention.
const CHANGE_CONNECTIONS_MAX: u32 = 4;
/// Time that a call waits for a connection before the store answers `Busy`.
const CONNECTION_WAIT: Duration = Duration::from_secs(10);
/// Settings of a connection that reads: one that is forgotten by its reader ends by itself.
const TO_READ: &str = "SET statement_timeout = '30s'; SET default_transaction_read_only = on; SET jit = off";
/// Settings of a connection that writes: an acknowledgement means a sync, and a row that another process holds for long is
/// not waited for.
const TO_WRITE: &str = "SET synchronous_commit = on; SET lock_timeout = '10s'; SET jit = off; \
                        SET plan_cache_mode = force_generic_plan";

/// Number of the class of locks by which a process finds whether its former connection for groups has ended.
pub const GROUPS_LOCK_CLASS: i32 = 0x6973_6f62;

/// Opens connections that only read.
pub async fn to_read(address: &str) -> Result<PgPool> {
    pool(address, READ_CONNECTIONS_MAX, TO_READ.to_owned()).await
}

/// Opens connections for changes outside of groups.
pub async fn to_change(address: &str) -> Result<PgPool> {
    pool(address, CHANGE_CONNECTIONS_MAX, TO_WRITE.to_owned()).await
}

/// Opens the connection for groups of a process. Each new one first ends the one before it, and waits until that is gone:
/// then the outcome of its last statement is known.
pub async fn to_write_groups(address: &str, process: i32) -> Result<PgPool> {
    let settings = format!(
        "{TO_WRITE}; SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND \
         classid = {GROUPS_LOCK_CLASS} AND objid = {process} AND database = \
         (SELECT oid FROM pg_database WHERE datname = current_database()); \
         SELECT pg_advisory_lock({GROUPS_LOCK_CLASS}, {process})"
    );
    pool(address, 1, settings).await
}

async fn pool(address: &str, connections: u32, settings: String) -> Result<PgPool> {
    let options = address.parse::<PgConnectOptions>().map_err(failed)?;
    let pool = PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(CONNECTION_WAIT)
        .test_before_acquire(false)
        .after_connect(move |connection, _| {
            let settings = settings.clone();
            Box::pin(async move { sqlx::raw_sql(AssertSqlSafe(settings)).execute(connection).await.map(drop) })
        });
    pool.connect_with(options.disable_statement_logging()).await.map_err(failed)
}

/// Converts a failure of the database to an error of this crate.
pub fn failed(error: sqlx::Error) -> StoreError {
    if matches!(error, sqlx::Error::PoolTimedOut) {
        return StoreError::Busy;
    }
    let code = error.as_database_error().and_then(|error| error.code());
    match code.as_deref() {
        // Deadlock, serialization failure, lock timeout, statement timeout, too many connections.
        Some("40P01" | "40001" | "55P03" | "57014" | "53300") => StoreError::Busy,
        Some("XX001" | "XX002") => StoreError::Damaged(error.to_string()),
        _ => StoreError::unavailable(error),
    }
}

/// Reads columns of rows.
pub trait ReadColumn {
    /// Returns a column, by its index.
    fn column<'r, T: Decode<'r, Postgres> + Type<Postgres>>(&'r self, index: usize) -> Result<T>;

    /// Returns a column with a count or a number that is never negative.
    fn count(&self, index: usize) -> Result<u64> {
        Ok(u64::try_from(self.column::<i64>(index)?).unwrap_or_default())
    }

    /// Returns a column with a position in time.
    fn order(&self, index: usize) -> Result<TimeOrder> {
        read_order(self.column(index)?)
    }

    /// Returns the identifier in a column, or that of a position if there is none.
    fn id(&self, index: usize, order: TimeOrder) -> Result<EventId> {
        let id: Option<&[u8]> = self.column(index)?;
        id.map_or(Ok(id_of(order)), |id| read_order(id).map(id_of))
    }

    /// Returns a column with a text.
    fn name(&self, index: usize) -> Result<Arc<str>> {
        self.column::<&str>(index).map(Arc::from)
    }
}

impl ReadColumn for PgRow {
    fn column<'r, T: Decode<'r, Postgres> + Type<Postgres>>(&'r self, index: usize) -> Result<T> {
        self.try_get(index).map_err(failed)
    }
}

/// Reads a position in time.
fn read_order(bytes: &[u8]) -> Result<TimeOrder> {
    let bytes =
        bytes.try_into().map_err(|_| StoreError::Damaged("a position in time has another length".to_owned()))?;
    Ok(TimeOrder::from_be_bytes(bytes))
}

/// Returns the identifier to be stored beside a position, unless it is the same.
pub fn own_id(id: EventId, order: TimeOrder) -> Option<[u8; 16]> {
    (order_of(id) != order).then(|| order_of(id).to_be_bytes())
}
