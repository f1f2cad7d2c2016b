//! Stores devices. [`crate::registry::lists`] lists them.

use std::collections::{HashMap, HashSet};

use isobar_model::access::{CanRead, CanWrite, Lineage};
use isobar_model::alarm::AlarmCounts;
use isobar_model::device::{Device, Location, StreetAddress};
use isobar_model::ids::{DeviceId, DeviceKey, DeviceRef, OrganizationId, ProjectId, UserId};
use isobar_model::json::{Json, RawJson, with_members};
use isobar_model::secret::Digest;
use isobar_model::status::Status;
use isobar_model::time::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::organizations::count_devices;
use super::projects::count_in_projects;
use super::users::latest;
use super::{labels, timers, usage};
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::lists::{METADATA_AND_SETTINGS, read_by_id, searched};
use crate::registry::maintenance::SEQUENCE;
use crate::registry::sql::{Column, Connection, Dialect, Row, Sql, all, one, run, without_nul};

const SELECT_DEVICES: &str = "SELECT d.id, d.key, d.name, d.organization_id, o.lineage, o.name AS organization, \
    d.project_id, d.version, d.protocol, d.protocols, d.meta, d.description, d.street_address, d.latitude, \
    d.longitude, d.status, d.status_before, d.created_by, d.created_at, d.updated_at, a.last_active, \
    (SELECT count(*) FROM alarms l WHERE l.device_key = d.key AND l.state = 0 AND l.severity = 2) AS critical, \
    (SELECT count(*) FROM alarms l WHERE l.device_key = d.key AND l.state = 0 AND l.severity = 1) AS warning, \
    (SELECT count(*) FROM alarms l WHERE l.device_key = d.key AND l.state = 0 AND l.severity = 0) AS info \
    FROM devices d JOIN organizations o ON o.id = d.organization_id JOIN device_activity a ON a.key = d.key \
    WHERE d.id";

/// Devices that one statement adds: their values stay below the parameter limit of either database.
const DEVICES_INSERTED_AT_ONCE: usize = 200;

/// Device to be created.
#[derive(Clone, Debug)]
pub struct NewDevice {
    /// Identifier.
    pub id: DeviceId,
    /// Project whose design runs on the device's events.
    pub project: ProjectId,
    /// Name: 1 to 80 characters.
    pub name: String,
    /// Version of the project.
    pub version: Option<String>,
    /// Main protocol.
    pub protocol: Option<String>,
    /// All protocols.
    pub protocols: Vec<String>,
    /// Metadata: an object.
    pub meta: RawJson,
    /// Description: up to 200 characters.
    pub description: Option<String>,
    /// Postal address of the device.
    pub street_address: Option<StreetAddress>,
    /// User who creates it.
    pub created_by: Option<UserId>,
    /// Digest of the token.
    pub token: Digest,
}

impl Registry {
    /// Returns the lineage of a device's organization, and the device's number in the telemetry store; only for
    /// authorization.
    pub async fn device_placement(&self, id: DeviceId) -> Result<Option<(DeviceRef, Lineage)>> {
        let query = Sql::new(
            "SELECT d.key, o.lineage FROM devices d JOIN organizations o ON o.id = d.organization_id WHERE d.id = ?",
        );
        let row = one(&self.db.read, query.bind(id)).await?;
        row.map(|row| Ok((DeviceRef { id, key: row.key("key")? }, row.lineage("lineage")?))).transpose()
    }

    /// Returns the placements of many devices, unordered; devices that do not exist are left out.
    pub async fn device_placements(&self, ids: &[DeviceId]) -> Result<Vec<(DeviceRef, Lineage)>> {
        let query = Sql::new(
            "SELECT d.id, d.key, o.lineage FROM devices d JOIN organizations o ON o.id = d.organization_id \
             WHERE d.id",
        );
        let rows = all(&self.db.read, query.among(self.db.dialect, ids)).await?;
        let placement = |row: &Row| -> Result<_> {
            Ok((DeviceRef { id: row.id("id")?, key: row.key("key")? }, row.lineage("lineage")?))
        };
        rows.iter().map(placement).collect()
    }

    /// Fetches a device.
    pub async fn device_fetch(&self, permit: &CanRead<DeviceRef>) -> Result<Option<Device>> {
        Ok(read(&self.db.read, &[permit.target().id]).await?.pop())
    }

    /// Fetches many devices, unordered; removed ones are left out.
    pub async fn devices_fetch(&self, permits: &[CanRead<DeviceRef>]) -> Result<Vec<Device>> {
        let ids: Vec<_> = permits.iter().map(|permit| permit.target().id).collect();
        read(&self.db.read, &ids).await
    }

