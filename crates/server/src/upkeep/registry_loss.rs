//! What the registry has lost that was acknowledged: its log is damaged, and it refuses to open.

use std::path::Path;

use isobar_store::registry::{loss, loss_accept};

use crate::Failure;
use crate::config::Settings;
use crate::stores::whole;

/// What is lost, for the operator. None: nothing that is known of.
pub fn named(settings: &Settings, aside: &Path) -> Result<Option<String>, Failure> {
    let found = loss(&settings.registry).map_err(|error| format!("the registry cannot be read: {}", whole(&error)))?;
    Ok(found.map(|loss| {
        format!("Registry: {loss}.\nThe database, its log and its note are copied to {} first.\n", aside.display())
    }))
}

/// The registry goes on without it.
pub fn accept(settings: &Settings, aside: &Path) -> Result<String, Failure> {
    loss_accept(&settings.registry, aside)
        .map_err(|error| format!("the registry cannot be recovered: {}", whole(&error)))?;
    Ok("The registry goes on without them.\n".to_owned())
}
