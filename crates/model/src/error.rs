//! Why a request is refused, in words for the client, and why something broke, in words for the operator.

use serde::Serialize;
use utoipa::ToSchema;

use crate::time::Timestamp;

/// One thing wrong with an input. `field` is its dotted path: `streetAddress.city`, `[3].name`, `query.limit`, `body`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Fault {
    /// Dotted path of the field in the input.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

impl Fault {
    /// A fault of `field`.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

/// The state of a fixed rate window after a call was counted in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateWindow {
    /// Requests allowed in the window.
    pub limit: u32,
    /// Requests left until it ends.
    pub remaining: u32,
    /// When it ends.
    pub reset: Timestamp,
}

/// Every way a request can fail. `http` turns each into one status, in one place.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Credentials are missing, invalid, or of a kind the operation does not accept.
    #[error("credentials are missing or invalid")]
    Unauthenticated,
    /// The caller has spent its requests of this window.
    #[error("the rate limit of {} requests a minute for this {subject} is exceeded", window.limit)]
    RateLimited {
        /// Whose limit it is: `user`, `device`, `link` or `address`.
        subject: &'static str,
        /// The window that is spent.
        window: RateWindow,
    },
    /// Too many failed logins; the caller may try again at the given time.
    #[error("too many failed logins")]
    Throttled {
        /// When the next attempt will be looked at.
        until: Timestamp,
    },
    /// The thing does not exist, or the caller may not know that it does.
    #[error("{0} not found")]
    Missing(&'static str),
    /// The caller sees the thing, but its role forbids the action.
    #[error("{0}")]
    Forbidden(String),
    /// The input has faults; all of them are listed.
    #[error("the request has {} invalid field(s)", .0.len())]
    Invalid(Vec<Fault>),
    /// The thing is not what the caller required it to be (`If-Match`); nothing was done.
    #[error("{0} has been changed meanwhile")]
    Outdated(&'static str),
    /// A store or a queue cannot take more now; nothing was done.
    #[error("the service is busy, try again")]
    Busy,
    /// Tenants share what this would take, and there is no room for it now; nothing was done.
    #[error("the service is busy, try again: {0}")]
    NoRoom(String),
    /// Something broke on our side; the cause is logged, never told.
    #[error("internal error")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// An input with a single fault.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid(vec![Fault::new(field, message)])
    }

    /// An internal failure with its cause.
    pub fn internal(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Internal(cause.into())
    }
}

/// The result of everything a caller can ask for.
pub type Result<T> = std::result::Result<T, Error>;