    /// Returns how many of these devices, from the first on, together have no more than `bytes_max` of metadata and
    /// current settings; at least one, if there is any.
    pub async fn devices_that_take(&self, permits: &[CanRead<DeviceRef>], bytes_max: usize) -> Result<usize> {
        let ids: Vec<_> = permits.iter().map(|permit| permit.target().id).collect();
        METADATA_AND_SETTINGS.first_of(&self.db.read, &ids, bytes_max).await
    }

    /// Returns the projects of many devices and the versions that clients set for them, unordered; removed devices are
    /// left out.
    pub async fn device_versions(
        &self,
        permits: &[CanRead<DeviceRef>],
    ) -> Result<Vec<(DeviceId, ProjectId, Option<String>)>> {
        let ids = permits.iter().map(|permit| permit.target().id);
        let query = Sql::new("SELECT id, project_id, version FROM devices WHERE id").among(self.db.dialect, ids);
        let rows = all(&self.db.read, query).await?;
        rows.iter().map(|row| Ok((row.id("id")?, row.id("project_id")?, row.text_if("version")?))).collect()
    }

    /// Returns the projects of many devices, unordered; removed ones are left out.
    pub async fn device_projects(&self, permits: &[CanRead<DeviceRef>]) -> Result<Vec<(DeviceKey, ProjectId)>> {
        let ids = permits.iter().map(|permit| permit.target().id);
        let query = Sql::new("SELECT key, project_id FROM devices WHERE id").among(self.db.dialect, ids);
        let rows = all(&self.db.read, query).await?;
        rows.iter().map(|row| Ok((row.key("key")?, row.id("project_id")?))).collect()
    }

    /// Removes a device with its settings. Its number is never assigned again.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where there is no such device.
    pub async fn device_delete(&self, permit: &CanWrite<DeviceRef>) -> Result<()> {
        let tx = self.db.begin().await?;
        let before = hold_device(&tx, permit.target().id).await?;
        // Lock the organization before the project, in the same order as the creation of devices.
        usage::hand_over(&tx, before.key, before.organization, None).await?;
        count_devices(&tx, before.organization, -1).await?;
        hold_project(&tx, before.project).await?;
        run(&tx, Sql::new("DELETE FROM devices WHERE id = ?").bind(before.id)).await?;
        count_in_projects(&tx, [(before.project, -1)]).await?;
        tx.commit().await
    }

    /// Sets a new token of a device; the old one ends.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where there is no such device.
    pub async fn device_token_set(&self, permit: &CanWrite<DeviceRef>, token: &Digest) -> Result<()> {
        let update = Sql::new("UPDATE devices SET token = ? WHERE id = ?").bind(*token).bind(permit.target().id);
        match self.db.write.run(update).await? {
            0 => Err(StoreError::Gone("device")),
            _ => Ok(()),
        }
    }

    /// Records when devices were last active, all or none. A moment never moves backwards.
    pub async fn devices_touch(&self, touched: &[(DeviceKey, Timestamp)]) -> Result<()> {
        if touched.is_empty() {
            return Ok(());
        }
        let update = Sql::new("UPDATE device_activity SET last_active = t.moment FROM ")
            .moments(self.db.dialect, latest(touched).map(|(key, at)| (key.0.into(), at)))
            .text(
                " AS t WHERE device_activity.key = CAST(t.item AS BIGINT) AND device_activity.last_active < t.moment",
            );
        self.db.write.run(update).await.map(|_| ())
    }
}

/// Adds devices of one organization, each in its telemetry database if these are given, with their rows in other tables;
/// returns their numbers, in order. The caller counts them.
pub(crate) async fn insert(
    tx: &impl Connection,
    organization: OrganizationId,
    (devices, databases): (&[&NewDevice], Option<Vec<u16>>),
    now: Timestamp,
) -> Result<Vec<DeviceKey>> {
    let mut keys = Vec::with_capacity(devices.len());
    let mut databases = databases.iter().flat_map(|databases| databases.chunks(DEVICES_INSERTED_AT_ONCE));
    for devices in devices.chunks(DEVICES_INSERTED_AT_ONCE) {
        let found = insert_rows(tx, organization, (devices, databases.next()), now).await?;
        insert_beside(tx, organization, devices, &found).await?;
        timers::begin(tx, &found, now).await?;
        keys.extend(found);
    }
    Ok(keys)
}

