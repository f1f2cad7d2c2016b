//! Watches databases of PostgreSQL, begins transactions there, and encodes the rows of copies, for the registry and telemetry.

mod away;
pub(crate) mod copied_rows;
mod watched_pool;
mod watching;

use std::sync::Arc;

use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{Postgres, Transaction};

pub(crate) use self::away::{Away, AwayDatabase};
pub(crate) use self::watched_pool::WatchedPool;
pub(crate) use self::watching::{DatabaseWatch, must_take_writes};

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
