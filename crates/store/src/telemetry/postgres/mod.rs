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
mod group_connection;
mod history;
mod live_events;
mod load;
mod membership;
mod memory;
mod migrations;
mod moving;
mod numbers;
mod opening;
mod outbox;
mod partitions;
mod parts;
mod port;
mod queue;
mod shared;
mod stream_stall;
mod transactions;
mod turn;
mod upkeep;
mod values;

pub use self::connections::TELEMETRY_CONNECTIONS_MAX;
pub use self::live_events::EventPlace;
pub use self::membership::{must_fit, name_of, named, number_of, server_version};
pub use self::upkeep::{believe, examine_database, give_up_lost_devices, lost_devices, seen};

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

pub(crate) use self::catch_up::encoded;
use self::committer::Committer;
use self::devices::DeviceSlots;
use self::live_events::LiveEvents;
pub(crate) use self::membership::{DatabaseFailed, JoinedDatabase, join};
pub use self::moving::{MoveError, MoveOptions, MoveProgress, MoveTotals, TelemetryMove};
use self::numbers::ProcessNumbers;
pub(crate) use self::opening::OpenedDatabase;
use self::partitions::Partitions;
pub(crate) use self::parts::ProcessParts;
use crate::postgres::WatchedPool;

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
    /// Number of the database: the devices in it have it in theirs.
    database: u16,
    identity: String,
    reads: Arc<WatchedPool>,
    changes: Arc<WatchedPool>,
    groups: Arc<WatchedPool>,
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
    /// Parts that all databases of this process share.
    parts: ProcessParts,
}

/// Error of a store whose committer has ended.
#[derive(Debug, thiserror::Error)]
#[error("the telemetry store has failed")]
struct CommitterFailed;

impl PostgresTelemetry {
    fn start(core: Arc<PgCore>, parts: ProcessParts) -> Self {
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
        Self { core, tasks, has_failed, parts }
    }
}

/// Tells that the committer has ended.
struct ToldWhenDropped(watch::Sender<bool>);

impl Drop for ToldWhenDropped {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}
