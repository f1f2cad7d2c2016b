//! Opens the connections to PostgreSQL: one that writes, and some that read.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Decode, Postgres, Row as _, Type};

use super::super::time_order::{TimeOrder, id_of, order_of};
use crate::error::{Result, StoreError};
use crate::postgres::{begin_session, begun, has_ended, is_there, note_no_connection, takes_room};
use isobar_model::ids::EventId;

/// Bounds the connections that read: more than there are long reads at once, so that the others wait for none of them.
const READ_CONNECTIONS_MAX: u32 = 6;
/// Bounds the connections that change devices outside of groups: a forgotten device, retention.
const CHANGE_CONNECTIONS_MAX: u32 = 3;
/// Bounds the connections of a process to a database, with those for groups and for the watch.
pub const TELEMETRY_CONNECTIONS_MAX: u32 = READ_CONNECTIONS_MAX + CHANGE_CONNECTIONS_MAX + 2;
/// Time that a call waits for a connection before the store answers `Busy`.
const CONNECTION_WAIT: Duration = Duration::from_secs(10);
/// Time without use after which a connection is asked if it is there.
pub const SURE_FOR: Duration = Duration::from_secs(1);
/// Settings of a connection that reads: one that is forgotten by its reader ends by itself.
const TO_READ: &str = "SET statement_timeout = '30s'; SET default_transaction_read_only = on; SET jit = off";
/// Settings of a connection that writes: an acknowledgement means a sync (a stricter setting of the database stays), and a
/// row that another process holds for long is not waited for.
const TO_WRITE: &str = "SELECT set_config('synchronous_commit', 'on', false) \
                            WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply'); \
                        SET lock_timeout = '10s'; SET jit = off; SET plan_cache_mode = force_generic_plan";

/// Writes a record that means nothing, and waits like any commit until the standby has it, with all before it. Fails on a
/// standby.
pub const REACHES_STANDBY: &str = "SELECT pg_logical_emit_message(true, 'isobar', '')";

/// Number of the class of locks by which a process finds whether its former connection for groups has ended.
pub const GROUPS_LOCK_CLASS: i32 = 0x6973_6f62;
/// Lock of that class which a process holds alone that is the only one, and others share; no process has this number.
const ONLY_PROCESS: i32 = 0;

/// Error of a database that another process serves.
#[derive(Debug, thiserror::Error)]
#[error("another process serves this telemetry store, and one of the two must serve it alone")]
struct ServedElsewhere;

