//! `isobar backup`, `restore`, `check`, `recover`, `move`, `nodes`: an operator's commands on the state as a whole (contract: The
//! program).
//!
//! A backup copies telemetry before the registry. So every event in it has its device, and no device number that
//! telemetry knows is given out again. The registry keeps what it learnt in between from later events; entries of the
//! outbox are written once more when the restored platform starts.

pub mod backup;
mod check;
mod closed_telemetry;
pub mod control;
pub mod files;
mod move_registry;
mod move_store;
mod move_telemetry;
mod nodes;
mod recover;
mod registry_loss;
mod restore;
mod upgrade;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use isobar_model::time::Clock;
pub use move_store::move_store;
pub use nodes::{NODE_GONE_AFTER, nodes};
pub use recover::recover;
pub use restore::restore;
pub use upgrade::upgrade_check;

use crate::backups::act::Backups;
use crate::config::{self, Flags, Settings, ShownSettings};
use crate::folder::DataFolder;
use crate::stores::Stores;
use crate::{Failure, runtime, support};

/// A task on open stores, here or in the process that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// A copy into this folder.
    Backup(PathBuf),
    /// A backup to the target of the settings.
    Send,
    /// A check of all state.
    Check,
    /// The part of this process in a support bundle.
    Describe,
}

/// The result of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpkeepReport {
    /// Text for the operator; ends with a line break.
    pub text: String,
    /// True if no damage was found.
    pub sound: bool,
}

impl Task {
    /// Runs the task.
    pub async fn run(&self, platform: &Platform) -> Result<UpkeepReport, Failure> {
        match self {
            Self::Backup(to) => backup::into_folder(&platform.settings, &platform.stores, to).await,
            Self::Send => platform.backups.make().await,
            Self::Check => check::everything(&platform.stores).await,
            Self::Describe => Ok(support::describe(platform).await),
        }
    }
}

/// The subject of tasks.
#[derive(Clone)]
pub struct Platform {
    pub settings: Settings,
    pub stores: Stores,
    pub backups: Arc<Backups>,
    /// The settings without secrets, where the platform is served.
    pub shown: Arc<ShownSettings>,
}

impl Platform {
    /// Makes a platform of these stores and the backups of the settings.
    pub fn new(settings: &Settings, stores: &Stores, clock: Clock) -> Self {
        let backups = Backups::new(settings, stores, clock);
        Self { settings: settings.clone(), stores: stores.clone(), backups, shown: Arc::default() }
    }
}

/// Runs `isobar backup [DIR]`.
pub fn backup(flags: &Flags, to: Option<&Path>) -> Result<UpkeepReport, Failure> {
    // The process that serves may have another working folder.
    let task = to.map_or(Ok(Task::Send), |to| std::path::absolute(to).map(Task::Backup))?;
    run(flags, &task)
}

/// Runs `isobar check`.
pub fn check(flags: &Flags) -> Result<UpkeepReport, Failure> {
    run(flags, &Task::Check)
}

/// Runs a task in the running server, or here if there is none.
fn run(flags: &Flags, task: &Task) -> Result<UpkeepReport, Failure> {
    let settings = match task {
        Task::Check => config::of_a_platform_anywhere(flags)?,
        Task::Backup(_) | Task::Send | Task::Describe => config::of_a_platform(flags)?,
    };
    runtime::start(1)?.block_on(async {
        if let Some(told) = control::ask(&settings.data, task).await? {
            return Ok(told);
        }
        if *task == Task::Check {
            // A platform that is in PostgreSQL alone may be checked from a machine without a data folder, where none is made.
            let is_there = DataFolder::is_there(&settings.data);
            let _folder = is_there.then(|| DataFolder::take_to_read(&settings.data)).transpose()?;
            return check::as_they_are(&settings).await;
        }
        let _folder = DataFolder::take(&settings.data)?;
        let stores = Stores::open_as_they_are(&settings).await?;
        let told = task.run(&Platform::new(&settings, &stores, Clock::System)).await;
        stores.close().await?;
        told
    })
}