async fn insert_rows(
    tx: &impl Connection,
    organization: OrganizationId,
    (devices, databases): (&[&NewDevice], Option<&[u16]>),
    now: Timestamp,
) -> Result<Vec<DeviceKey>> {
    let columns = "id, organization_id, project_id, token, name, version, protocol, protocols, meta, description, \
        street_address, place_latitude, place_longitude, created_by, created_at, updated_at";
    let insert = match databases {
        None => Sql::new(format!("INSERT INTO devices ({columns})")).values(devices.len(), 16),
        // The database of a device is in its number.
        Some(_) => {
            let row = format!("(nextval({SEQUENCE}) + ?{})", ", ?".repeat(16));
            let rows = vec![row; devices.len()].join(", ");
            Sql::new(format!("INSERT INTO devices (key, {columns}) OVERRIDING SYSTEM VALUE VALUES {rows}"))
        }
    };
    let mut insert = insert.text(" RETURNING key, id");
    for (index, new) in devices.iter().enumerate() {
        let place = Location::in_meta(&new.meta);
        if let Some(database) = databases.and_then(|databases| databases.get(index)) {
            insert = insert.bind(DeviceKey::new(*database, 0));
        }
        insert = insert
            .bind(new.id)
            .bind(organization)
            .bind(new.project)
            .bind(new.token)
            .bind(new.name.as_str())
            .bind(new.version.clone())
            .bind(new.protocol.clone())
            .bind(written(&new.protocols)?)
            .bind(new.meta.clone())
            .bind(new.description.clone())
            .bind(new.street_address.as_ref().map(written).transpose()?)
            .bind(place.map(|place| place.latitude))
            .bind(place.map(|place| place.longitude))
            .bind(new.created_by)
            .bind(now)
            .bind(now);
    }
    // A database may answer in any order.
    let rows = all(tx, insert).await?;
    let made = rows.iter().map(|row| Ok((row.id("id")?, row.key("key")?)));
    let made = made.collect::<Result<HashMap<DeviceId, DeviceKey>>>()?;
    devices.iter().map(|new| made.get(&new.id).copied().ok_or(StoreError::Gone("device"))).collect()
}

/// Adds the rows of devices in other tables.
async fn insert_beside(
    tx: &impl Connection,
    organization: OrganizationId,
    devices: &[&NewDevice],
    keys: &[DeviceKey],
) -> Result<()> {
    let mut activity =
        Sql::new("INSERT INTO device_activity (key, id, organization_id, last_active)").values(devices.len(), 4);
    let mut search = Sql::new("INSERT INTO device_search (key, organization_id, search)").values(devices.len(), 3);
    for (new, key) in devices.iter().zip(keys) {
        activity = activity.bind(*key).bind(new.id).bind(organization).bind(0_i64);
        let found_by = search_of(new.id, &new.name, new.description.as_deref(), &new.meta);
        search = search.bind(*key).bind(organization).bind(found_by);
    }
    run(tx, activity).await?;
    run(tx, search).await?;
    let metas: Vec<_> = keys.iter().copied().zip(devices.iter().map(|new| &new.meta)).collect();
    labels::insert(tx, &metas).await
}

/// Writes a device's metadata.
pub(crate) async fn write_meta(tx: &impl Connection, device: &Device, meta: &RawJson, now: Timestamp) -> Result<()> {
    let place = device.location.or_else(|| Location::in_meta(meta));
    let update =
        Sql::new("UPDATE devices SET meta = ?, place_latitude = ?, place_longitude = ?, updated_at = ? WHERE key = ?")
            .bind(meta.clone())
            .bind(place.map(|place| place.latitude))
            .bind(place.map(|place| place.longitude))
            .bind(now)
            .bind(device.key);
    run(tx, update).await?;
    follow_metas(tx, &[(device, meta)]).await
}

/// Updates the search texts and labels that derive from devices' metadata.
pub(crate) async fn follow_metas(tx: &impl Connection, changed: &[(&Device, &RawJson)]) -> Result<()> {
    let found_by = changed.iter().map(|(device, meta)| {
        let search = search_of(device.id, &device.name, device.description.as_deref(), meta);
        serde_json::json!([device.key.0, without_nul(search)])
    });
    let update = Sql::new("UPDATE device_search SET search = t.words FROM ")
        .relation(Dialect::of(tx), &[Column::Number("device"), Column::Text("words")], found_by)
        .text(" AS t WHERE device_search.key = t.device");
    run(tx, update).await?;
    let labels: Vec<_> = changed.iter().map(|(device, meta)| (device.key, &device.meta, *meta)).collect();
    labels::follow(tx, &labels).await
}

