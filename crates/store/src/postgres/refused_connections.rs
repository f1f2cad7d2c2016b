//! Logs why a database gives no more connections. A call that waits for one is only refused as busy: the driver tries to connect
//! again for as long as the call may wait, and returns no cause.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use isobar_model::time::Clock;
use sqlx::Connection as _;
use sqlx::postgres::PgConnectOptions;

use super::{connect, place};

/// Pause between two looks if calls were refused.
const LOOKED_EVERY: Duration = Duration::from_secs(5);
/// Time that the connection has by which the cause is found.
const FOUND_WITHIN: Duration = Duration::from_secs(5);

/// Calls of this process that have got no connection, to whichever database.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Notes that a call has got no connection.
pub(crate) fn note_no_connection() {
    REFUSED.fetch_add(1, Ordering::Relaxed);
}

/// Looks from time to time if calls have got no connection, and logs the cause if the server gives none, until it is
/// cancelled.
pub(super) async fn log_causes(what: &'static str, options: PgConnectOptions) {
    let mut seen = REFUSED.load(Ordering::Relaxed);
    loop {
        Clock::System.sleep(LOOKED_EVERY).await;
        let refused = REFUSED.load(Ordering::Relaxed);
        let calls = refused.wrapping_sub(std::mem::replace(&mut seen, refused));
        if calls == 0 {
            continue;
        }
        match Clock::System.timeout(FOUND_WITHIN, connect(&options)).await {
            Ok(Ok(connection)) => drop(connection.close().await),
            Ok(Err(error)) if error.as_database_error().is_some() => {
                let database = &*place(&options);
                tracing::error!(database, calls, %error, "the {what} gives no more connections: calls were refused with 503");
            }
            // The watch logs that the database is away.
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

/// Returns the connections that a role may have at the same time to the database at an address: what the server keeps for
/// superusers is left out, and limits of the role and the database count too.
pub async fn usable_connections(address: &str) -> Result<u64, sqlx::Error> {
    let options: PgConnectOptions = address.parse()?;
    let mut connection = connect(&options).await?;
    let usable: i64 = sqlx::query_scalar(USABLE).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(usable.unsigned_abs())
}

const USABLE: &str = "SELECT least(current_setting('max_connections')::bigint \
        - current_setting('superuser_reserved_connections')::bigint \
        - coalesce(current_setting('reserved_connections', true)::bigint, 0), \
    (SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user), \
    (SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database()))::bigint";
