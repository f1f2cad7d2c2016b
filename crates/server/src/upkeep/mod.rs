//! `isobar backup`, `restore`, `check`, `recover`: what an operator does to the state as a whole (contract: The program).
//!
//! A backup takes telemetry first and the registry afterwards. So every event in it has its device, and no number of a
//! device is given out again that telemetry knows already. What the registry learnt in between from later events, it
//! keeps; what waits in the outbox is carried over once more when the restored platform starts.

pub mod backup;
mod check;
pub mod control;
pub mod files;
mod recover;
mod registry_loss;
mod restore;
mod upgrade;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use isobar_model::time::Clock;
pub use recover::recover;
pub use restore::restore;
pub use upgrade::upgrade_check;

use crate::backups::act::Backups;
use crate::config::{self, Flags, Settings};
use crate::folder::DataFolder;
use crate::stores::Stores;
use crate::{Failure, runtime};

/// What is asked for: of stores that are open, here or in the process that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// A copy into this folder.
    Backup(PathBuf),
    /// A backup to the target of the settings.
    Send,
    /// Whether everything is sound.
    Check,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpkeepReport {
    /// For the operator; it ends with a line's end.
    pub text: String,
    /// Whether nothing was found to be damaged.
    pub sound: bool,
}

impl Task {
    /// Does it.
    pub async fn run(&self, platform: &Platform) -> Result<UpkeepReport, Failure> {
        match self {
            Self::Backup(to) => backup::into_folder(&platform.settings, &platform.stores, to).await,
            Self::Send => platform.backups.make().await,
            Self::Check => check::everything(&platform.stores).await,
        }
    }
}

/// What tasks are about.
#[derive(Clone)]
pub struct Platform {
    pub settings: Settings,
    pub stores: Stores,
    pub backups: Arc<Backups>,
}

impl Platform {
    /// These stores, with the backups that the settings ask for.
    pub fn new(settings: &Settings, stores: &Stores, clock: Clock) -> Self {
        let backups = Backups::new(settings, stores, clock);
        Self { settings: settings.clone(), stores: stores.clone(), backups }
    }
}

/// `isobar backup [DIR]`
pub fn backup(flags: &Flags, to: Option<&Path>) -> Result<UpkeepReport, Failure> {
    // The process that serves may have another working folder.
    let task = to.map_or(Ok(Task::Send), |to| std::path::absolute(to).map(Task::Backup))?;
    run(flags, &task)
}

/// `isobar check`
pub fn check(flags: &Flags) -> Result<UpkeepReport, Failure> {
    run(flags, &Task::Check)
}

/// Has the running server do it; without one, does it here.
fn run(flags: &Flags, task: &Task) -> Result<UpkeepReport, Failure> {
    let settings = config::of_a_platform(flags)?;
    runtime::start(1)?.block_on(async {
        if let Some(told) = control::ask(&settings.data, task).await? {
            return Ok(told);
        }
        let _folder = DataFolder::take(&settings.data)?;
        if *task == Task::Check {
            return check::as_they_are(&settings).await;
        }
        let stores = Stores::open_as_they_are(&settings).await?;
        let told = task.run(&Platform::new(&settings, &stores, Clock::System)).await;
        stores.close().await?;
        told
    })
}
