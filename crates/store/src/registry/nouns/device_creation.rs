//! Creates devices: one, or many of several organizations in one transaction.

use std::collections::HashSet;

use isobar_model::access::{CanWrite, Lineage};
use isobar_model::device::Device;
use isobar_model::ids::{DeviceKey, OrganizationId, ProjectId};
use isobar_model::time::Timestamp;

use super::devices::{NewDevice, insert, read};
use super::organizations::{DEVICE_LIMIT_REACHED, count_devices, devices_left, hold_organization};
use super::projects::count_in_projects;
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::lists::end_of;
use crate::registry::maintenance::DrawnNumbers;
use crate::registry::sql::{Connection, Dialect, Sql, all, one};

/// Outcome for a device that was to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceCreation {
    /// The device was created.
    Made,
    /// The organization or one above it has reached its device limit.
    NoRoom,
    /// The project is gone.
    NoProject,
    /// The organization is gone.
    NoOrganization,
}

/// Devices to be created in one organization.
pub struct NewDevices {
    /// Permit to create them there.
    pub permit: CanWrite<OrganizationId>,
    /// Devices to create.
    pub devices: Vec<NewDevice>,
}

/// Organization with a device limit, and how many more devices it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicesLeft {
    /// Identifier of the organization.
    pub organization: OrganizationId,
    /// Number of devices that it may still get.
    pub left: u64,
}

impl Registry {
    /// Creates a device in the permit's organization.
    ///
    /// # Errors
    /// [`StoreError::Limit`] where the organization or one above it has reached its device limit; [`StoreError::Gone`]
    /// where the organization or the project is gone.
    pub async fn device_create(
        &self,
        permit: &CanWrite<OrganizationId>,
        new: NewDevice,
        now: Timestamp,
    ) -> Result<Device> {
        self.count_places().await?;
        let mut numbers = self.given.begin(&self.places);
        let tx = self.db.begin().await?;
        let (id, project) = (new.id, new.project);
        match create(&tx, *permit.target(), &[new], &mut numbers, now).await?.as_slice() {
            [DeviceCreation::Made] => {}
            [DeviceCreation::NoRoom] => return Err(StoreError::Limit(DEVICE_LIMIT_REACHED)),
            [DeviceCreation::NoProject] => return Err(StoreError::Gone("project")),
            _ => return Err(StoreError::Gone("organization")),
        }
        let made = read(&tx, &[id]).await?.pop().ok_or(StoreError::Gone("device"))?;
        count_in_projects(&tx, [(project, 1)]).await?;
        tx.commit().await?;
        self.given.end(&numbers);
        Ok(made)
    }

    /// Creates devices of some organizations in one transaction; returns the outcome of each, in order. A device that
    /// cannot be created prevents no other, and no organization exceeds its limit, even with concurrent creations.
    /// Groups must be in the order of their organizations' lineages, the order in which locks are taken.
    pub async fn devices_create(&self, groups: &[NewDevices], now: Timestamp) -> Result<Vec<Vec<DeviceCreation>>> {
        self.count_places().await?;
        let mut numbers = self.given.begin(&self.places);
        let tx = self.db.begin().await?;
        let mut outcomes = Vec::with_capacity(groups.len());
        for group in groups {
            outcomes.push(create(&tx, *group.permit.target(), &group.devices, &mut numbers, now).await?);
        }
        let asked = groups.iter().zip(&outcomes).flat_map(|(group, outcomes)| group.devices.iter().zip(outcomes));
        let made = asked.filter(|(_, outcome)| **outcome == DeviceCreation::Made);
        count_in_projects(&tx, made.map(|(device, _)| (device.project, 1))).await?;
        tx.commit().await?;
        self.given.end(&numbers);
        Ok(outcomes)
    }

