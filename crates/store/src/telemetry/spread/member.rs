//! One of several databases.

use std::sync::Arc;
use std::time::Duration;

use isobar_model::time::Clock;

use crate::error::{Result, StoreError};
use crate::postgres::fitness::NoFurtherConnections;
use crate::telemetry::Telemetry as _;
use crate::telemetry::postgres::{DatabaseFailed, OpenedDatabase, PostgresTelemetry, name_of, named};

/// Time in which the store in a database has to close. One that falls silent meanwhile is away before that.
const CLOSED_WITHIN: Duration = Duration::from_secs(20);
/// Time for which a start waits for a database that is the only one, (next constant) for one of several, and (the one after)
/// the pause between two tries.
const ONE_REACHED_WITHIN: Duration = Duration::from_secs(10);
const REACHED_WITHIN: Duration = Duration::from_secs(60);
const REACHED_EVERY: Duration = Duration::from_secs(1);

/// One of several databases.
pub struct Member {
    name: Arc<str>,
    store: PostgresTelemetry,
}

/// Error of a database the store in which did not close in time.
#[derive(Debug, thiserror::Error)]
#[error("what was written last has no outcome yet")]
struct NotClosed;

/// Opens a database, and waits until it can be reached.
pub async fn open(address: &str, needs_syncs: bool) -> Result<OpenedDatabase> {
    let open = || async { OpenedDatabase::open(address, needs_syncs).await.map_err(|error| named(address, error)) };
    when_reached(REACHED_WITHIN, open).await
}

/// Returns the time for which a start waits for each of these.
pub fn waited_for(addresses: &[String]) -> Duration {
    if addresses.len() == 1 { ONE_REACHED_WITHIN } else { REACHED_WITHIN }
}

/// Does something with a database, and waits for some time until it can be reached.
pub async fn when_reached<T, F: Future<Output = Result<T>>>(within: Duration, work: impl Fn() -> F) -> Result<T> {
    let begun = Clock::System.instant();
    loop {
        let error = match work().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        if !may_pass(&error) || Clock::System.elapsed(begun) >= within {
            return Err(error);
        }
        tracing::warn!(%error, "cannot reach a telemetry database, will retry");
        Clock::System.sleep(REACHED_EVERY).await;
    }
}

/// Returns true if a database that cannot be opened may be reached later.
fn may_pass(error: &StoreError) -> bool {
    match error {
        StoreError::Busy => true,
        StoreError::Unavailable(cause) => match (cause.downcast_ref::<DatabaseFailed>(), cause.downcast_ref()) {
            (Some(of_one), _) => may_pass(&of_one.error),
            (None, Some(sqlx::Error::Io(_))) => true,
            (None, None) => cause.is::<NoFurtherConnections>(),
            // It starts, or stops.
            (None, Some(sqlx::Error::Database(error))) => error.code().is_some_and(|code| code.starts_with("57P")),
            _ => false,
        },
        _ => false,
    }
}

impl Member {
    /// Creates it, of an open store.
    pub fn new(address: &str, store: PostgresTelemetry) -> Self {
        Self { name: name_of(address), store }
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
        self.store.away().must_be_here()?;
        Ok(&self.store)
    }

    /// Waits for an answer of the database as long as it is not away.
    pub async fn ask<T>(&self, answer: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.store.away().ask(answer).await
    }

    /// Closes the store in the database.
    pub async fn close(&self) -> Result<()> {
        let closed = Clock::System.timeout(CLOSED_WITHIN, self.store.close()).await;
        closed.unwrap_or_else(|_| Err(StoreError::unavailable(NotClosed))).map_err(|error| self.named(error))
    }

    /// Names this database as the one that an error is of.
    pub fn named(&self, error: StoreError) -> StoreError {
        StoreError::unavailable(DatabaseFailed { name: Arc::clone(&self.name), error })
    }
}
