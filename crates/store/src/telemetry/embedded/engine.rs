//! Opens and configures RocksDB: families, settings, the version of the format.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use isobar_model::time::Timestamp;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, CompactionDecision, DB, DBCompressionType,
    Options as DbOptions,
};

use super::Options;
use super::keys::{self, Family};
use super::replay;
use super::rows::{damaged, failed, read_timeline};
use crate::error::{Result, StoreError};

const MIB: usize = 1 << 20;
/// Interval in which timelines and small rows of devices are compacted to remove expired rows.
const PERIODIC_COMPACTION_SECONDS: u64 = 3 * 86_400;
/// Tables that RocksDB keeps open; each costs a few KB and a descriptor that a connection could use.
pub const OPEN_FILES_MAX: i32 = 256;
/// Number of RocksDB's own log files, and (next constant) the bytes of each.
const LOG_FILES_MAX: usize = 4;
const LOG_FILE_BYTES_MAX: usize = 4 * MIB;
/// Number of level-0 tables that triggers a compaction.
const LEVEL_ZERO_FILES: i32 = 8;
/// Number of level-0 tables that slows writers, and (next constant) that stops them.
const LEVEL_ZERO_FILES_SLOW: i32 = 32;
const LEVEL_ZERO_FILES_STOP: i32 = 48;
/// Removals among (next constant) neighbouring rows from which a file is compacted early.
pub const REMOVALS_MIN: usize = 1_024;
const REMOVALS_AMONG: usize = 4_096;

/// Moments before which compactions drop rows; they only increase.
#[derive(Debug, Default)]
pub struct Cutoffs {
    /// Millisecond before which history is dropped.
    pub history: AtomicI64,
    /// Millisecond by which idempotency keys have expired.
    pub keys: AtomicI64,
}

/// Opens the database, creates missing families and checks the format. Fails if acknowledged data is missing.
pub fn open(path: &Path, options: &Options, cutoffs: &Arc<Cutoffs>) -> Result<DB> {
    std::fs::create_dir_all(path).map_err(StoreError::unavailable)?;
    rocksdb_wal_check::prepare(path, Family::ALL.len())?;
    open_what_is_there(path, options, cutoffs, true)
}

/// Opens the database even if a part of its log is missing. `are_logs_known`: the logs in the manifest must exist.
pub fn open_what_is_there(path: &Path, options: &Options, cutoffs: &Arc<Cutoffs>, are_logs_known: bool) -> Result<DB> {
    let cache = Cache::new_lru_cache(options.cache_bytes);
    let (mut database, family) =
        (database_options(options), |family: Family| family_options(family, options, &cache, cutoffs));
    database.set_track_and_verify_wals_in_manifest(are_logs_known);
    replay::log_to_tables(path, &database, family)?;
    let db = DB::open_cf_descriptors(&database, path, descriptors(family)?).map_err(failed)?;
    check_format(&db)?;
    let cutoff = moment(&db, keys::META_CUTOFF)?.unwrap_or_default();
    cutoffs.history.store(cutoff.millis(), Ordering::Release);
    Ok(db)
}

/// Opens the database read-only, without changing its folder.
pub fn open_to_read(path: &Path, options: &Options) -> Result<DB> {
    rocksdb_wal_check::require_readable(path, Family::ALL.len())?;
    let cache = Cache::new_lru_cache(options.cache_bytes);
    let mut database = database_options(options);
    database.create_if_missing(false);
    database.create_missing_column_families(false);
    let families = descriptors(|family| family_options(family, options, &cache, &Arc::default()))?;
    DB::open_cf_descriptors_read_only(&database, path, families, false).map_err(failed)
}

/// Returns the descriptors of all families, with their options.
pub fn descriptors(options: impl Fn(Family) -> Result<DbOptions>) -> Result<Vec<ColumnFamilyDescriptor>> {
    Family::ALL.into_iter().map(|family| Ok(ColumnFamilyDescriptor::new(family.name(), options(family)?))).collect()
}