    /// Returns how many more devices the organizations on these lineages may have, of those that have a limit: at one
    /// moment, and only for display, because nothing is locked.
    pub async fn devices_left(&self, lineages: &[Lineage]) -> Result<Vec<DevicesLeft>> {
        let ids: HashSet<OrganizationId> = lineages.iter().flat_map(|lineage| lineage.ids().iter().copied()).collect();
        let tx = self.db.snapshot().await?;
        let query =
            Sql::new("SELECT id, lineage, device_count_limit FROM organizations WHERE device_count_limit > 0 AND id")
                .among(self.db.dialect, ids);
        let mut counts = Vec::new();
        for row in all(&tx, query).await? {
            let left = left_beneath(&tx, &row.text("lineage")?, row.float("device_count_limit")?).await?;
            counts.push(DevicesLeft { organization: row.id("id")?, left });
        }
        Ok(counts)
    }
}

/// Returns how many more devices an organization with this limit may have in its subtree.
pub(crate) async fn left_beneath(tx: &impl Connection, lineage: &str, limit: f64) -> Result<u64> {
    // A fraction of a device does not count; a count beyond the limit leaves no room.
    Ok((limit.floor() as u64).saturating_sub(device_count_beneath(tx, lineage).await?))
}

/// Counts the devices in the subtree of an organization.
pub(crate) async fn device_count_beneath(tx: &impl Connection, lineage: &str) -> Result<u64> {
    let counted = Sql::new(
        "SELECT CAST(coalesce(sum(device_count), 0) AS BIGINT) AS devices FROM organizations \
         WHERE lineage >= ? AND lineage < ?",
    )
    .bind(lineage)
    .bind(end_of(lineage));
    one(tx, counted).await?.map_or(Ok(0), |row| row.count("devices"))
}

/// Creates those of the devices that can be created in an organization; returns the outcome of each. The caller counts
/// them in their projects.
async fn create(
    tx: &impl Connection,
    organization: OrganizationId,
    devices: &[NewDevice],
    numbers: &mut DrawnNumbers,
    now: Timestamp,
) -> Result<Vec<DeviceCreation>> {
    let lineage = match hold_organization(tx, organization, Dialect::of(tx).hold_in_place()).await {
        Err(StoreError::Gone(_)) => return Ok(vec![DeviceCreation::NoOrganization; devices.len()]),
        held => held?,
    };
    let mut left = devices_left(tx, &lineage, &[], &[organization]).await?;
    let projects = hold_projects(tx, devices.iter().map(|device| device.project)).await?;
    let (mut missing, mut outcomes) = (Vec::with_capacity(devices.len()), Vec::with_capacity(devices.len()));
    for device in devices {
        outcomes.push(if !projects.contains(&device.project) {
            DeviceCreation::NoProject
        } else if left == 0 {
            DeviceCreation::NoRoom
        } else {
            left -= 1;
            missing.push(device);
            DeviceCreation::Made
        });
    }
    put(tx, organization, &missing, numbers, now).await?;
    Ok(outcomes)
}

/// Adds devices for which there is room, and counts them in their organization; returns their numbers, in order. The
/// caller counts them in their projects.
pub(crate) async fn put(
    tx: &impl Connection,
    organization: OrganizationId,
    devices: &[&NewDevice],
    numbers: &mut DrawnNumbers,
    now: Timestamp,
) -> Result<Vec<DeviceKey>> {
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let keys = insert(tx, organization, (devices, numbers.places(devices.len())), now).await?;
    numbers.take(&keys)?;
    count_devices(tx, organization, devices.len() as i64).await?;
    Ok(keys)
}

/// Locks those of the projects that exist against removal, and returns them.
pub(crate) async fn hold_projects(
    tx: &impl Connection,
    projects: impl Iterator<Item = ProjectId>,
) -> Result<HashSet<ProjectId>> {
    let dialect = Dialect::of(tx);
    let distinct: HashSet<ProjectId> = projects.collect();
    let query = Sql::new("SELECT id FROM projects WHERE id").among(dialect, distinct);
    let rows = all(tx, query.text(" ORDER BY id").text(dialect.hold_in_place())).await?;
    rows.iter().map(|row| row.id("id")).collect()
}
