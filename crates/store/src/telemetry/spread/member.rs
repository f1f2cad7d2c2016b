//! One of several databases, and if it answers.

use std::sync::Arc;
use std::time::Duration;

use isobar_model::time::Clock;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::{Result, StoreError};
use crate::telemetry::Telemetry as _;
use crate::telemetry::postgres::{
    AskingConnection, Away, AwayDatabase, DatabaseFailed, OpenedDatabase, PostgresTelemetry, name_of, named,
};

/// Time between two questions, and (next constant) the longest time that a database has to answer one.
const ASKED_EVERY: Duration = Duration::from_millis(500);
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// Time without an answer after which a database is away: until then its calls wait for it.
const AWAY_AFTER: Duration = Duration::from_secs(3);
/// Time in which the store in a database has to close. One that falls silent meanwhile is away before that.
const CLOSED_WITHIN: Duration = Duration::from_secs(20);
/// Time for which a start waits for a database, and (next constant) the pause between two tries.
const REACHED_WITHIN: Duration = Duration::from_secs(60);
const REACHED_EVERY: Duration = Duration::from_secs(1);

/// The right to tell that a database is away.
type TellAway = watch::Sender<Option<Away>>;

/// One of several databases.
pub struct Member {
    name: Arc<str>,
    store: PostgresTelemetry,
    away: AwayDatabase,
    asks: JoinHandle<()>,
}

/// Error of a database that did not answer in time.
#[derive(Debug, thiserror::Error)]
#[error("it does not answer")]
struct NoAnswer;

/// Error of a database the store in which did not close in time.
#[derive(Debug, thiserror::Error)]
#[error("what was written last has no outcome yet")]
struct NotClosed;

/// Opens a database, and waits until it can be reached.
pub async fn open(address: &str, needs_syncs: bool) -> Result<OpenedDatabase> {
    let begun = Clock::System.instant();
    loop {
        let error = match OpenedDatabase::open(address, needs_syncs).await {
            Ok(opened) => return Ok(opened),
            Err(error) => error,
        };
        if !may_pass(&error) || Clock::System.elapsed(begun) >= REACHED_WITHIN {
            return Err(named(address, error));
        }
        tracing::warn!(database = %name_of(address), %error, "cannot reach a telemetry database, will retry");
        Clock::System.sleep(REACHED_EVERY).await;
    }
}

/// Returns true if a database that cannot be opened may be reached later.
fn may_pass(error: &StoreError) -> bool {
    match error {
        StoreError::Busy => true,
        StoreError::Unavailable(cause) => match cause.downcast_ref::<sqlx::Error>() {
            Some(sqlx::Error::Io(_)) => true,
            // It starts, or stops.
            Some(sqlx::Error::Database(error)) => error.code().is_some_and(|code| code.starts_with("57P")),
            _ => false,
        },
        _ => false,
    }
}

impl Member {
    /// Begins to ask an open database from time to time if it answers.
    pub fn new(address: &str, store: PostgresTelemetry, (tell, away): (TellAway, AwayDatabase)) -> Result<Self> {
        let asked = AskingConnection::new(address).map_err(|error| named(address, error))?;
        let name = name_of(address);
        let asks = tokio::spawn(ask_on(asked, Arc::clone(&name), tell));
        Ok(Self { name, store, away, asks })
    }

    /// Returns the number of the database.
    pub fn number(&self) -> u16 {
        self.store.database()
    }

    /// Returns host, port and name of the database.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the store in the database.
    pub fn store(&self) -> &PostgresTelemetry {
        &self.store
    }

    /// Returns the store in the database.
    ///
    /// # Errors
    /// The database is away.
    pub fn here(&self) -> Result<&PostgresTelemetry> {
        self.away.must_be_here().map(|()| &self.store)
    }

    /// Waits for an answer of the database as long as it is not away.
    pub async fn ask<T>(&self, answer: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.away.ask(answer).await
    }

    /// Closes the store in the database, and asks it no more.
    pub async fn close(&self) -> Result<()> {
        let closed = Clock::System.timeout(CLOSED_WITHIN, self.store.close()).await;
        // Asked until here: what waits for a silent database has to hear that it is away.
        self.asks.abort();
        closed.unwrap_or_else(|_| Err(StoreError::unavailable(NotClosed))).map_err(|error| self.named(error))
    }

    /// Names this database as the one that an error is of.
    pub fn named(&self, error: StoreError) -> StoreError {
        StoreError::unavailable(DatabaseFailed { name: Arc::clone(&self.name), error })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.asks.abort();
    }
}

/// Asks a database if it answers, until it is cancelled; tells when it goes away and comes back.
async fn ask_on(mut connection: AskingConnection, name: Arc<str>, tell: TellAway) {
    let mut answered = Clock::System.instant();
    loop {
        let (asked, is_away) = (Clock::System.instant(), tell.borrow().is_some());
        let left = AWAY_AFTER.saturating_sub(Clock::System.elapsed(answered));
        let within = if is_away { ANSWERS_WITHIN } else { ANSWERS_WITHIN.min(left) };
        let answer = Clock::System.timeout(within, connection.ask()).await;
        match answer.unwrap_or_else(|_| Err(StoreError::unavailable(NoAnswer))) {
            Ok(()) => {
                answered = Clock::System.instant();
                if is_away {
                    tracing::info!(database = %name, "a telemetry database is back");
                    tell.send_replace(None);
                }
            }
            Err(error) if Clock::System.elapsed(answered) >= AWAY_AFTER && !is_away => {
                tracing::error!(database = %name, %error, "a telemetry database is away: calls of its devices are refused");
                tell.send_replace(Some(Away { name: Arc::clone(&name), cause: error.to_string().into() }));
            }
            Err(_) => {}
        }
        // A question that was answered late was a pause too.
        Clock::System.sleep(ASKED_EVERY.saturating_sub(Clock::System.elapsed(asked))).await;
    }
}