fn database_options(options: &Options) -> DbOptions {
    let mut db = DbOptions::default();
    db.create_if_missing(true);
    db.create_missing_column_families(true);
    db.set_db_write_buffer_size(options.memtable_bytes);
    db.set_max_background_jobs(2);
    db.set_bytes_per_sync(MIB as u64);
    db.set_wal_bytes_per_sync(MIB as u64);
    db.set_max_total_wal_size(options.wal_bytes);
    // A recycled file already has its length, which makes a sync much faster. Its end then looks like damage, so a
    // replay ends at the first incomplete record, wherever it is (point-in-time recovery, the default): [`rocksdb_wal_check`]
    // decides if acknowledged data lies behind it.
    db.set_recycle_log_file_num(4);
    // Complete files of the log are recorded by name and length, so a missing one is detected.
    db.set_track_and_verify_wals_in_manifest(true);
    db.set_max_open_files(OPEN_FILES_MAX);
    db.set_skip_stats_update_on_db_open(true);
    db.set_keep_log_file_num(LOG_FILES_MAX);
    db.set_max_log_file_size(LOG_FILE_BYTES_MAX);
    db.set_max_manifest_file_size(16 * MIB);
    db.set_stats_dump_period_sec(0);
    db.set_stats_persist_period_sec(0);
    db.set_compaction_readahead_size(2 * MIB);
    // The store has one writer: features for several only slow it.
    db.set_allow_concurrent_memtable_write(false);
    db.set_enable_write_thread_adaptive_yield(false);
    db
}

/// Returns the default options of a family. In families whose rows with the same first bytes arrive in the order of
/// their keys, such as those of a device or a series, a memtable remembers the position of the last such row and need
/// not search for the next one's, which is most of the cost of a row. The crate has no setter for this setting.
fn plain_options(family: Family) -> Result<DbOptions> {
    let mut plain = DbOptions::default();
    let bytes = match family {
        Family::Timeline => keys::TIMELINE_PREFIX_BYTES,
        Family::Values => keys::VALUES_PREFIX_BYTES,
        _ => return Ok(plain),
    };
    plain.get_options_from_string(format!("memtable_insert_with_hint_prefix_extractor=fixed:{bytes}")).map_err(failed)
}

