//! Failures of stores, and the errors that callers get for them.

use isobar_model::error::{Error, Fault};
use isobar_model::ids::DeviceKey;
use isobar_model::quote::{quote, with_causes};
use isobar_quota::Full;

use crate::postgres::Away;
use crate::telemetry::{PAGE_BYTES_MAX, QUEUE_PAGE_BYTES_MAX, SORTED_MAX};

/// A failure of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another row has the same value in a field that must be unique.
    #[error("{} already taken", fields.join(", "))]
    Taken {
        /// The fields, as the API calls them; at least one.
        fields: Vec<&'static str>,
    },
    /// The row is gone, or something that it refers to is.
    #[error("{0} is gone")]
    Gone(&'static str),
    /// A limit that somebody set is reached, in words for the client; nothing was done.
    #[error("{0}")]
    Limit(&'static str),
    /// The row is not what was required of it; nothing was done.
    #[error("{0} has been changed meanwhile")]
    Outdated(&'static str),
    /// Something still hangs on the row.
    #[error("{0}")]
    InUse(&'static str),
    /// The user is the only one of its kind that is left; nothing was done.
    #[error("is the last system administrator who is not disabled")]
    LastAdministrator,
    /// A page lies too far back in an order that it takes every value to find; nothing was done.
    #[error("the page lies too far back in this order")]
    TooFar,
    /// The rows of a page take more memory together than a page may; nothing was done.
    #[error("the rows of the page are too large together")]
    TooMuch,
    /// A page follows an item that is not in its list.
    #[error("no such item in the list")]
    NotListed,
    /// The store has more waiting than it can take; nothing was done.
    #[error("the store is busy")]
    Busy,
    /// Somebody else committed to the same device meanwhile; nothing was done.
    #[error("somebody else was first")]
    Conflict,
    /// Another process does the work for these devices now; nothing was done.
    #[error("another process has taken over the findings of {} devices", .0.len())]
    Overtaken(Vec<DeviceKey>),
    /// The store cannot be reached or has failed; what was asked may or may not have been done.
    #[error("the store is unavailable: {}", with_sources(&**.0))]
    Unavailable(Box<dyn std::error::Error + Send + Sync>),
    /// Stored data cannot be read.
    #[error("stored data is damaged: {0}")]
    Damaged(String),
}

impl StoreError {
    /// Returns the error of a store that cannot be reached, with the cause.
    pub fn unavailable(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Unavailable(cause.into())
    }

    /// Names the missing row by this noun, and leaves other errors unchanged.
    pub(crate) fn of(self, noun: &'static str) -> Self {
        if matches!(self, Self::Gone(_)) { Self::Gone(noun) } else { self }
    }

    /// Returns true if the request itself is the cause, so that a retry fails again while other requests succeed: a row that
    /// violates a rule, or one that cannot be read. False for a store that cannot be reached, is full or busy.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Taken { .. } | Self::Gone(_) | Self::Limit(_) | Self::InUse(_) | Self::LastAdministrator => true,
            Self::TooFar | Self::TooMuch | Self::NotListed | Self::Outdated(_) => true,
            Self::Damaged(_) => true,
            Self::Busy | Self::Conflict | Self::Overtaken(_) => false,
            Self::Unavailable(cause) => crate::registry::refuses(&**cause),
        }
    }
}

impl From<Full> for StoreError {
    fn from(_: Full) -> Self {
        Self::Busy
    }
}

impl From<Away> for StoreError {
    fn from(away: Away) -> Self {
        Self::unavailable(away)
    }
}

/// Turns a store's failure into the caller's, in one place.
impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Taken { fields } => {
                Error::Invalid(fields.into_iter().map(|field| Fault::new(field, "is already taken")).collect())
            }
            StoreError::Gone(noun) => Error::Missing(noun),
            StoreError::Outdated(what) => Error::Outdated(what),
            StoreError::InUse(why) => Error::invalid("body", why),
            last @ StoreError::LastAdministrator => Error::invalid("role", last.to_string()),
            StoreError::Limit(why) => Error::invalid("organizationId", why),
            StoreError::TooFar => Error::invalid("query.page", too_far()),
            StoreError::NotListed => Error::invalid("query.after", "names no item of this list"),
            StoreError::TooMuch => Error::invalid("query.limit", too_much()),
            StoreError::Busy | StoreError::Conflict | StoreError::Overtaken(_) => Error::Busy,
            StoreError::Unavailable(cause) => {
                // That a database is away is told once, and not again by each of its calls.
                if !cause.is::<Away>() {
                    tracing::error!(error = with_sources(&*cause), "a store is unavailable");
                }
                Error::Busy
            }
            damaged @ StoreError::Damaged(_) => Error::internal(damaged),
        }
    }
}

/// Formats an error with its causes, and what a database says as a quote: a server may say whatever it likes, and as long.
fn with_sources(error: &(dyn std::error::Error + 'static)) -> String {
    let links = || std::iter::successors(Some(error), |link| link.source());
    let message = links().find_map(|link| match link.downcast_ref() {
        Some(sqlx::Error::Database(database)) => Some(database.message()),
        _ => None,
    });
    let Some(message) = message else { return with_causes(error) };
    // Those that wrap it may quote it as a whole.
    let wrappers = links().map(ToString::to_string).filter(|text| !text.contains(message));
    wrappers.chain([format!("the database answers: {}", quote(message))]).collect::<Vec<_>>().join(": ")
}

/// Returns the fault of a page that is too far back in an order by payload.
fn too_far() -> String {
    format!(
        "lies too far back: an order by payload reaches {SORTED_MAX} values, fewer where it goes by long texts. \
         Narrow the range, filter, or turn the order round"
    )
}

/// Returns the fault of a page with too many large payloads.
fn too_much() -> String {
    let (most, queued) = (PAGE_BYTES_MAX >> 20, QUEUE_PAGE_BYTES_MAX >> 20);
    format!("is too high for rows of this size: a page takes at most {most} MiB, one of a queue {queued} MiB")
}

/// The result of everything a store does.
pub type Result<T> = std::result::Result<T, StoreError>;

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn unavailable_store_says_each_cause_once() {
        let refused = sqlx::Error::Io(io::Error::other("refused"));
        let error = StoreError::unavailable(refused);
        assert_eq!(error.to_string(), "the store is unavailable: error communicating with database: refused");
    }
}
