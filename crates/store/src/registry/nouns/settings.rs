//! Stores device settings: each change is a record; the record that it replaces stays, with its successor and the user
//! who changed it.

use std::collections::{HashMap, HashSet};

use isobar_model::access::{Actor, CanRead, CanWrite};
use isobar_model::ids::{DeviceId, DeviceRef, SettingId};
use isobar_model::json::RawJson;
use isobar_model::page::{ListRequest, Page};
use isobar_model::setting::SettingRecord;
use isobar_model::time::Timestamp;
use serde_json::json;

use crate::error::Result;
use crate::registry::Registry;
use crate::registry::lists::{SETTING_HISTORY, SETTING_VALUES, in_order, read_by_id};
use crate::registry::sql::{Column, Connection, Dialect, Row, Sql, all, run, without_nul};

const SELECT_SETTINGS: &str = "SELECT s.id, s.name, s.value, s.created_at, s.changed_at, s.changed_to, s.changed_by \
    FROM settings s WHERE ";

/// Change of a setting.
#[derive(Clone, Debug)]
pub struct SettingWrite {
    /// Identifier of the new record. Writing the same one again changes nothing.
    pub id: SettingId,
    /// Name of the setting.
    pub name: String,
    /// Value, or `None`: back to the default.
    pub value: Option<RawJson>,
    /// Moment of the change.
    pub at: Timestamp,
}

/// New record, with the record of the same batch that replaces it.
struct NewRecord<'a> {
    device: DeviceRef,
    /// Name as it is stored.
    name: String,
    write: &'a SettingWrite,
    by: Option<String>,
    next: Option<usize>,
}

impl Registry {
    /// Lists the current records of a device, by name. Settings that were never set have none.
    pub async fn settings_of(&self, permit: &CanRead<DeviceRef>) -> Result<Vec<SettingRecord>> {
        let query = Sql::new(SELECT_SETTINGS).text("s.device_key = ? AND s.changed_at IS NULL ORDER BY s.name");
        let rows = all(&self.db.read, query.bind(permit.target().key)).await?;
        rows.iter().map(|row| setting(row, permit.target().id)).collect()
    }

    /// Lists the current records of many devices, unordered.
    pub async fn settings_of_many(&self, permits: &[CanRead<DeviceRef>]) -> Result<Vec<SettingRecord>> {
        let query = Sql::new(
            "SELECT d.id AS device, s.id, s.name, s.value, s.created_at, s.changed_at, s.changed_to, s.changed_by \
             FROM devices d JOIN settings s ON s.device_key = d.key AND s.changed_at IS NULL WHERE d.id",
        );
        let rows =
            all(&self.db.read, query.among(self.db.dialect, permits.iter().map(|permit| permit.target().id))).await?;
        rows.iter().map(|row| setting(row, row.id("device")?)).collect()
    }

    /// Lists the records of a device that were replaced since this moment; newest first unless requested otherwise.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`](crate::error::StoreError::TooMuch) where their values take more than
    /// [`crate::telemetry::PAGE_BYTES_MAX`].
    pub async fn setting_history(
        &self,
        permit: &CanRead<DeviceRef>,
        not_before: Timestamp,
        request: &ListRequest,
    ) -> Result<Page<SettingRecord>> {
        let device = *permit.target();
        let tx = self.db.snapshot().await?;
        let condition = Sql::new("s.device_key = ? AND s.changed_at >= ?").bind(device.key).bind(not_before);
        let (ids, total) = SETTING_HISTORY.page::<SettingId>(&tx, condition, request).await?;
        SETTING_VALUES.are_a_page(&tx, &ids).await?;
        let records = read_by_id(&tx, &format!("{SELECT_SETTINGS}s.id"), &ids, |row| setting(row, device.id)).await?;
        Ok(Page::new(in_order(&ids, records, |record| record.id), total, request.page))
    }

    /// Removes at most `most` records that were replaced before this moment, earliest first. Returns how many were
    /// removed. Current records stay, at any age.
    pub async fn setting_history_sweep(&self, before: Timestamp, most: u32) -> Result<u64> {
        let delete = Sql::new(
            "DELETE FROM settings WHERE id IN \
             (SELECT id FROM settings WHERE changed_at < ? ORDER BY changed_at LIMIT ?)",
        );
        self.db.write.run(delete.bind(before).bind(i64::from(most))).await
    }
}

