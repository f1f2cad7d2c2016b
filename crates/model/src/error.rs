//! Errors: refusals, in words for the client, and failures, in words for the operator.

use serde::Serialize;
use utoipa::ToSchema;

use crate::time::Timestamp;

/// A fault of an input. `field` is its dotted path: `streetAddress.city`, `[3].name`, `query.limit`, `body`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Fault {
    /// Dotted path of the field in the input.
    pub field: String,
    /// The fault, in words.
    pub message: String,
}

impl Fault {
    /// Makes a fault of `field`.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

/// The state of a fixed rate window after a request was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateWindow {
    /// Requests allowed in the window.
    pub limit: u32,
    /// Requests left until it ends.
    pub remaining: u32,
    /// Its end.
    pub reset: Timestamp,
}

/// All ways in which a request can fail. `http` converts each into one status, in one place.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Credentials are missing, invalid, or of a kind the operation does not accept.
    #[error("credentials are missing or invalid")]
    Unauthenticated,
    /// The caller has spent its requests of this window.
    #[error("the rate limit of {} requests a minute for this {subject} is exceeded", window.limit)]
    RateLimited {
        /// The limited subject: `user`, `device`, `link` or `address`.
        subject: &'static str,
        /// The exhausted window.
        window: RateWindow,
    },
    /// Too many logins failed; the caller may retry at the given time.
    #[error("too many failed logins")]
    Throttled {
        /// Time from which the next attempt is checked.
        until: Timestamp,
    },
    /// The resource does not exist, or the caller must not know that it does.
    #[error("{0} not found")]
    Missing(&'static str),
    /// The caller sees the resource, but its role forbids the action.
    #[error("{0}")]
    Forbidden(String),
    /// The input has faults; all of them are listed.
    #[error("the request has {} invalid field(s)", .0.len())]
    Invalid(Vec<Fault>),
    /// A precondition (`If-Match`) failed; nothing was done.
    #[error("{0} has been changed meanwhile")]
    Outdated(&'static str),
    /// A store or a queue is full; nothing was done.
    #[error("the service is busy, try again")]
    Busy,
    /// A resource shared by tenants is full; nothing was done.
    #[error("the service is busy, try again: {0}")]
    NoRoom(String),
    /// An internal failure; the cause is logged and never sent to the client.
    #[error("internal error")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Makes an error with a single fault.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid(vec![Fault::new(field, message)])
    }

    /// Makes an internal failure with its cause.
    pub fn internal(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Internal(cause.into())
    }
}

/// The result of everything a caller can ask for.
pub type Result<T> = std::result::Result<T, Error>;
