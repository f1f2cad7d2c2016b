//! Acknowledged changes that the registry has lost: its log is damaged, and it refuses to open.

use std::path::Path;

use isobar_store::registry::{loss, loss_accept};

use crate::Failure;
use crate::config::Settings;
use crate::stores::whole;

/// Describes the loss; `None` if there is none.
pub fn named(settings: &Settings, aside: &Path) -> Result<Option<String>, Failure> {
    let found = loss(&settings.registry).map_err(|error| format!("the registry cannot be read: {}", whole(&error)))?;
    Ok(found.map(|loss| {
        format!("Registry: {loss}.\nThe database, its log and its note are copied to {} first.\n", aside.display())
    }))
}

/// Accepts the loss, so that the registry opens again.
pub fn accept(settings: &Settings, aside: &Path) -> Result<String, Failure> {
    loss_accept(&settings.registry, aside)
        .map_err(|error| format!("the registry cannot be recovered: {}", whole(&error)))?;
    Ok("The registry goes on without them.\n".to_owned())
}
