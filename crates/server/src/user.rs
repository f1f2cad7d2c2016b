//! `isobar user`: an operator's changes of users without a running platform.

use isobar_model::chance::Chance;
use isobar_model::time::Clock;
use isobar_store::registry::Registry;

use crate::config::{self, Flags};
use crate::folder::DataFolder;
use crate::{Failure, runtime};

/// Resets a user's password, and ends its sessions. Returns the new password, shown once.
pub fn reset_password(flags: &Flags, name: &str) -> Result<String, Failure> {
    let settings = config::of_a_platform(flags)?;
    let folder = DataFolder::take(&settings.data)?;
    folder.stamp()?;
    runtime::start(1)?.block_on(async {
        let registry = Registry::open(&settings.registry)
            .await
            .map_err(|error| format!("the registry cannot be opened: {error}"))?;
        let done = isobar_hub::reset_password(&registry, &Clock::System, &Chance::from_system(), name).await;
        registry.close().await?;
        match done? {
            Some(password) => Ok(format!("The new password of {name} is {password} (shown only this once)\n")),
            None => Err(format!("there is no user {name}").into()),
        }
    })
}
