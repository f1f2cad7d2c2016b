//! The embedded adapter: RocksDB in this process, one folder.
//!
//! A run locks its device, works on what is in memory, writes its rows, sends them to the writer while the lock is still
//! held, and waits until it is durable. Nothing is read from the disk on the way, unless the device was not
//! in memory. [`keys`] is the byte layout, [`writer`] the group commit, [`port`] how the methods of the
//! port are carried out.

#[cfg(test)]
mod bounds;
mod bucket_scan;
mod cache;
mod catch_up;
mod closed;
mod columns;
mod commit_queue;
mod device;
#[cfg(test)]
mod ends;
mod engine;
mod examine;
mod export;
mod followers;
mod gathered;
mod history;
mod keys;
mod live;
mod load;
mod numbers;
mod outbox;
mod port;
mod positions;
mod queue;
mod reclaim;
mod replay;
mod retention;
mod rows;
mod scanning;
mod seek;
mod series;
mod slices;
mod stopped;
mod threads;
mod turn;
mod values;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use isobar_model::ids::{DeviceKey, OrganizationId};
use isobar_threads::GivingThreads;
use parking_lot::Mutex;
use rocksdb::DB;
pub use rocksdb_wal_check::Loss;
use rocksdb_wal_check::{Note, Watermark};
use uuid::Uuid;

use self::cache::{Devices, Held};
use self::columns::ColumnCache;
use self::commit_queue::{Sent, Shared};
use self::device::DeviceState;
use self::engine::Cutoffs;
use self::outbox::OutboxIndex;
use self::reclaim::Reclaim;
use self::rows::{Rows, damaged, failed};
use self::slices::scan_threads;
pub use self::stopped::{StoppedStore, StoreMarks};
pub(super) use self::turn::EmbeddedTurn;
use self::writer::CommitWriter;
use super::scan::SortedBytes;
use crate::error::{Result, StoreError};
use isobar_quota::{FairQueue, limits};

/// Files that the store has open at a time, at most: the tables that are kept open, and in addition those that are
/// being written or scanned, logs, the manifest and folders.
pub const TELEMETRY_FILES_MAX: u64 = engine::OPEN_FILES_MAX as u64 + 96;

/// Settings of the operator.
#[derive(Clone, Debug)]
pub struct Options {
    /// Cloud events that a device's queue may contain; above this the oldest is dropped.
    pub queue_max_events: u64,
    /// Bytes of the block cache.
    pub cache_bytes: usize,
    /// Bytes of all memtables together.
    pub memtable_bytes: usize,
    /// Bytes of the write-ahead log after which everything in memory is written to tables. A start after a crash replays
    /// little more.
    pub wal_bytes: u64,
    /// Bytes of devices' states in memory.
    pub device_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            queue_max_events: 10_000,
            cache_bytes: 96 << 20,
            memtable_bytes: 160 << 20,
            wal_bytes: 128 << 20,
            device_bytes: 150 << 20,
        }
    }
}

/// State shared by the store's threads and calls.
struct Core {
    db: Arc<DB>,
    shared: Arc<Shared>,
    note: Arc<Note>,
    devices: Devices,
    cutoffs: Arc<Cutoffs>,
    reclaim: Arc<Reclaim>,
    outbox: OutboxIndex,
    /// Memory shared by all sorts of values.
    sorted: Arc<SortedBytes>,
    /// Cache of columns that queries in buckets have read.
    columns: ColumnCache,
    options: Options,
    identity: Uuid,
}

/// The embedded telemetry store.
pub struct Embedded {
    core: Arc<Core>,
    /// Threads that hold the database, in the order in which they end; `None` once the store is closed.
    threads: Mutex<Option<(reclaim::ReclaimWorker, CommitWriter)>>,
    scans: FairQueue,
    scan_threads: GivingThreads,
}

/// Set when the caller has gone: long reads check it and stop.
#[derive(Clone, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Returns an error if the caller has gone; the error only ends the read.
    fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(StoreError::Gone("the caller")) } else { Ok(()) }
    }
}

struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

