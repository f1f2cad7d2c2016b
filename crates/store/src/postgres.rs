//! Watches databases of PostgreSQL, begins transactions there, and encodes the rows of copies, for the registry and telemetry.

mod away;
pub(crate) mod copied_rows;
pub(crate) mod fitness;
mod refused_connections;
mod session;
mod watched_pool;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use isobar_model::time::Clock;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool};
use sqlx::{Connection as _, Postgres, Transaction};

pub(crate) use self::away::{Away, AwayDatabase};
pub(crate) use self::refused_connections::note_no_connection;
pub use self::refused_connections::usable_connections;
pub(crate) use self::session::{begin_session, connect};
pub(crate) use self::watched_pool::WatchedPool;
pub(crate) use self::watching::{DatabaseWatch, STANDBY, must_take_writes};

/// Time for the answer on a connection before it is used again.
const PINGED_WITHIN: Duration = Duration::from_secs(2);
/// Time in which a statement that nobody waits for any more has to end: after that its connection is given up.
const RELEASED_WITHIN: Duration = Duration::from_secs(5);

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

/// Returns host and port of the server at an address.
pub fn server_of(address: &str) -> Option<String> {
    let place = place(&address.parse().ok()?);
    place.rsplit_once('/').map(|(server, _)| server.to_owned())
}
