//! Changes devices: the values that a person sets, their project, their organization.

use isobar_model::access::CanWrite;
use isobar_model::check::Patch;
use isobar_model::device::{Device, StreetAddress};
use isobar_model::ids::{DeviceRef, OrganizationId, ProjectId};
use isobar_model::json::RawJson;
use isobar_model::time::Timestamp;

use super::device_creation::hold_projects;
use super::devices::{hold_device, read, search_of, written};
use super::organizations::{count_devices, hold_organization, room_for_a_device};
use super::projects::count_in_projects;
use super::{labels, timers, usage};
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::{Connection, Dialect, Sql, run};

/// Change of a device by a person. Fields that are not named keep the value at the time of the change.
#[derive(Clone, Debug)]
pub struct DeviceChange {
    /// Project and organization of the device when the change was authorized. If it has moved since, nothing is
    /// changed.
    pub decided_in: (ProjectId, OrganizationId),
    /// Name: 1 to 80 characters.
    pub name: String,
    /// Project whose design runs on the device's events.
    pub project: ProjectId,
    /// Organization that owns the device, or `None`: unchanged.
    pub organization: Option<OrganizationId>,
    /// Version of the project.
    pub version: Patch<String>,
    /// Main protocol.
    pub protocol: Patch<String>,
    /// All protocols, or `None`: unchanged.
    pub protocols: Option<Vec<String>>,
    /// Metadata: an object that replaces the present one, or `None`: unchanged.
    pub meta: Option<RawJson>,
    /// Description: up to 200 characters.
    pub description: Patch<String>,
    /// Postal address of the device.
    pub street_address: Patch<StreetAddress>,
}

impl DeviceChange {
    /// Returns the device after the change.
    fn over(self, device: Device) -> Device {
        Device {
            name: self.name,
            project: self.project,
            organization: self.organization.unwrap_or(device.organization),
            version: self.version.over(device.version),
            protocol: self.protocol.over(device.protocol),
            protocols: self.protocols.unwrap_or(device.protocols),
            meta: self.meta.unwrap_or(device.meta),
            description: self.description.over(device.description),
            street_address: self.street_address.over(device.street_address),
            ..device
        }
    }
}

impl Registry {
    /// Changes a device, and moves it to another organization if one is named.
    ///
    /// # Errors
    /// [`StoreError::Outdated`] where the device has moved since the change was authorized; [`StoreError::Gone`] where
    /// the device, its new project or its new organization is gone; [`StoreError::Limit`] where the new organization or
    /// one above it has reached its device limit.
    pub async fn device_update(
        &self,
        permit: &CanWrite<DeviceRef>,
        change: &DeviceChange,
        now: Timestamp,
    ) -> Result<Device> {
        let id = permit.target().id;
        let tx = self.db.begin().await?;
        let before = hold_device(&tx, id).await?;
        if (before.project, before.organization) != change.decided_in {
            return Err(StoreError::Outdated("the device"));
        }
        let after = change.clone().over(before.clone());
        // Lock organizations before projects, in the same order as the creation of devices.
        if before.organization != after.organization {
            move_device(&tx, &before, after.organization).await?;
        }
        if before.project != after.project {
            let held = hold_projects(&tx, [before.project, after.project].into_iter()).await?;
            if !held.contains(&after.project) {
                return Err(StoreError::Gone("project"));
            }
            timers::end(&tx, before.key).await?;
        }
        write_profile(&tx, &after, now).await?;
        if before.project != after.project {
            timers::begin(&tx, &[before.key], now).await?;
        }
        if after.meta != before.meta {
            labels::follow(&tx, &[(before.key, &before.meta, &after.meta)]).await?;
        }
        let search = search_of(id, &after.name, after.description.as_deref(), &after.meta);
        let update = Sql::new("UPDATE device_search SET organization_id = ?, search = ? WHERE key = ?");
        run(&tx, update.bind(after.organization).bind(search).bind(before.key)).await?;
        let changed = read(&tx, &[id]).await?.pop().ok_or(StoreError::Gone("device"))?;
        if before.project != after.project {
            count_in_projects(&tx, [(before.project, -1), (after.project, 1)]).await?;
        }
        tx.commit().await?;
        Ok(changed)
    }
}

/// Writes the values of a locked device that a person may set.
async fn write_profile(tx: &impl Connection, device: &Device, now: Timestamp) -> Result<()> {
    let place = device.coordinates();
    let update = Sql::new(
        "UPDATE devices SET name = ?, project_id = ?, organization_id = ?, version = ?, protocol = ?, \
         protocols = ?, meta = ?, description = ?, street_address = ?, place_latitude = ?, place_longitude = ?, \
         updated_at = ? WHERE id = ?",
    )
    .bind(device.name.as_str())
    .bind(device.project)
    .bind(device.organization)
    .bind(device.version.clone())
    .bind(device.protocol.clone())
    .bind(written(&device.protocols)?)
    .bind(device.meta.clone())
    .bind(device.description.clone())
    .bind(device.street_address.as_ref().map(written).transpose()?)
    .bind(place.map(|place| place.latitude))
    .bind(place.map(|place| place.longitude))
    .bind(now)
    .bind(device.id);
    run(tx, update).await.map(|_| ())
}

/// Counts a device in another organization, and moves its activity and its alarms there. The caller changes the
/// device's own row.
async fn move_device(tx: &impl Connection, device: &Device, to: OrganizationId) -> Result<()> {
    let lineage = hold_organization(tx, to, Dialect::of(tx).hold_in_place()).await?;
    room_for_a_device(tx, &lineage, device.lineage.ids(), &[device.organization, to]).await?;
    count_devices(tx, device.organization, -1).await?;
    count_devices(tx, to, 1).await?;
    usage::hand_over(tx, device.key, device.organization, Some(to)).await?;
    let update = Sql::new("UPDATE device_activity SET organization_id = ? WHERE key = ?").bind(to).bind(device.key);
    run(tx, update).await?;
    let update = Sql::new("UPDATE alarms SET organization_id = ? WHERE device_key = ?").bind(to).bind(device.key);
    run(tx, update).await.map(|_| ())
}
