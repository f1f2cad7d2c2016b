//! Opens connections whose statements mean the same whatever the defaults of the server, the database and the role.

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgConnection};

use super::watching::{STANDBY, is_standby};

/// Settings of every connection: what the driver does not set with its first message, and what would change the meaning or the
/// outcome of a statement. The server ends a connection, and frees what it locks, half a minute after its client was gone
/// without a word. The last ones are not of all versions, or not of all roles.
const SESSION: &str = "SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off; \
    SET default_transaction_deferrable = off; SET statement_timeout = 0; SET lock_timeout = 0; \
    SET idle_in_transaction_session_timeout = 0; SET idle_session_timeout = 0; SET standard_conforming_strings = on; \
    SET bytea_output = 'hex'; SET intervalstyle = 'postgres'; SET transform_null_equals = off; SET array_nulls = on; \
    SET quote_all_identifiers = off; SET gin_fuzzy_search_limit = 0; SET exit_on_error = off; \
    SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 30000; \
    SELECT set_config(name, wanted, false) FROM (VALUES ('transaction_timeout', '0'), ('session_replication_role', 'origin')) \
    AS own (name, wanted) WHERE current_setting(name, true) <> wanted";

/// Opens a single connection.
pub(crate) async fn connect(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    let mut connection = options.clone().disable_statement_logging().connect().await?;
    begin_session(&mut connection).await?;
    Ok(connection)
}

/// Makes the settings of a connection that was just opened those that all have. Fails on a standby, to which the address of
/// a database leads while PostgreSQL changes places: what is read there may be old. A server that has become a primary stays
/// one until it ends, and its connections with it, so that those that were opened need not ask again.
pub(crate) async fn begin_session(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(SESSION).execute(&mut *connection).await?;
    if is_standby(connection).await? { Err(sqlx::Error::Configuration(STANDBY.into())) } else { Ok(()) }
}
