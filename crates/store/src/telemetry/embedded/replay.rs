//! Shortens the replay of the log at a start after a crash.
//!
//! Two measures bound it. The log is never much longer than [`Options::wal_bytes`]: beyond it all memtables are written
//! to tables. And during a start no reader needs an order that can be searched: the rows are collected as they come,
//! sorted once, and written to tables, before the database is opened for use. Inserting each of half a million rows in
//! order costs about three times as much.

use std::path::Path;

use rocksdb::{DB, MemtableFactory, Options as DbOptions};

use super::engine::descriptors;
use super::keys::Family;
use super::rows::failed;
use crate::error::{Result, StoreError};

/// Bytes of log up to which it is replayed into the memtables that are used afterwards: opening the database twice
/// would cost more.
const LOG_BYTES_MIN: u64 = 4 << 20;

/// Writes the content of the write-ahead log to tables, if there may be much.
pub fn log_to_tables(path: &Path, database: &DbOptions, family: impl Fn(Family) -> Result<DbOptions>) -> Result<()> {
    if log_bytes(path)? < LOG_BYTES_MIN {
        return Ok(());
    }
    let families = descriptors(|each| {
        let mut options = family(each)?;
        options.set_memtable_factory(MemtableFactory::Vector);
        // Compactions run when the database is open for use.
        options.set_disable_auto_compactions(true);
        Ok(options)
    })?;
    // Opening replays the log and writes its rows to tables.
    DB::open_cf_descriptors(database, path, families).map(drop).map_err(failed)
}

/// Returns the bytes of the log's files: more than their content, because recycled files keep their length.
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
