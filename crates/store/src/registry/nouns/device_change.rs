//! Changing devices: what a person says of them, their project, their place in the tree.

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

/// What a body says of a device. What it does not name keeps the value that it has when the change is made.
#[derive(Clone, Debug)]
pub struct DeviceChange {
    /// The project and the organization in which the device was when the change was decided. Where it is elsewhere by then,
    /// nothing is changed.
    pub decided_in: (ProjectId, OrganizationId),
    /// 1 to 80 characters.
    pub name: String,
    /// The project whose design runs on its events.
    pub project: ProjectId,
    /// The organization that owns it; none: as it is.
    pub organization: Option<OrganizationId>,
    /// Version of the project.
    pub version: Patch<String>,
    /// Main protocol.
    pub protocol: Patch<String>,
    /// All protocols; none: as they are.
    pub protocols: Option<Vec<String>>,
    /// Metadata: an object that takes the place of the present one; none: as it is.
    pub meta: Option<RawJson>,
    /// Up to 200 characters.
    pub description: Patch<String>,
    /// Where it stands, by post.
    pub street_address: Patch<StreetAddress>,
}

impl DeviceChange {
    /// The device after the change.
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
    /// Changes a device, and moves it to another organization where one is named.
    ///
    /// # Errors
    /// [`StoreError::Outdated`] where the device is not where the change was decided; [`StoreError::Gone`] where the device,
    /// its new project or its new organization is gone; [`StoreError::Limit`] where the new organization or one above it has
    /// all the devices that it may have.
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
        // The organizations before the projects: so whoever makes devices holds them.
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

/// Writes what a person may say of a device that is held.
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

/// Counts a device in another organization, and takes its activity and its alarms there; its own row is the caller's to change.
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
