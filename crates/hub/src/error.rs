//! Words the errors of missing resources, and of one failed item among many.

use isobar_model::error::{Error, Fault, Result};
use isobar_store::error::StoreError;

/// An organization, with the member that names it.
pub(crate) const ORGANIZATION: (&str, &str) = ("organization", "organizationId");
/// A parent organization, with the member that names it.
pub(crate) const PARENT: (&str, &str) = ("organization", "parentId");
/// A project, with the member that names it.
pub(crate) const PROJECT: (&str, &str) = ("project", "projectUuid");

/// Converts store errors for a body whose members name resources: a deleted resource is a fault of the body.
pub(crate) fn naming(members: &[(&'static str, &'static str)]) -> impl Fn(StoreError) -> Error {
    move |error| match error {
        StoreError::Gone(noun) => match members.iter().find(|(named, _)| *named == noun) {
            Some((_, member)) => Error::invalid(*member, format!("no such {noun}")),
            None => Error::Missing(noun),
        },
        other => other.into(),
    }
}

/// Returns the result, or `None` if it is missing or hidden from the caller.
pub(crate) fn if_there<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(Error::Missing(_)) => Ok(None),
        found => found.map(Some),
    }
}

/// Returns true if the failure is not caused by the request.
pub(crate) fn is_ours(error: &Error) -> bool {
    matches!(error, Error::Busy | Error::NoRoom(_) | Error::Internal(_))
}

/// Returns the message of one failed item among many, with `told` for each of its faults. The cause of an internal
/// error goes to the log.
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
