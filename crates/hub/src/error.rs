//! Words the errors of missing resources, and of one failed item among many.

use std::fmt;

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
            if !cause.is::<EarlierFailed>() {
                tracing::error!(%cause, "{what} failed");
            }
            error.to_string()
        }
        other => other.to_string(),
    }
}

/// The failure of ours that ends the items of one device in a call of many. Later items do not run and fail with the same
/// error: run now and sent again with the failed one, they would be older than themselves.
#[derive(Debug, Default)]
pub(crate) struct OrderedItems(Option<Error>);

/// Cause of the error of an item that did not run. The cause of the first error is in the log.
#[derive(Debug)]
struct EarlierFailed;

impl fmt::Display for EarlierFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an earlier item of the device failed")
    }
}

impl std::error::Error for EarlierFailed {}

impl OrderedItems {
    /// Returns the error of items that did not run, after a failure of ours.
    pub fn failure(&self) -> Option<Error> {
        self.0.as_ref().map(of_later)
    }

    /// Notes the failure of an item, if it is the first of ours.
    pub fn note(&mut self, error: &Error) {
        if self.0.is_none() && is_ours(error) {
            self.0 = Some(of_later(error));
        }
    }

    /// Returns the result of the next item: the failure of an earlier one, even if it ran before that was known.
    pub fn next<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        result.inspect_err(|error| self.note(error))
    }
}

/// Returns the same error for a later item.
fn of_later(error: &Error) -> Error {
    match error {
        Error::NoRoom(what) => Error::NoRoom(what.clone()),
        Error::Internal(_) => Error::internal(EarlierFailed),
        _ => Error::Busy,
    }
}