/// Changes settings of locked devices, in this order: each change makes a record, and links the previous one to it.
/// Skips those of other devices.
pub(crate) async fn write(
    tx: &impl Connection,
    devices: &HashSet<DeviceRef>,
    changes: &[(CanWrite<DeviceRef>, SettingWrite)],
) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let written = written(tx, changes).await?;
    let new =
        changes.iter().filter(|(permit, write)| devices.contains(permit.target()) && !written.contains(&write.id));
    let mut records: Vec<_> = new
        .map(|(permit, write)| NewRecord {
            device: *permit.target(),
            name: without_nul(write.name.clone()),
            write,
            by: changer(permit.actor()),
            next: None,
        })
        .collect();
    let first = chain(&mut records);
    replace(tx, &records, &first).await?;
    insert(tx, &records).await
}

/// Returns the author of a change as it is stored; the system has none.
fn changer(actor: Actor) -> Option<String> {
    match actor {
        Actor::User(user) => Some(user.to_string()),
        Actor::Device(device) => Some(device.to_string()),
        Actor::System(_) => None,
    }
}

/// Returns those of the records that exist already.
async fn written(tx: &impl Connection, changes: &[(CanWrite<DeviceRef>, SettingWrite)]) -> Result<HashSet<SettingId>> {
    let ids = changes.iter().map(|(_, write)| write.id);
    let rows = all(tx, Sql::new("SELECT id FROM settings WHERE id").among(Dialect::of(tx), ids)).await?;
    rows.iter().map(|row| row.id("id")).collect()
}

/// Links records of a batch that replace each other. Returns the first of each setting, which replace stored ones.
fn chain(records: &mut [NewRecord<'_>]) -> Vec<usize> {
    let (mut first, mut newest) = (Vec::new(), HashMap::new());
    for index in 0..records.len() {
        let of = (records[index].device, records[index].name.clone());
        match newest.insert(of, index) {
            Some(before) => records[before].next = Some(index),
            None => first.push(index),
        }
    }
    first
}

/// Records in the current records their successors.
async fn replace(tx: &impl Connection, records: &[NewRecord<'_>], first: &[usize]) -> Result<()> {
    let columns = [
        Column::Number("device"),
        Column::Text("setting"),
        Column::Number("moment"),
        Column::Text("successor"),
        Column::Text("author"),
    ];
    let rows = first.iter().filter_map(|index| records.get(*index)).map(|record| {
        let NewRecord { device, name, write, by, .. } = record;
        json!([device.key.0, name, write.at.millis(), write.id, by])
    });
    let update = Sql::new(
        "UPDATE settings SET changed_at = t.moment, changed_to = t.successor, changed_by = t.author FROM ",
    )
    .relation(Dialect::of(tx), &columns, rows)
    .text(" AS t WHERE settings.device_key = t.device AND settings.name = t.setting AND settings.changed_at IS NULL");
    run(tx, update).await.map(|_| ())
}

async fn insert(tx: &impl Connection, records: &[NewRecord<'_>]) -> Result<()> {
    let columns = [
        Column::Text("id"),
        Column::Number("device_key"),
        Column::Text("name"),
        Column::Text("value"),
        Column::Number("created_at"),
        Column::Number("changed_at"),
        Column::Text("changed_to"),
        Column::Text("changed_by"),
    ];
    let rows = records.iter().map(|record| {
        let NewRecord { device, name, write, next, .. } = record;
        let next = next.and_then(|index| records.get(index));
        json!([
            write.id,
            device.key.0,
            name,
            write.value.as_ref().map(RawJson::text),
            write.at.millis(),
            next.map(|next| next.write.at.millis()),
            next.map(|next| next.write.id),
            next.and_then(|next| next.by.as_deref()),
        ])
    });
    let insert = Sql::new(
        "INSERT INTO settings (id, device_key, name, value, created_at, changed_at, changed_to, changed_by) \
         SELECT id, device_key, name, value, created_at, changed_at, changed_to, changed_by FROM ",
    );
    run(tx, insert.relation(Dialect::of(tx), &columns, rows).text(" AS t")).await.map(|_| ())
}

fn setting(row: &Row, device: DeviceId) -> Result<SettingRecord> {
    Ok(SettingRecord {
        id: row.id("id")?,
        device,
        name: row.text("name")?,
        value: row.json_if("value")?,
        created_at: row.time("created_at")?,
        changed_at: row.time_if("changed_at")?,
        changed_to: row.id_if("changed_to")?,
        changed_by: row.text_if("changed_by")?,
    })
}
