//! The one place where a failure of a store becomes an error that a caller hears.

use isobar_model::error::{Error, Fault};
use isobar_store::error::StoreError;
use isobar_store::telemetry::{PAGE_BYTES_MAX, QUEUE_PAGE_BYTES_MAX, SORTED_MAX};

/// Turns a store's failure into the caller's, in one place.
pub(crate) fn from_store(error: StoreError) -> Error {
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
        StoreError::TooMuch => Error::invalid("query.limit", too_much()),
        StoreError::Busy => Error::Busy,
        StoreError::Unavailable(cause) => {
            tracing::error!(error = %cause, "a store is unavailable");
            Error::Busy
        }
        damaged @ StoreError::Damaged(_) => Error::internal(damaged),
    }
}

/// The fault of a page that lies too far back in an order by payload.
fn too_far() -> String {
    format!(
        "lies too far back: an order by payload reaches {SORTED_MAX} values, fewer where it goes by long texts. \
         Narrow the range, filter, or turn the order round"
    )
}

/// What somebody hears who asks for a page of many large payloads.
fn too_much() -> String {
    let (most, queued) = (PAGE_BYTES_MAX >> 20, QUEUE_PAGE_BYTES_MAX >> 20);
    format!("is too high for rows of this size: a page takes at most {most} MiB, one of a queue {queued} MiB")
}

/// An organization, by the member that names it.
pub(crate) const ORGANIZATION: (&str, &str) = ("organization", "organizationId");
/// A parent organization, by the member that names it.
pub(crate) const PARENT: (&str, &str) = ("organization", "parentId");
/// A project, by the member that names it.
pub(crate) const PROJECT: (&str, &str) = ("project", "projectUuid");

/// Turns the result of a store into the one that a caller gets.
pub(crate) trait IntoHubError<T> {
    /// The result with the caller's error.
    fn into_hub_error(self) -> Result<T, Error>;

    /// The result with the caller's error, where a body names things by these members: a thing that was deleted meanwhile
    /// is a fault of the body.
    fn into_hub_error_naming(self, members: &[(&'static str, &'static str)]) -> Result<T, Error>;
}

impl<T> IntoHubError<T> for Result<T, StoreError> {
    fn into_hub_error(self) -> Result<T, Error> {
        self.map_err(from_store)
    }

    fn into_hub_error_naming(self, members: &[(&'static str, &'static str)]) -> Result<T, Error> {
        self.map_err(|error| match error {
            StoreError::Gone(noun) => match members.iter().find(|(named, _)| *named == noun) {
                Some((_, member)) => Error::invalid(*member, format!("no such {noun}")),
                None => Error::Missing(noun),
            },
            other => from_store(other),
        })
    }
}