/// Locks a device that must exist until the transaction ends, and reads it.
pub(crate) async fn hold_device(tx: &impl Connection, id: DeviceId) -> Result<Device> {
    let hold = Sql::new("SELECT key FROM devices WHERE id = ?").bind(id).text(Dialect::of(tx).hold_for_change());
    one(tx, hold).await?.ok_or(StoreError::Gone("device"))?;
    read(tx, &[id]).await?.pop().ok_or(StoreError::Gone("device"))
}

/// Locks those of the devices that exist until the transaction ends: in the order of their numbers, to avoid deadlocks.
pub(crate) async fn hold_devices(tx: &impl Connection, ids: HashSet<DeviceId>) -> Result<HashSet<DeviceRef>> {
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    let dialect = Dialect::of(tx);
    let query = Sql::new("SELECT id, key FROM devices WHERE id").among(dialect, ids).text(" ORDER BY key");
    let rows = all(tx, query.text(dialect.hold_for_change())).await?;
    rows.iter().map(|row| Ok(DeviceRef { id: row.id("id")?, key: row.key("key")? })).collect()
}

/// Locks a project that must exist against removal.
pub(crate) async fn hold_project(tx: &impl Connection, id: ProjectId) -> Result<()> {
    let query = Sql::new("SELECT id FROM projects WHERE id = ?").bind(id).text(Dialect::of(tx).hold_in_place());
    one(tx, query).await?.map(|_| ()).ok_or(StoreError::Gone("project"))
}

/// Builds the search text of a device: name, description, id and the values of its metadata, at any depth.
pub(crate) fn search_of(id: DeviceId, name: &str, description: Option<&str>, meta: &RawJson) -> String {
    fn leaves<'t>(tree: &'t Json<'_>, found: &mut Vec<&'t str>) {
        match tree {
            Json::Text(text) => found.push(text),
            Json::Number(number) => found.push(number.text()),
            Json::Bool(true) => found.push("true"),
            Json::Bool(false) => found.push("false"),
            Json::Null => {}
            Json::Array(items) => items.iter().for_each(|item| leaves(item, found)),
            Json::Object(members) => members.iter().for_each(|(_, member)| leaves(member, found)),
        }
    }
    let (id, tree) = (id.to_string(), meta.tree());
    let mut fields = vec![name, description.unwrap_or_default(), &*id];
    leaves(&tree, &mut fields);
    searched(fields)
}

/// Sets labels in metadata: an existing one keeps its position, a new one comes last.
pub(crate) fn labelled(meta: &RawJson, labels: &[(String, RawJson)]) -> RawJson {
    with_members(meta, labels.iter().map(|(name, value)| (name.as_str(), value)))
}

pub(crate) fn written(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(StoreError::unavailable)
}

pub(crate) fn read_json<T: DeserializeOwned>(column: &str, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| StoreError::Damaged(format!("column {column}: {error}")))
}

pub(crate) async fn read(connection: &impl Connection, ids: &[DeviceId]) -> Result<Vec<Device>> {
    read_by_id(connection, SELECT_DEVICES, ids, device).await
}

fn device(row: &Row) -> Result<Device> {
    let degrees = (row.float_if("latitude")?, row.float_if("longitude")?);
    let heard = row.time("last_active")?;
    Ok(Device {
        id: row.id("id")?,
        key: row.key("key")?,
        name: row.text("name")?,
        organization: row.id("organization_id")?,
        lineage: row.lineage("lineage")?,
        organization_name: row.text("organization")?,
        project: row.id("project_id")?,
        version: row.text_if("version")?,
        protocol: row.text_if("protocol")?,
        protocols: read_json("protocols", &row.text("protocols")?)?,
        meta: row.json("meta")?,
        description: row.text_if("description")?,
        street_address: row.text_if("street_address")?.map(|text| read_json("street_address", &text)).transpose()?,
        location: degrees.0.zip(degrees.1).map(|(latitude, longitude)| Location { latitude, longitude }),
        status: row.named("status", Status::numbered)?,
        status_before: row.named("status_before", Status::numbered)?,
        created_by: row.id_if("created_by")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
        alarms: AlarmCounts {
            critical: row.count("critical")?,
            warning: row.count("warning")?,
            info: row.count("info")?,
        },
        last_active: (heard > Timestamp::from_millis(0)).then_some(heard),
    })
}
