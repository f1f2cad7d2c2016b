//! Backups that the platform makes by itself (docs/backup.md): on a schedule, to a folder or a bucket, encrypted if they shall
//! be, and each restored and checked before it counts.

pub mod act;
pub mod archive;
mod bucket;
mod hashing;
pub mod schedule;
mod state;
pub mod target;
mod trial;
mod wire;

use std::time::Duration;

/// What is written is brought to the disk in pieces of this size, so that no sync of the platform waits behind much of it.
const SYNC_BYTES: usize = 8 << 20;
/// Files of backups are for their owner alone: they hold hashes of passwords, and the key that signs tokens.
const FILE_MODE: u32 = 0o600;
/// Between two looks whether a backup is due.
const LOOK_EVERY: Duration = Duration::from_secs(10);
