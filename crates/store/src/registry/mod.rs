//! Stores people, organizations, projects and devices: one SQL layer over SQLite and PostgreSQL, a file per noun.
//!
//! A method that touches a tenant's rows demands a permit. Methods that decide about permits (placements) or identify
//! callers (credentials) demand none, and return no tenant's data.

mod lists;
mod maintenance;
mod migrations;
mod moving;
mod nouns;
mod sql;
#[cfg(test)]
#[path = "../../tests/support/mod.rs"]
mod support;

pub use lists::{
    ActiveDevices, AlarmField, AlarmFilter, DeviceField, DeviceFilter, DeviceSelection, DeviceSummary, ProjectDevices,
    UnwrittenDevices, sortable,
};
pub use maintenance::{DeviceNumbers, IsAway};
pub use moving::{
    RegistryMoveError, RegistryMoveProgress, RegistryMoveStage, RegistryMoveTotals, RegistryMoveView, move_registry,
};
pub use nouns::alarm_assignees::Assigned;
pub use nouns::alarm_findings::AlarmFindings;
pub use nouns::alarms::AlarmWrite;
pub use nouns::changes::{CHANGES_AT_ONCE, ChangeReader, RegistryChange};
pub use nouns::credentials::{Account, KeyRecord, LoginRecord};
pub use nouns::deliveries::{DeliveryKind, Destination, NewDelivery, QueuedDelivery};
pub use nouns::delivery_quota::LimitedDelivery;
pub use nouns::device_change::DeviceChange;
pub use nouns::device_creation::{DeviceCreation, DevicesLeft, NewDevices};
pub use nouns::devices::NewDevice;
pub use nouns::findings::{DeviceReport, Findings};
pub use nouns::images::{NewImage, Pictured, Png};
pub use nouns::labels::{MetaChange, MetaChanged, NewLabels, Tag, TagCarrier, TagCase};
pub use nouns::letters::{LetterBounds, LetterKind, NewLetter};
pub use nouns::login_failures::FailureCount;
pub use nouns::nodes::{SeenNode, ServingNode};
pub use nouns::nonces::Purpose;
pub use nouns::notices::{Recipient, SpreadStep, Spreading};
pub use nouns::notifications::NotificationMark;
pub use nouns::organizations::{DEVICE_LIMIT_REACHED, NewOrganization};
pub use nouns::projects::NewProject;
pub use nouns::provisioning::{NewTagged, Provisioned};
pub use nouns::settings::SettingWrite;
pub use nouns::sign_ins::ADDRESSES_MAX;
pub use nouns::specification_versions::{NewSpecification, StoredVersion, VERSIONS_MAX};
pub use nouns::timers::{DueTimer, ProjectTimer};
pub use nouns::usage::{Alert, LimitedOrganization, Used};
pub use nouns::users::{NewPassword, NewUserRow, UserChange};
pub use sql::connections::REGISTRY_CONNECTIONS_MAX;
pub(crate) use sql::refuses;
pub use sql::sqlite_file::{loss, loss_accept, sqlite_version};
pub use sqlite_page_checksums::companions;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use crate::error::Result;
use maintenance::{DevicePlaces, GivenNumbers};
use sql::connections::Connections;

/// Bounds the files that a registry has open at a time: those of its connections (each the database and its log, or a
/// socket), the index of the log, the note of durable changes, and temporary files of sorts.
pub const REGISTRY_FILES_MAX: u64 = 32;

/// Handle of the registry. Clones share it.
///
/// A method that reads or changes what belongs to a tenant takes a permit for it: [`CanRead`] to look, [`CanWrite`] to
/// change, [`CanList`] for a part of the tree. Methods without a permit serve the system, or decide about permits, and
/// their documentation says so. Moments are in milliseconds; `now` is the caller's clock.
///
/// No method blocks the thread that calls it: statements run on the threads of the driver, and on SQLite changes wait
/// for each other. Each change is one transaction, all or nothing, and durable when its method returns `Ok`; a change
/// that is dropped half-way is rolled back. Each list shows the state of one moment.
///
/// # Errors
/// Any method may answer [`StoreError::Busy`] where no connection is free in time or PostgreSQL ends one of two
/// transactions that wait for each other, [`StoreError::Unavailable`] where the database cannot be reached or failed,
/// and [`StoreError::Damaged`] where a row cannot be read. A change that was being committed then may have been made.
/// Further errors are documented at the methods; after those nothing was changed.
///
/// [`CanList`]: isobar_model::access::CanList
/// [`CanRead`]: isobar_model::access::CanRead
/// [`CanWrite`]: isobar_model::access::CanWrite
/// [`StoreError::Busy`]: crate::error::StoreError::Busy
/// [`StoreError::Damaged`]: crate::error::StoreError::Damaged
/// [`StoreError::Unavailable`]: crate::error::StoreError::Unavailable
#[derive(Clone, Debug)]
pub struct Registry {
    db: Connections,
    /// Index of the age class (see [`lists`]) that held most devices at the last count. A summary derives the count of
    /// this class from the total instead of counting it. The choice changes no figure, only how long a summary takes.
    commonest_age: Arc<AtomicUsize>,
    /// Device numbers already assigned. A database that is set back to an earlier state while in use would assign them
    /// again.
    given: GivenNumbers,
    places: DevicePlaces,
}

impl Registry {
    /// Opens the registry at `sqlite:PATH` (created if missing) or `postgres://…`, and updates its schema.
    ///
    /// # Errors
    /// [`Damaged`](crate::error::StoreError::Damaged) if the schema is newer than this version knows, or if
    /// acknowledged changes are missing from the file (see [`loss`]);
    /// [`Unavailable`](crate::error::StoreError::Unavailable) if the address has neither form, or if a move to the database
    /// has not finished (see [`move_registry`]).
    pub async fn open(address: &str) -> Result<Self> {
        let db = Connections::open(address).await?;
        // Before a move under way is waited for, and after.
        moving::must_be_moved(&db.read).await?;
        let tx = db.begin().await?;
        sql::AdvisoryLock::Schema.hold(&tx).await?;
        moving::must_be_moved(&tx).await?;
        migrations::migrate(&tx).await?;
        tx.commit().await?;
        Ok(Self::of(db))
    }

    fn of(db: Connections) -> Self {
        Self { db, commonest_age: Arc::default(), given: GivenNumbers::default(), places: DevicePlaces::default() }
    }

    /// Returns host, port and database of the server, without user and password; `None` for a SQLite file.
    pub fn place(&self) -> Option<String> {
        self.db.place()
    }

    /// Closes the connections to the database, after running statements have ended.
    pub async fn close(&self) -> Result<()> {
        self.db.close().await
    }

    /// Returns `Ok` if the database answers and commits changes. Writes a row to find out if the last change is older
    /// than half a minute, or failed.
    pub async fn healthy(&self) -> Result<()> {
        sql::one(&self.db.read, sql::Sql::new("SELECT 1 AS answer")).await?;
        self.db.write.healthy().await
    }

    /// Returns `Ok` if the database answers within this time. Asks a question that writes nothing; if the database does
    /// not answer, finding the cause may take as long again.
    ///
    /// # Errors
    /// [`Unavailable`](crate::error::StoreError::Unavailable), with the cause: the database cannot be reached, or has
    /// failed. [`Busy`](crate::error::StoreError::Busy): the database runs, but all connections are in use.
    pub async fn answers(&self, within: Duration) -> Result<()> {
        self.db.answers(within).await
    }
}
