//! Asks a database from time to time if it answers, on a connection of its own: nobody waits for one that is away.

use std::sync::Arc;
use std::time::Duration;

use isobar_model::time::Clock;
use sqlx::Row as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgExecutor};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::away::{Away, AwayDatabase, Presence};
use super::refused_connections::log_causes;
use super::{connect, place};
use crate::error::{Result, StoreError};

/// Time between two questions, and (next constant) the longest time that a database has to answer one.
const ASKED_EVERY: Duration = Duration::from_millis(500);
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// Time without an answer after which a database is away: until then its calls wait for it.
const AWAY_AFTER: Duration = Duration::from_secs(3);

/// Error of a server that shows what another one had, some time ago.
pub(crate) const STANDBY: &str = "PostgreSQL takes no writes: it is a standby";

/// Watch of a database; ends when it is dropped too.
#[derive(Debug)]
pub(crate) struct DatabaseWatch {
    away: AwayDatabase,
    asks: JoinHandle<()>,
    logs: JoinHandle<()>,
}

/// A database that is asked, whatever its other connections wait for. A connection that gave no answer is given up.
struct AskedDatabase {
    what: &'static str,
    name: Arc<str>,
    options: PgConnectOptions,
    connection: Option<PgConnection>,
}

/// Error of a database that did not answer in time.
#[derive(Debug, thiserror::Error)]
#[error("it does not answer")]
struct NoAnswer;

impl DatabaseWatch {
    /// Begins to ask the database at an address. The log calls it `what`.
    ///
    /// # Errors
    /// The address cannot be read.
    pub fn begin(what: &'static str, address: &str) -> Result<Self> {
        let options = address.parse::<PgConnectOptions>().map_err(StoreError::unavailable)?;
        let logs = tokio::spawn(log_causes(what, options.clone()));
        let database = AskedDatabase { what, name: place(&options), options, connection: None };
        let (tell, away) = AwayDatabase::watched();
        Ok(Self { away, asks: tokio::spawn(database.ask_on(tell)), logs })
    }

    /// Tells if the database is away.
    pub fn away(&self) -> &AwayDatabase {
        &self.away
    }

    /// Ends it.
    pub fn end(&self) {
        self.asks.abort();
        self.logs.abort();
    }
}

impl Drop for DatabaseWatch {
    fn drop(&mut self) {
        self.end();
    }
}

impl AskedDatabase {
    /// Fails if the database cannot be asked, or takes no writes.
    async fn ask(&mut self) -> Result<()> {
        // Given back only with an answer, also if this is cancelled.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(&self.options).await.map_err(StoreError::unavailable)?,
        };
        must_take_writes(&mut connection).await?;
        self.connection = Some(connection);
        Ok(())
    }

    /// Asks the database if it answers, until it is cancelled; tells when it goes away and comes back.
    async fn ask_on(mut self, tell: watch::Sender<Presence>) {
        let mut answered = Clock::System.instant();
        loop {
            let (asked, is_away) = (Clock::System.instant(), tell.borrow().away.is_some());
            // A process that stood still has to ask before it knows.
            let left = AWAY_AFTER.saturating_sub(Clock::System.elapsed(answered)).max(ASKED_EVERY);
            let within = if is_away { ANSWERS_WITHIN } else { ANSWERS_WITHIN.min(left) };
            let answer = Clock::System.timeout(within, self.ask()).await;
            let (what, name) = (self.what, &*self.name);
            match answer.unwrap_or_else(|_| Err(StoreError::unavailable(NoAnswer))) {
                Ok(()) => {
                    answered = Clock::System.instant();
                    if is_away {
                        tracing::info!(database = name, "the {what} is back");
                        tell.send_replace(Presence { away: None, back: Some(answered) });
                    }
                }
                Err(error) if Clock::System.elapsed(answered) >= AWAY_AFTER && !is_away => {
                    tracing::error!(database = name, %error, "the {what} is away: what needs it is refused");
                    let cause = error.to_string().into();
                    tell.send_modify(|it| it.away = Some(Away { what, name: Arc::clone(&self.name), cause }));
                }
                Err(_) => {}
            }
            // A question that was answered late was a pause too.
            Clock::System.sleep(ASKED_EVERY.saturating_sub(Clock::System.elapsed(asked))).await;
        }
    }
}

/// Fails if the database cannot be asked, or takes no writes.
pub(crate) async fn must_take_writes(database: impl PgExecutor<'_>) -> Result<()> {
    match is_standby(database).await.map_err(StoreError::unavailable)? {
        true => Err(StoreError::unavailable(STANDBY)),
        false => Ok(()),
    }
}

/// Returns true if the server is a standby.
pub(super) async fn is_standby(database: impl PgExecutor<'_>) -> std::result::Result<bool, sqlx::Error> {
    sqlx::query("SELECT pg_is_in_recovery()").fetch_one(database).await?.try_get(0)
}