/// Error of a server of PostgreSQL that may lose what it has acknowledged.
#[derive(Debug, thiserror::Error)]
#[error("the server of PostgreSQL has {0} = off: it may lose, or damage, what it has acknowledged")]
struct UnsafeServer(&'static str);

/// Fails if the settings of the server let it lose what it has acknowledged, and warns if one machine alone has it.
pub async fn check_server(pool: &PgPool) -> Result<()> {
    let settings = "SELECT current_setting('fsync'), current_setting('full_page_writes'), \
                    current_setting('synchronous_standby_names')";
    let row = sqlx::query(settings).fetch_one(pool).await.map_err(failed)?;
    for (index, name) in ["fsync", "full_page_writes"].into_iter().enumerate() {
        if row.try_get::<&str, _>(index).map_err(failed)? == "off" {
            return Err(StoreError::unavailable(UnsafeServer(name)));
        }
    }
    if row.try_get::<&str, _>(2).map_err(failed)?.is_empty() {
        tracing::warn!(
            "PostgreSQL has no synchronous standby: an acknowledged event is lost if the disk of its one server is lost"
        );
    }
    Ok(())
}

/// Opens connections that only read.
pub async fn to_read(address: &str) -> Result<PgPool> {
    pool(address, READ_CONNECTIONS_MAX, vec![TO_READ.to_owned()]).await
}

/// Opens connections for changes outside of groups.
pub async fn to_change(address: &str) -> Result<PgPool> {
    pool(address, CHANGE_CONNECTIONS_MAX, vec![TO_WRITE.to_owned()]).await
}

/// Opens the connection for groups of a process. Each new one first ends the one before it, and waits until that is gone:
/// then the outcome of its last statement is known.
///
/// A process that `is_alone` fails if any other serves the database, and keeps all others out.
pub async fn to_write_groups(address: &str, process: i32, is_alone: bool) -> Result<PgPool> {
    let lock = if is_alone { "pg_advisory_lock" } else { "pg_advisory_lock_shared" };
    let takes_over = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND \
         classid = {GROUPS_LOCK_CLASS} AND objid = {process} AND database = \
         (SELECT oid FROM pg_database WHERE datname = current_database()); \
         SELECT pg_advisory_lock({GROUPS_LOCK_CLASS}, {process}); \
         SELECT {lock}({GROUPS_LOCK_CLASS}, {ONLY_PROCESS})"
    );
    // A connection that ends while its commit waits for a standby leaves a commit that this server alone has, and shows. So
    // nothing is ended while the standby hangs, and nothing is decided before the standby has all that can be seen.
    let steps = [TO_WRITE.to_owned(), REACHES_STANDBY.to_owned(), takes_over, REACHES_STANDBY.to_owned()];
    match pool(address, 1, steps.into()).await {
        Ok(pool) => Ok(pool),
        Err(error) => must_be_free(address).await.and(Err(error)),
    }
}

/// Fails if another process serves the database.
async fn must_be_free(address: &str) -> Result<()> {
    let pool = to_read(address).await?;
    let query = sqlx::query(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = $1::bigint::oid \
         AND objid = $2::bigint::oid AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))",
    );
    let query = query.bind(i64::from(GROUPS_LOCK_CLASS)).bind(i64::from(ONLY_PROCESS));
    let is_served: bool = query.fetch_one(&pool).await.and_then(|row| row.try_get(0)).map_err(failed)?;
    pool.close().await;
    if is_served { Err(StoreError::unavailable(ServedElsewhere)) } else { Ok(()) }
}

/// Opens a pool, each connection of which begins with these steps.
async fn pool(address: &str, connections: u32, steps: Vec<String>) -> Result<PgPool> {
    let options = address.parse::<PgConnectOptions>().map_err(failed)?;
    let pool = PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(CONNECTION_WAIT)
        .test_before_acquire(false)
        .before_acquire(|connection, last| {
            Box::pin(async move { Ok(last.idle_for < SURE_FOR || is_there(connection).await) })
        })
        .after_release(|connection, _| Box::pin(async move { Ok(has_ended(connection).await) }))
        .after_connect(move |connection, _| {
            let steps = steps.clone();
            Box::pin(async move {
                begin_session(connection).await?;
                for step in steps {
                    sqlx::raw_sql(AssertSqlSafe(step)).execute(&mut *connection).await?;
                }
                Ok(())
            })
        });
    pool.connect_with(options.disable_statement_logging()).await.map_err(failed)
}

/// Fails if the database has no room for further rows.
pub async fn must_have_room(pool: &PgPool) -> Result<()> {
    let mut tx = begun(pool).await.map_err(failed)?;
    sqlx::raw_sql(AssertSqlSafe(takes_room("telemetry."))).execute(&mut *tx).await.map_err(failed)?;
    tx.rollback().await.map_err(failed)
}

/// Converts a failure of the database to an error of this crate.
pub fn failed(error: sqlx::Error) -> StoreError {
    if matches!(error, sqlx::Error::PoolTimedOut) {
        note_no_connection();
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

    /// Returns a column with a name.
    fn name(&self, index: usize) -> Result<Arc<str>> {
        let name = std::str::from_utf8(self.column(index)?);
        name.map(Arc::from).map_err(|_| StoreError::Damaged("a name is not in UTF-8".to_owned()))
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