impl Embedded {
    /// Opens the store in a folder, which is made if it is not there. Older layouts are upgraded, newer ones refused.
    pub fn open(path: &Path, options: Options) -> Result<Self> {
        let cutoffs = Arc::new(Cutoffs::default());
        let db = Arc::new(engine::open(path, &options, &cutoffs)?);
        let identity = numbers::identity_or_new(&db)?;
        // The replayed commits are in tables now.
        let sequence = db.latest_sequence_number();
        let note = Arc::new(Note::begin(path, Watermark::up_to(sequence, sequence))?);
        let series = engine::meta(&db, keys::META_SERIES)?.unwrap_or(1);
        let position = catch_up::newest(&db)?;
        let shared = Arc::new(Shared::new(series, position));
        let reclaim = Arc::new(Reclaim::load(&db)?);
        let devices = Devices::new(options.device_bytes);
        let outbox = OutboxIndex::load(&db)?;
        // Last: threads keep the database, and its lock, until they are joined.
        let writer = CommitWriter::start(&db, &shared, &note, position)?;
        let worker = reclaim::ReclaimWorker::start(&db, &shared, &reclaim)?;
        let (sorted, columns) = (Arc::default(), ColumnCache::default());
        let core =
            Arc::new(Core { db, shared, note, devices, cutoffs, reclaim, outbox, sorted, columns, options, identity });
        let threads = Mutex::new(Some((worker, writer)));
        let (scans, scan_threads) = (FairQueue::new(&limits::SCANS), scan_threads(limits::SCANS.at_once)?);
        Ok(Self { core, threads, scans, scan_threads })
    }

    /// Returns the identity of the store, which its backups and moves carry.
    pub fn identity(&self) -> String {
        self.core.identity.to_string()
    }

    /// Copies the current store into a folder that must not exist; files that no longer change are linked, not copied.
    pub async fn backup(&self, to: &Path) -> Result<()> {
        let to = to.to_owned();
        self.reading(move |core, _| {
            // The copy must contain at least the commits that were durable before it began.
            let durable = core.note.durable();
            let checkpoint = rocksdb::checkpoint::Checkpoint::new(&core.db).map_err(failed)?;
            checkpoint.create_checkpoint(&to).map_err(failed)?;
            Ok(Note::begin(&to, Watermark::up_to(durable, 0)).map(drop)?)
        })
        .await
    }

    /// Runs a disk access on a thread that may block.
    async fn reading<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Core, &Cancel) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (work, _stop) = self.cancelled_on_drop(work)?;
        tokio::task::spawn_blocking(work).await.map_err(StoreError::unavailable)?
    }

    /// Runs a long read on a thread that may block, within a slot of the scans.
    async fn scanning<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Core, &Cancel) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (work, _stop) = self.cancelled_on_drop(work)?;
        self.scan_threads.spawn(work).await.map_err(StoreError::unavailable)?
    }

    /// Returns work that is cancelled when the other returned value is dropped.
    fn cancelled_on_drop<T, W: FnOnce(&Core, &Cancel) -> Result<T>>(
        &self,
        work: W,
    ) -> Result<(impl FnOnce() -> Result<T> + use<T, W>, CancelOnDrop)> {
        self.core.shared.healthy()?;
        let (core, cancel) = (self.core.clone(), Cancel::default());
        let stop = CancelOnDrop(cancel.clone());
        Ok((move || work(&core, &cancel), stop))
    }

    /// Locks a device and loads it. Its memory is charged to the tenant, if one is known.
    async fn hold(&self, device: DeviceKey, tenant: Option<OrganizationId>) -> Result<Held> {
        self.core.shared.healthy()?;
        let mut held = self.core.devices.lock(device.0, tenant, self.core.shared.durable()).await;
        if held.state.is_some() {
            return Ok(held);
        }
        // Boxed, like all rare steps of a run, because its size would otherwise be reserved and moved with every run.
        Box::pin(self.reading(move |core, _| {
            held.state = Some(load::device(&core.db, device.0, core.reclaim.floors(device.0))?);
            core.devices.weigh(&mut held, core.shared.durable());
            Ok(held)
        }))
        .await
    }

    /// Reads the series of a device: from memory if they are there, else from the database, without caching them.
    async fn peek<T: Send + 'static>(
        &self,
        device: DeviceKey,
        look: impl FnOnce(&DeviceState) -> T,
        read: impl FnOnce(&DB) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.core.shared.healthy()?;
        if let Some(held) = self.core.devices.lock_if_present(device.0).await
            && let Some(state) = held.state.as_ref()
        {
            return Ok(look(state));
        }
        self.reading(move |core, _| read(&core.db)).await
    }
}

impl Core {
    /// Changes a locked and loaded device outside of its runs.
    fn change<T>(&self, held: &mut Held, work: impl FnOnce(&mut DeviceState, &mut Rows) -> T) -> Result<(T, Sent)> {
        let reservation = self.shared.reserve(None)?;
        let state = held.state.as_mut().ok_or_else(|| damaged("a device is not loaded"))?;
        let mut rows = Rows::default();
        let done = work(state, &mut rows);
        let sent = reservation.send(&rows);
        state.ticket = sent.ticket;
        self.devices.weigh(held, self.shared.durable());
        Ok((done, sent))
    }
}
