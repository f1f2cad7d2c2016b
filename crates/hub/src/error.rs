//! What callers hear of things that are gone, and of one that failed among many.

use isobar_model::error::{Error, Fault, Result};
use isobar_store::error::StoreError;

/// An organization, by the member that names it.
pub(crate) const ORGANIZATION: (&str, &str) = ("organization", "organizationId");
/// A parent organization, by the member that names it.
pub(crate) const PARENT: (&str, &str) = ("organization", "parentId");
/// A project, by the member that names it.
pub(crate) const PROJECT: (&str, &str) = ("project", "projectUuid");

/// What a caller hears whose body names things by these members: a thing that was deleted meanwhile is a fault of the body.
pub(crate) fn naming(members: &[(&'static str, &'static str)]) -> impl Fn(StoreError) -> Error {
    move |error| match error {
        StoreError::Gone(noun) => match members.iter().find(|(named, _)| *named == noun) {
            Some((_, member)) => Error::invalid(*member, format!("no such {noun}")),
            None => Error::Missing(noun),
        },
        other => other.into(),
    }
}

/// What was found; nothing where it is not there, or the caller may not know that it is.
pub(crate) fn if_there<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(Error::Missing(_)) => Ok(None),
        found => found.map(Some),
    }
}

/// Whether it is not for the sake of what was asked that it failed.
pub(crate) fn is_ours(error: &Error) -> bool {
    matches!(error, Error::Busy | Error::NoRoom(_) | Error::Internal(_))
}

/// What is told of one of many things that failed: `told` of each of its faults. The cause of what broke is for the log.
pub(crate) fn of_one_of_many(error: &Error, what: &str, told: impl Fn(&Fault) -> String) -> String {
    match error {
        Error::Invalid(faults) => faults.iter().map(told).collect::<Vec<_>>().join("; "),
        Error::Internal(cause) => {
            tracing::error!(%cause, "{what} failed");
            error.to_string()
        }
        other => other.to_string(),
    }
}
