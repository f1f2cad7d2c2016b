//! Settings of devices: one by one, and in bulk.

pub(crate) mod bulk;
pub(crate) mod device;

use isobar_model::error::{Error, Result};

use crate::code::{CodePool, HeldByRun, QUEUED_BYTES_MAX};
use isobar_quota::TenantShare;

const CHANGES_REFUSED: &str = "isobar_settings_refused_total";

/// Room for what changes of settings hold that wait for a slot or for their device's turn, until this is dropped: beside the
/// runs that wait for their project's code.
///
/// # Errors
/// `NoRoom`: all of these hold as much as they may, or those of the tenant.
pub(crate) fn held_by_changes(code: &CodePool, held: HeldByRun) -> Result<TenantShare> {
    code.hold(held).map_err(|_| no_room())
}

/// Counts a change that has no room, and returns its error.
pub(crate) fn no_room() -> Error {
    metrics::counter!(CHANGES_REFUSED).increment(1);
    let most = QUEUED_BYTES_MAX >> 20;
    Error::NoRoom(format!(
        "changes of settings and runs that wait hold at most {most} MiB, those of one tenant at most twice what is left of that"
    ))
}

#[cfg(test)]
mod tests;
