//! The registry: who and what. One SQL layer over SQLite and PostgreSQL, a file per noun.
//!
//! A method that touches a tenant's rows demands a pass. What decides about passes (placements) and what makes callers
//! (credentials) demands none, and hands out no tenant's data.

mod alarms;
mod api_keys;
mod appearance;
mod backlog;
mod credentials;
mod db;
mod deliveries;
mod device_change;
mod devices;
mod devices_beneath;
mod devices_list;
mod devices_placed;
mod findings;
mod images;
mod labels;
mod lists;
mod locks;
mod migrations;
mod nonces;
mod notices;
mod notifications;
mod organization_change;
mod organizations;
mod pages;
mod projects;
mod provisioning;
mod rows;
mod sessions;
mod settings;
mod sign_ins;
mod specifications;
mod sql;
mod stretch;
#[cfg(test)]
#[path = "../../tests/support/mod.rs"]
mod support;
mod upkeep;
mod usage;
mod users;
mod writing;

use db::Db;

pub use alarms::{DueAlarm, ProjectAlarm};
pub use backlog::Asked;
pub use credentials::{Account, LoginRecord};
pub use deliveries::{Delivery, Lane, NewDelivery};
pub use device_change::DeviceChange;
pub use devices::NewDevice;
pub use findings::{DeviceReport, Findings};
pub use images::{NewImage, Pictured, Png};
pub use isobar_pages::companions;
pub use labels::NewLabels;
pub use nonces::Purpose;
pub use notices::{Recipient, SpreadStep, Spreading};
pub use notifications::NotificationMark;
pub use organization_change::OrganizationChange;
pub use organizations::NewOrganization;
pub use pages::{loss, loss_accept};
pub use projects::NewProject;
pub use provisioning::{NewTagged, Provisioned};
pub use settings::SettingWrite;
pub use sign_ins::ADDRESSES_MAX;
pub(crate) use sql::refuses;
pub use upkeep::DeviceNumbers;
pub use usage::{Alert, LimitedOrganization, Used};
pub use users::{NewPassword, NewUserRow, UserChange};

use crate::error::Result;

/// Files that a registry has open at a time, at most: those of its connections (each the database and its log, or a socket),
/// the log's index, the note, and what is sorted aside.
pub const FILES_MAX: u64 = 32;

/// The registry. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Registry {
    db: Db,
}

impl Registry {
    /// Opens the registry at `sqlite:PATH` (made if missing) or `postgres://…`, and brings its schema up to date.
    pub async fn open(address: &str) -> Result<Self> {
        let db = Db::open(address).await?;
        let tx = db.begin().await?;
        migrations::migrate(&tx).await?;
        db::commit(tx).await?;
        Ok(Self { db })
    }

    /// Lets go of the database; what is under way ends first.
    pub async fn close(&self) -> Result<()> {
        self.db.close().await
    }

    /// Whether the database answers, and keeps what is written.
    pub async fn healthy(&self) -> Result<()> {
        sql::one(&self.db.read, sql::Sql::new("SELECT 1 AS answer")).await?;
        self.db.write.healthy().await
    }
}
