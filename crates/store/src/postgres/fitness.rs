//! Checks that a PostgreSQL can hold a store, so that an unsuitable one is reported at startup rather than to each caller.

use std::time::Duration;

use isobar_model::time::Clock;
use sqlx::{Connection as _, PgConnection, Row as _};

use super::{begin_session, place};
use crate::error::{Result, StoreError};

/// Encoding of the database: the only one that holds every text.
const ENCODING: &str = "UTF8";
/// Statement that gives a session a mark that no other session has.
const GIVE_MARK: &str = "SELECT set_config('isobar.session', pg_backend_pid()::text, false)";
/// Statement that reads the mark of a session.
const LOOK: &str = "SELECT coalesce(current_setting('isobar.session', true), '')";

/// Time in which a database, or a pooler before it, has to answer all questions.
const FIT_WITHIN: Duration = Duration::from_secs(10);

/// Error of a database that gives no connections.
#[derive(Debug, thiserror::Error)]
#[error("PostgreSQL, or a pooler before it, answered no further connections in {FIT_WITHIN:?}")]
pub(crate) struct NoFurtherConnections;

/// Refuses a pooler that gives each transaction another session: settings of one connection would apply to others. `setting`
/// has the address.
pub(crate) async fn must_have_sessions(address: &str, setting: &str) -> Result<()> {
    let asked = Clock::System.timeout(FIT_WITHIN, has_shared_sessions(address)).await;
    if asked.unwrap_or_else(|_| Err(StoreError::unavailable(NoFurtherConnections)))? {
        return Err(StoreError::unavailable(format!(
            "the address of PostgreSQL leads to a pooler that gives each transaction another session (PgBouncer with \
             pool_mode = transaction or statement), and Isobar needs a session for each connection: set pool_mode = session \
             there, or give PostgreSQL's own address as {setting}"
        )));
    }
    Ok(())
}

async fn has_shared_sessions(address: &str) -> Result<bool> {
    let (mut first, mut second) = (connect(address).await?, connect(address).await?);
    let is_shared = is_session_shared(&mut first, &mut second).await?;
    for connection in [first, second] {
        // A pooler may have closed the connection already.
        let _ = connection.close().await;
    }
    Ok(is_shared)
}

/// Refuses a standby. `setting` has the address.
pub(crate) async fn must_be_primary(address: &str, setting: &str) -> Result<()> {
    if answer(address, "SELECT pg_is_in_recovery()::text").await? != "true" {
        return Ok(());
    }
    let database = address.parse().map(|options| place(&options)).map_err(StoreError::unavailable)?;
    Err(StoreError::unavailable(format!(
        "{database} is a standby, which takes no writes: give the address of the primary server as {setting}, or one that \
         leads to whichever server is primary"
    )))
}

/// Refuses a database that cannot hold every text.
pub(crate) async fn must_hold_every_text(address: &str) -> Result<()> {
    let encoding = answer(address, "SHOW server_encoding").await?;
    if encoding != ENCODING {
        return Err(StoreError::unavailable(format!(
            "the database has the encoding {encoding}, and Isobar needs {ENCODING}, the only one that holds every text that \
             devices and users send: create a database with ENCODING 'UTF8' TEMPLATE template0, and restore into it what \
             pg_dump makes of this one, if it is in use already"
        )));
    }
    Ok(())
}

/// Asks a question on a connection of its own.
async fn answer(address: &str, question: &'static str) -> Result<String> {
    let asked = async {
        let mut connection = connect(address).await?;
        let answer = told(&mut connection, question).await;
        let _ = connection.close().await;
        answer
    };
    Clock::System
        .timeout(FIT_WITHIN, asked)
        .await
        .unwrap_or_else(|_| Err(StoreError::unavailable(NoFurtherConnections)))
}

/// Returns true if a setting of one connection is missing in its next statement, or visible on another connection.
async fn is_session_shared(first: &mut PgConnection, second: &mut PgConnection) -> Result<bool> {
    let mark = told(first, GIVE_MARK).await?;
    // A pooler may hand sessions out in turn: then the next statement runs in another session.
    if told(first, LOOK).await? != mark {
        return Ok(true);
    }
    // Or a pooler hands out the session used last: then the other connection gets it for its transaction.
    match sqlx::raw_sql("BEGIN").execute(&mut *second).await {
        // A pooler that shares sessions by statement allows no transactions.
        Err(sqlx::Error::Database(_)) => return Ok(true),
        begun => begun.map_err(StoreError::unavailable)?,
    };
    let is_shared = told(second, LOOK).await? == mark || told(first, LOOK).await? != mark;
    sqlx::raw_sql("ROLLBACK").execute(&mut *second).await.map_err(StoreError::unavailable)?;
    Ok(is_shared)
}

async fn connect(address: &str) -> Result<PgConnection> {
    let mut connection = PgConnection::connect(address).await.map_err(StoreError::unavailable)?;
    // A pooler may refuse several settings at once, which is no answer yet.
    let _ = begin_session(&mut connection).await;
    Ok(connection)
}

/// Asks a question whose answer is a text, in one message: a prepared statement would belong to one session.
async fn told(connection: &mut PgConnection, question: &'static str) -> Result<String> {
    let row = sqlx::raw_sql(question).fetch_one(connection).await.map_err(StoreError::unavailable)?;
    row.try_get(0).map_err(StoreError::unavailable)
}
