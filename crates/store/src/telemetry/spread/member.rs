//! One of several databases.

use std::sync::Arc;
use std::time::Duration;

use isobar_model::time::Clock;

use crate::error::{Result, StoreError};
use crate::telemetry::Telemetry as _;
use crate::telemetry::postgres::{DatabaseFailed, OpenedDatabase, PostgresTelemetry, name_of, named};

/// Time in which the store in a database has to close. One that falls silent meanwhile is away before that.
const CLOSED_WITHIN: Duration = Duration::from_secs(20);
/// Time for which a start waits for a database, and (next constant) the pause between two tries.
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
