//! Backups that the platform makes by itself (docs/backup.md): on a schedule, to a folder or a bucket, optionally
//! encrypted, each restored and checked before it counts.

pub mod act;
pub mod archive;
mod bucket;
mod hashing;
pub mod schedule;
mod state;
pub mod target;
mod trial;
mod wire;

pub use state::list;

use std::time::Duration;

/// Bytes between syncs, small enough that no sync of the platform waits long behind them.
const SYNC_BYTES: usize = 8 << 20;
/// Mode of backup files: for their owner only, as they hold password hashes and the key that signs tokens.
const FILE_MODE: u32 = 0o600;
/// Folder beneath the data folder for everything that backups need.
const FOLDER: &str = "backups";
/// Interval at which the schedule is checked.
const LOOK_EVERY: Duration = Duration::from_secs(10);
