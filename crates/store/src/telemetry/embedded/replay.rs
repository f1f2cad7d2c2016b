//! What a start after a crash must replay, and how that is kept short.
//!
//! Two things bound it. The log is never much longer than [`Options::wal_bytes`]: then all memtables are written to
//! tables. And nobody reads while a start replays, so the rows need no order that can be searched: they are gathered as
//! they come, sorted once, and written to tables, before the database is opened to be used. Putting each of half a million
//! rows in its place among all of them costs about three times as much.

use std::path::Path;

use rocksdb::{DB, MemtableFactory, Options as DbOptions};

use super::engine::descriptors;
use super::keys::Family;
use super::rows::failed;
use crate::error::{Result, StoreError};

/// A shorter log is replayed into the memtables that are used afterwards: opening the database twice would cost more.
const LOG_BYTES_MIN: u64 = 4 << 20;

/// Writes what the write-ahead log holds to tables, if it may hold much.
pub fn log_to_tables(path: &Path, database: &DbOptions, family: impl Fn(Family) -> Result<DbOptions>) -> Result<()> {
    if log_bytes(path)? < LOG_BYTES_MIN {
        return Ok(());
    }
    let families = descriptors(|each| {
        let mut options = family(each)?;
        options.set_memtable_factory(MemtableFactory::Vector);
        // They go on when the database is open to be used.
        options.set_disable_auto_compactions(true);
        Ok(options)
    })?;
    // Opening replays the log and writes what it held to tables.
    DB::open_cf_descriptors(database, path, families).map(drop).map_err(failed)
}

/// Bytes of the log's files: more than what they hold, for files that are written anew keep their length.
fn log_bytes(path: &Path) -> Result<u64> {
    let mut bytes = 0;
    for file in std::fs::read_dir(path).map_err(StoreError::unavailable)? {
        let file = file.map_err(StoreError::unavailable)?;
        if file.path().extension().is_some_and(|extension| extension == "log") {
            bytes += file.metadata().map_err(StoreError::unavailable)?.len();
        }
    }
    Ok(bytes)
}
