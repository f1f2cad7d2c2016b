//! Watches databases of PostgreSQL, begins transactions there, and encodes the rows of copies, for the registry and telemetry.

mod away;
pub(crate) mod copied_rows;
mod watched_pool;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use isobar_model::time::Clock;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool};
use sqlx::{Connection as _, Postgres, Transaction};

pub(crate) use self::away::{Away, AwayDatabase};
pub(crate) use self::watched_pool::WatchedPool;
use self::watching::is_standby;
pub(crate) use self::watching::{DatabaseWatch, STANDBY, must_take_writes};

/// Time for the answer on a connection before it is used again.
const PINGED_WITHIN: Duration = Duration::from_secs(2);
/// Time in which a statement that nobody waits for any more has to end: after that its connection is given up.
const RELEASED_WITHIN: Duration = Duration::from_secs(5);
/// Settings by which the server ends a connection, and frees what it locks, half a minute after its client was gone without a
/// word.
const NOTICES_LOSS: &str = "SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; \
    SET tcp_keepalives_count = 3; SET tcp_user_timeout = 30000";

/// Prepares a connection that was just opened. Fails on a standby, to which the address of a database leads while PostgreSQL
/// changes places: what is read there may be old. A server that has become a primary stays one until it ends, and its
/// connections with it, so that those that were opened need not ask again.
pub(crate) async fn begin_session(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(NOTICES_LOSS).execute(&mut *connection).await?;
    if is_standby(connection).await? { Err(sqlx::Error::Configuration(STANDBY.into())) } else { Ok(()) }
}

/// Returns true once the last statement of a connection that is given back has ended; false if it takes too long. Without an
/// unfinished statement this sends and waits for nothing.
pub(crate) async fn has_ended(connection: &mut PgConnection) -> bool {
    Clock::System.timeout(RELEASED_WITHIN, connection.flush()).await.is_ok_and(|ended| ended.is_ok())
}

/// Returns true if a connection that had nothing to do is answered: a firewall may have forgotten it.
pub(crate) async fn is_there(connection: &mut PgConnection) -> bool {
    Clock::System.timeout(PINGED_WITHIN, connection.ping()).await.is_ok_and(|ping| ping.is_ok())
}

/// Returns statements that need room on the server's disk, in a schema (with its dot). They are rolled back: a row that is
/// changed where it stands needs none, and says nothing of a disk that is full.
pub(crate) fn takes_room(schema: &str) -> String {
    format!(
        "CREATE TABLE {schema}isobar_room (filler TEXT); \
         INSERT INTO {schema}isobar_room SELECT repeat('x', 1900) FROM generate_series(1, 32)"
    )
}

/// Begins a transaction, and goes on with it where the caller is dropped meanwhile: the driver counts a transaction only when
/// it has begun, and would return a connection on which one is open that nobody ends.
pub(crate) async fn begun(pool: &PgPool) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
    let connection = pool.acquire().await?;
    tokio::spawn(Transaction::begin(connection, None)).await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
}

/// Returns host, port and name of a database, without user and password.
pub(crate) fn place(options: &PgConnectOptions) -> Arc<str> {
    let socket = options.get_socket().map(|socket| socket.display().to_string());
    let host = socket.unwrap_or_else(|| options.get_host().to_owned());
    let name = options.get_database().unwrap_or_else(|| options.get_username());
    format!("{host}:{}/{name}", options.get_port()).into()
}
