//! Tells those who wait for a database that it is away.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

/// A database that is away, and the cause.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the {what} {name} is away: {cause}")]
pub(crate) struct Away {
    /// What the database is for.
    pub what: &'static str,
    /// Host, port and name of the database.
    pub name: Arc<str>,
    /// The cause.
    pub cause: Arc<str>,
}

/// Presence of a database.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    /// The cause, if it is away.
    pub away: Option<Away>,
    /// Moment at which it was back last, if it was away.
    pub back: Option<Instant>,
}

/// Tells if a database is away. Clones watch the same one.
#[derive(Clone, Debug)]
pub(crate) struct AwayDatabase(watch::Receiver<Presence>);

impl AwayDatabase {
    /// Watches a database, and returns the right to tell that it is away.
    pub fn watched() -> (watch::Sender<Presence>, Self) {
        let (tell, away) = watch::channel(Presence::default());
        (tell, Self(away))
    }

    /// Returns true if the database is away.
    pub fn is_away(&self) -> bool {
        self.0.borrow().away.is_some()
    }

    /// Returns true if the database was away since a moment, and is back.
    pub fn is_back_since(&self, moment: Instant) -> bool {
        let presence = self.0.borrow();
        presence.away.is_none() && presence.back.is_some_and(|back| back > moment)
    }

    /// Fails if the database is away.
    pub fn must_be_here(&self) -> Result<(), Away> {
        match &self.0.borrow().away {
            None => Ok(()),
            Some(away) => Err(away.clone()),
        }
    }

    /// Waits for an answer of the database as long as it is not away.
    pub async fn unless_away<T, E: From<Away>>(&self, answer: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        tokio::select! {
            biased;
            answer = answer => answer,
            away = self.gone() => Err(away.into()),
        }
    }

    /// Waits for an answer of the database, which is not asked while it is away.
    pub async fn ask<T, E: From<Away>>(&self, answer: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.must_be_here()?;
        self.unless_away(answer).await
    }

    /// Waits until the database is away.
    pub async fn gone(&self) -> Away {
        let mut watched = self.0.clone();
        let away = watched.wait_for(|presence| presence.away.is_some()).await.ok().and_then(|it| it.away.clone());
        match away {
            Some(away) => away,
            // Nobody tells any more.
            None => std::future::pending().await,
        }
    }
}
