//! Tells those who wait for one of several databases that it is away: who watches it knows.

use std::sync::Arc;

use tokio::sync::watch;

use crate::error::{Result, StoreError};

/// Name of a database that is away, and the cause.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the telemetry database {name} is away: {cause}")]
pub(crate) struct Away {
    /// Host, port and name of the database.
    pub name: Arc<str>,
    /// The cause.
    pub cause: Arc<str>,
}

/// Tells if a database is away. Clones watch the same one.
#[derive(Clone, Debug)]
pub(crate) struct AwayDatabase(watch::Receiver<Option<Away>>);

impl AwayDatabase {
    /// Watches a database, and returns the right to tell that it is away.
    pub fn watched() -> (watch::Sender<Option<Away>>, Self) {
        let (tell, away) = watch::channel(None);
        (tell, Self(away))
    }

    /// Returns a database that nobody watches: calls wait for it.
    pub fn never() -> Self {
        Self::watched().1
    }

    /// Fails if the database is away.
    pub fn must_be_here(&self) -> Result<()> {
        match &*self.0.borrow() {
            None => Ok(()),
            Some(away) => Err(StoreError::unavailable(away.clone())),
        }
    }

    /// Waits for an answer of the database as long as it is not away.
    pub async fn unless_away<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            answer = answer => answer,
            error = self.error() => Err(error),
        }
    }

    /// Waits for an answer of the database, which is not asked while it is away.
    pub async fn ask<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        self.must_be_here()?;
        self.unless_away(answer).await
    }

    /// Waits until the database is away, and returns the error for its calls.
    pub async fn error(&self) -> StoreError {
        let mut watched = self.0.clone();
        let away = watched.wait_for(Option::is_some).await.ok().and_then(|away| away.clone());
        match away {
            Some(away) => StoreError::unavailable(away),
            // Nobody tells any more.
            None => std::future::pending().await,
        }
    }
}
