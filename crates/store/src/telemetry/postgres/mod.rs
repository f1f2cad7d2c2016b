//! The adapter for PostgreSQL: plain rows, and nothing kept here that the database does not have.
//!
//! A run works on the state of its device as this process knows it, and its commit waits for a group ([`committer`]). One
//! statement writes a group ([`group`]): it locks the heads of its devices, leaves out those of which somebody else was
//! first, and writes the rest. So any number of processes may share a database.

mod catch_up;
mod changes;
mod committer;
mod connections;
mod devices;
mod examine;
mod group;
mod history;
mod live_events;
mod load;
mod memory;
mod migrations;
mod moving;
mod numbers;
mod outbox;
mod partitions;
mod port;
mod queue;
mod shared;
mod turn;
mod upkeep;
mod values;

pub use self::upkeep::{believe, examine_database, give_up_lost_devices, lost_devices, seen};

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use isobar_quota::{FairQueue, limits};
use isobar_threads::GivingThreads;
use parking_lot::Mutex;
use sqlx::PgPool;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use self::committer::Committer;
use self::devices::DeviceSlots;
use self::live_events::LiveEvents;
pub use self::moving::{MoveError, MoveOptions, MoveProgress, MoveTotals, TelemetryMove};
use self::numbers::ProcessNumbers;
use self::partitions::Partitions;
use super::scan::SortedBytes;
use crate::error::{Result, StoreError};

/// Name of the threads that look at values.
const LOOKING_THREAD: &str = "isobar-look";

/// Settings of the operator.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Cloud events that a device's queue may contain; above this the oldest is dropped.
    pub queue_max_events: u64,
    /// Bytes of devices' states in memory.
    pub device_bytes: usize,
    /// True if no other process may serve the store alone at the same time.
    pub is_alone: bool,
    /// True if a server of PostgreSQL is refused whose settings let it lose what it has acknowledged.
    pub needs_syncs: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { queue_max_events: 10_000, device_bytes: 150 << 20, is_alone: true, needs_syncs: true }
    }
}

/// State shared by the store's tasks and calls.
struct PgCore {
    reads: PgPool,
    changes: PgPool,
    groups: PgPool,
    numbers: Arc<ProcessNumbers>,
    devices: Arc<DeviceSlots>,
    committer: Arc<Committer>,
    live: Arc<LiveEvents>,
    partitions: Arc<Partitions>,
    /// Moment before which history is forgotten, in milliseconds.
    cutoff: AtomicI64,
    garbage_came: Notify,
    options: PostgresOptions,
}

/// Tasks of an open store.
struct StoreTasks {
    committer: JoinHandle<()>,
    others: [JoinHandle<()>; 3],
}

/// The telemetry store in a database of PostgreSQL.
pub struct PostgresTelemetry {
    core: Arc<PgCore>,
    /// `None` once the store is closed.
    tasks: Mutex<Option<StoreTasks>>,
    /// True once the committer has ended without being asked to.
    has_failed: watch::Receiver<bool>,
    scans: FairQueue,
    scan_threads: GivingThreads,
    /// Memory shared by all sorts of values.
    sorted_bytes: Arc<SortedBytes>,
}

/// Error of a store whose committer has ended.
#[derive(Debug, thiserror::Error)]
#[error("the telemetry store has failed")]
struct CommitterFailed;

impl PostgresTelemetry {
    /// Opens the store in a database; its tables are made if they are not there.
    pub async fn open(address: &str, options: PostgresOptions) -> Result<Self> {
        let changes = connections::to_change(address).await?;
        if options.needs_syncs {
            connections::check_server(&changes).await?;
        }
        migrations::migrate(&changes).await?;
        moving::must_be_finished(&changes).await?;
        let numbers = Arc::new(ProcessNumbers::begin(&changes).await?);
        let reads = connections::to_read(address).await?;
        let groups = connections::to_write_groups(address, numbers.process(), options.is_alone).await?;
        let (devices, partitions) = (Arc::new(DeviceSlots::new(options.device_bytes)), Arc::new(Partitions::default()));
        let live = Arc::new(LiveEvents::open(&reads).await?);
        let parts = (Arc::clone(&devices), Arc::clone(&partitions), Arc::clone(&live));
        let committer = Arc::new(Committer::new(groups.clone(), parts.0, parts.1, parts.2));
        let (cutoff, garbage_came) = (AtomicI64::new(0), Notify::new());
        let core = PgCore {
            reads,
            changes,
            groups,
            numbers,
            devices,
            committer,
            live,
            partitions,
            cutoff,
            garbage_came,
            options,
        };
        let noted = core.noted("cutoff").await?.map_or(0, |cutoff| cutoff.millis());
        core.cutoff.store(noted, std::sync::atomic::Ordering::Release);
        core.renew_node_once().await?;
        if core.options.is_alone {
            core.outlive_nodes().await?;
        }
        Self::start(Arc::new(core))
    }

    fn start(core: Arc<PgCore>) -> Result<Self> {
        let scan_threads =
            GivingThreads::new(LOOKING_THREAD, limits::SCANS.at_once).map_err(StoreError::unavailable)?;
        let (failed, has_failed) = watch::channel(false);
        let writes = Arc::clone(&core.committer);
        let committer = tokio::spawn(async move {
            // Also told when it panics: then this is dropped.
            let told = ToldWhenDropped(failed);
            writes.run().await;
            std::mem::forget(told);
        });
        let (sends, collects) = (Arc::clone(&core.live), Arc::clone(&core));
        let live = tokio::spawn(async move { sends.run().await });
        let garbage = tokio::spawn(async move { collects.collect_garbage().await });
        let renews = Arc::clone(&core);
        let node = tokio::spawn(async move { renews.renew_node().await });
        core.garbage_came.notify_one();
        let tasks = Mutex::new(Some(StoreTasks { committer, others: [live, garbage, node] }));
        let (scans, sorted_bytes) = (FairQueue::new(&limits::SCANS), Arc::default());
        Ok(Self { core, tasks, has_failed, scans, scan_threads, sorted_bytes })
    }
}

/// Tells that the committer has ended.
struct ToldWhenDropped(watch::Sender<bool>);

impl Drop for ToldWhenDropped {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}
