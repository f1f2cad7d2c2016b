//! Opens the store in a database: tables first, then the number of the database, then everything that serves.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use isobar_model::ids::DeviceKey;
use sqlx::PgPool;
use tokio::sync::Notify;

use super::committer::Committer;
use super::group_connection::GroupConnections;
use super::live_events::LiveEvents;
use super::partitions::Partitions;
use super::{
    EventPlace, JoinedDatabase, PgCore, PostgresOptions, PostgresTelemetry, ProcessParts, connections, membership,
    migrations, moving, transactions,
};
use crate::error::{Result, StoreError};
use crate::postgres::{AwayDatabase, DatabaseWatch, WatchedPool};
use crate::telemetry::{KnownStores, NotedStore};

/// A database whose tables are there, and that may be served.
pub(crate) struct OpenedDatabase {
    address: String,
    pub changes: PgPool,
    /// Number that is added to those of the server's transactions.
    raised: i64,
}

/// Error for a device of another database.
#[derive(Debug, thiserror::Error)]
#[error("device number {dense} is in database {asked} of stores.telemetry, and this process knows only database {own}")]
struct ForeignDevice {
    dense: u64,
    asked: u16,
    own: u16,
}

impl OpenedDatabase {
    /// Makes or upgrades the tables.
    pub async fn open(address: &str, needs_syncs: bool) -> Result<Self> {
        let changes = connections::to_change(address).await?;
        if needs_syncs {
            connections::check_server(&changes).await?;
        }
        migrations::migrate(&changes).await?;
        moving::must_be_finished(&changes).await?;
        let raised = transactions::raised(&changes, i64::MIN).await?;
        Ok(Self { address: address.to_owned(), changes, raised })
    }

    /// Makes sure that new events come behind a place that others know of this database.
    pub async fn must_be_behind(&mut self, known: EventPlace) -> Result<()> {
        self.raised = transactions::raised(&self.changes, known.transaction).await?;
        Ok(())
    }
}

impl PostgresTelemetry {
    /// Opens the store in a database, for a registry without devices or for one whose devices are in it; its tables are made if
    /// they are not there.
    pub async fn open(address: &str, options: PostgresOptions) -> Result<Self> {
        Self::open_for(address, options, &KnownStores::default()).await
    }

    /// Opens the store in a database, for a registry that knows these.
    ///
    /// # Errors
    /// The database is not the one that the registry knows, or that of its devices.
    pub async fn open_for(address: &str, options: PostgresOptions, known: &KnownStores) -> Result<Self> {
        let opened = OpenedDatabase::open(address, options.needs_syncs).await?;
        let (joined, numbers) = membership::join_alone(&opened, known).await?;
        let parts = ProcessParts::new(numbers, options.device_bytes)?;
        Self::serve((opened, joined), parts, options).await
    }

    /// Begins to serve a database that has its number.
    pub(crate) async fn serve(
        (opened, joined): (OpenedDatabase, JoinedDatabase),
        parts: ProcessParts,
        options: PostgresOptions,
    ) -> Result<Self> {
        let OpenedDatabase { address, changes, raised } = opened;
        let watch = Arc::new(DatabaseWatch::begin("telemetry database", &address)?);
        let (numbers, devices) = (Arc::clone(&parts.numbers), Arc::clone(&parts.devices));
        let watched = |pool: PgPool| Arc::new(WatchedPool::new(pool, Arc::clone(&watch)));
        let (reads, changes) = (watched(connections::to_read(&address).await?), watched(changes));
        let groups = connections::to_write_groups(&address, numbers.process(), options.is_alone);
        let groups = watched(groups.await?);
        let writing = GroupConnections::new(Arc::clone(&groups), Arc::clone(&reads), numbers.process());
        let partitions = Arc::new(Partitions::default());
        let live = Arc::new(LiveEvents::open(Arc::clone(&reads), raised).await?);
        let committer = Arc::new(Committer::new(writing, &parts, (Arc::clone(&partitions), Arc::clone(&live))));
        let (cutoff, garbage_came) = (AtomicI64::new(0), Notify::new());
        let core = PgCore {
            database: joined.number,
            identity: joined.identity,
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
        Ok(Self::start(Arc::new(core), parts))
    }

    /// Returns what the databases of this process share.
    pub(crate) fn parts(&self) -> &ProcessParts {
        &self.parts
    }

    /// Tells if the database is away.
    pub(crate) fn away(&self) -> &AwayDatabase {
        self.core.reads.away()
    }

    /// Returns the number of the database: see [`DeviceKey::database`].
    pub fn database(&self) -> u16 {
        self.core.database
    }

    /// Returns the database, as a registry notes it.
    pub fn noted(&self) -> NotedStore {
        let (number, identity) = (self.core.database, self.core.identity.clone());
        NotedStore { number, identity, place: self.name().to_string() }
    }

    /// Returns a device's number as the tables have it.
    pub(super) fn key(&self, device: DeviceKey) -> Result<i64> {
        self.core.key(device)
    }
}

impl PgCore {
    /// Returns a device's number as the tables have it.
    ///
    /// # Errors
    /// The device is in another database, which another process has added: nothing of it may be written here.
    pub(super) fn key(&self, device: DeviceKey) -> Result<i64> {
        let (dense, asked, own) = (device.dense(), device.database(), self.database);
        match asked == own {
            true => Ok(device.0 as i64),
            false => Err(StoreError::unavailable(ForeignDevice { dense, asked, own })),
        }
    }
}
