//! Begins transactions in PostgreSQL, and encodes the rows of its copies, for the registry and telemetry.

pub(crate) mod copied_rows;

use std::str::FromStr as _;

use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{Postgres, Transaction};

/// Begins a transaction, and goes on with it where the caller is dropped meanwhile: the driver counts a transaction only when
/// it has begun, and would return a connection on which one is open that nobody ends.
pub(crate) async fn begun(pool: &PgPool) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
    let connection = pool.acquire().await?;
    tokio::spawn(Transaction::begin(connection, None)).await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
}

/// Returns host, port and database of an address, without user and password; `None` if it cannot be read.
pub(crate) fn place(address: &str) -> Option<String> {
    let options = PgConnectOptions::from_str(address).ok()?;
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    Some(format!("{}:{}/{database}", options.get_host(), options.get_port()))
}
