//! Settings of devices: one by one, and in bulk.

pub(crate) mod bulk;
pub(crate) mod device;

use isobar_model::error::{Error, Result};

use crate::designs::{Designs, HeldByRun};
use isobar_quota::{TenantShare, limits};

const CHANGES_REFUSED: &str = "isobar_settings_refused_total";

/// Takes a share of the memory of long runs for changes of settings, which wait for a place or for their device.
///
/// # Errors
/// `NoRoom` if all long runs, or those of the tenant, hold as much as they may.
pub(crate) fn held_by_changes(designs: &Designs, held: HeldByRun) -> Result<TenantShare> {
    designs.hold(held).map_err(|_| no_room())
}

/// Counts a change that has no room, and returns its error.
pub(crate) fn no_room() -> Error {
    metrics::counter!(CHANGES_REFUSED).increment(1);
    let most = limits::LONG_RUN_BYTES.of_all >> 20;
    Error::NoRoom(format!(
        "changes of settings and runs that wait hold at most {most} MiB, those of one tenant at most twice what is left of that"
    ))
}

#[cfg(test)]
mod tests;