fn family_options(family: Family, options: &Options, cache: &Cache, cutoffs: &Arc<Cutoffs>) -> Result<DbOptions> {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_size(8 << 10);
    blocks.set_block_cache(cache);
    blocks.set_bloom_filter(10.0, false);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_cache_index_and_filter_blocks_with_high_priority(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let mut rows = plain_options(family)?;
    rows.set_block_based_table_factory(&blocks);
    rows.set_compression_type(DBCompressionType::Lz4);
    rows.set_level_compaction_dynamic_level_bytes(true);
    rows.set_max_write_buffer_number(4);
    // The bound of the log makes the tables of memtables small: a compaction waits for several.
    rows.set_level_zero_file_num_compaction_trigger(LEVEL_ZERO_FILES);
    rows.set_level_zero_slowdown_writes_trigger(LEVEL_ZERO_FILES_SLOW);
    rows.set_level_zero_stop_writes_trigger(LEVEL_ZERO_FILES_STOP);
    let large = matches!(family, Family::History | Family::Timeline | Family::Values);
    rows.set_write_buffer_size(if large { options.memtable_bytes / 3 } else { options.memtable_bytes / 12 });
    rows.set_target_file_size_base(if large { 64 * MIB as u64 } else { 16 * MIB as u64 });
    match family {
        Family::Queue | Family::Outbox => {
            // Rows come and go: files full of removals are compacted early, or reading from the front would be slow.
            rows.add_compact_on_deletion_collector_factory(REMOVALS_AMONG, REMOVALS_MIN, 0.5);
        }
        Family::History => {
            // The events of a forgotten device are removed one by one, and their space must be reclaimed. A few
            // removals are not worth a compaction, which rewrites the rows between them.
            rows.add_compact_on_deletion_collector_factory(REMOVALS_AMONG, REMOVALS_MIN, 0.0);
        }
        Family::Timeline => {
            let cutoffs = cutoffs.clone();
            rows.set_periodic_compaction_seconds(PERIODIC_COMPACTION_SECONDS);
            rows.set_compaction_filter(c"timeline retention", move |_, _, value| {
                forgotten(
                    read_timeline(value)
                        .is_ok_and(|(_, order)| keys::moment(order).millis() < cutoffs.history.load(Ordering::Relaxed)),
                )
            });
        }
        Family::State => {
            let cutoffs = cutoffs.clone();
            rows.set_periodic_compaction_seconds(PERIODIC_COMPACTION_SECONDS);
            rows.set_compaction_filter(c"expired keys", move |_, key, value| {
                let expires = value.last_chunk::<8>().map_or(i64::MAX, |bytes| i64::from_be_bytes(*bytes));
                forgotten(key.get(8) == Some(&keys::STATE_KEY) && expires <= cutoffs.keys.load(Ordering::Relaxed))
            });
        }
        Family::Meta | Family::Values => {}
    }
    Ok(rows)
}

fn forgotten(yes: bool) -> CompactionDecision {
    if yes { CompactionDecision::Remove } else { CompactionDecision::Keep }
}

/// Returns the handle of a family.
pub fn family(db: &DB, family: Family) -> Result<&ColumnFamily> {
    db.cf_handle(family.name()).ok_or_else(|| damaged("a column family is missing"))
}

/// Returns the handles of all families, by their number.
pub fn families(db: &DB) -> Result<[&ColumnFamily; 7]> {
    let mut handles = [family(db, Family::Meta)?; 7];
    for each in Family::ALL {
        handles[each as usize] = family(db, each)?;
    }
    Ok(handles)
}

/// Reads a number among the counters.
pub fn meta(db: &DB, key: &[u8]) -> Result<Option<u64>> {
    let value = db.get_cf(family(db, Family::Meta)?, key).map_err(failed)?;
    value.map(|bytes| keys::trailing(&bytes).ok_or_else(|| damaged("a counter is no number"))).transpose()
}

/// Reads a moment among the counters.
pub fn moment(db: &DB, key: &[u8]) -> Result<Option<Timestamp>> {
    let millis = meta(db, key)?.map(|bits| i64::from_be_bytes(bits.to_be_bytes()));
    Ok(millis.map(Timestamp::from_millis))
}

/// Removes the rows of a range, whose end is exclusive, and whole files that contain nothing else.
pub fn delete_range(db: &DB, family: &ColumnFamily, from: &[u8], to: &[u8]) -> Result<()> {
    db.delete_range_cf(family, from, to).map_err(failed)?;
    delete_files(db, family, from, to)
}

/// Removes the files that contain only rows of a range, whose end is exclusive. RocksDB treats the end as inclusive: a
/// file whose last row is the end would be removed with that row.
pub fn delete_files(db: &DB, family: &ColumnFamily, from: &[u8], to: &[u8]) -> Result<()> {
    match keys::before(to) {
        Some(last) => db.delete_file_in_range_cf(family, from, &last).map_err(failed),
        None => Ok(()),
    }
}

/// Returns the format of a store, or `None` for a new one without a format.
pub fn format(db: &DB) -> Result<Option<u32>> {
    let found = db.get_cf(family(db, Family::Meta)?, keys::META_FORMAT).map_err(failed)?;
    let number = |bytes: Vec<u8>| <[u8; 4]>::try_from(bytes.as_slice()).map(u32::from_be_bytes);
    found.map(|bytes| number(bytes).map_err(|_| damaged("the telemetry store's format is no number"))).transpose()
}

/// Writes the format of a new database; an older one would be upgraded here; a newer one is refused.
fn check_format(db: &DB) -> Result<()> {
    let meta = family(db, Family::Meta)?;
    match format(db)? {
        None => {
            db.put_cf(meta, keys::META_FORMAT, keys::FORMAT_WITHOUT_FLOORS.to_be_bytes()).map_err(failed)?;
            db.flush_wal(true).map_err(failed)
        }
        Some(found) => must_be_known(found),
    }
}

/// Refuses a format written by a newer program.
pub fn must_be_known(found: u32) -> Result<()> {
    match found {
        keys::FORMAT_WITHOUT_FLOORS | keys::FORMAT => Ok(()),
        other => Err(StoreError::Damaged(format!(
            "the telemetry store has format {other}, and this version of Isobar reads up to {}",
            keys::FORMAT
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memtables_hint_inserts_by_device_and_series() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(folder.path(), &Options::default(), &Arc::default()).unwrap());
        let kept = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
        let kept =
            kept.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("OPTIONS-")).max().unwrap();
        let kept = std::fs::read_to_string(kept).unwrap();
        for (family, hint) in
            [("timeline", "rocksdb.FixedPrefix.9"), ("values", "rocksdb.FixedPrefix.8"), ("queue", "nullptr")]
        {
            let (_, settings) = kept.split_once(&format!("[CFOptions \"{family}\"]")).unwrap();
            let hints = settings.lines().map(str::trim).find(|line| line.starts_with("memtable_insert_with_hint"));
            assert_eq!(hints, Some(&*format!("memtable_insert_with_hint_prefix_extractor={hint}")), "{family}");
        }
    }
}
