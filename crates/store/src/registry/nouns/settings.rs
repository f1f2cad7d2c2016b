//! Device settings: each change is a record; the one that it replaces stays and says by what and whom.

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

/// A change of a setting.
#[derive(Clone, Debug)]
pub struct SettingWrite {
    /// The identifier of the record that it makes. The same one again changes nothing.
    pub id: SettingId,
    /// The setting's name.
    pub name: String,
    /// The value; none: back to the default.
    pub value: Option<RawJson>,
    /// When it was changed.
    pub at: Timestamp,
}

/// A record to be made, and what it is replaced by in the same breath.
struct NewRecord<'a> {
    device: DeviceRef,
    /// As it is stored.
    name: String,
    write: &'a SettingWrite,
    by: Option<String>,
    next: Option<usize>,
}

impl Registry {
    /// The records in force of a device, by name. What was never set has none.
    pub async fn settings_of(&self, permit: &CanRead<DeviceRef>) -> Result<Vec<SettingRecord>> {
        let query = Sql::new(SELECT_SETTINGS).text("s.device_key = ? AND s.changed_at IS NULL ORDER BY s.name");
        let rows = all(&self.db.read, query.bind(permit.target().key)).await?;
        rows.iter().map(|row| setting(row, permit.target().id)).collect()
    }

    /// The records in force of many devices, in no order.
    pub async fn settings_of_many(&self, permits: &[CanRead<DeviceRef>]) -> Result<Vec<SettingRecord>> {
        let query = Sql::new(
            "SELECT d.id AS device, s.id, s.name, s.value, s.created_at, s.changed_at, s.changed_to, s.changed_by \
             FROM devices d JOIN settings s ON s.device_key = d.key AND s.changed_at IS NULL WHERE d.id",
        );
        let rows =
            all(&self.db.read, query.among(self.db.dialect, permits.iter().map(|permit| permit.target().id))).await?;
        rows.iter().map(|row| setting(row, row.id("device")?)).collect()
    }

    /// The records of a device that were replaced, and not before this moment; newest first unless asked otherwise.
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

    /// Removes records that were replaced before this moment, those that were replaced first before others, and at most
    /// `most` of them. How many there were. Those in force stay, however old they are.
    pub async fn setting_history_sweep(&self, before: Timestamp, most: u32) -> Result<u64> {
        let delete = Sql::new(
            "DELETE FROM settings WHERE id IN \
             (SELECT id FROM settings WHERE changed_at < ? ORDER BY changed_at LIMIT ?)",
        );
        self.db.write.run(delete.bind(before).bind(i64::from(most))).await
    }
}

/// Changes settings of devices that are held, in this order: each makes a record, and notes in the one before it what
/// replaced it. Those of other devices are left out.
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

/// Who is noted as having changed something: Isobar itself is nobody.
fn changer(actor: Actor) -> Option<String> {
    match actor {
        Actor::User(user) => Some(user.to_string()),
        Actor::Device(device) => Some(device.to_string()),
        Actor::System(_) => None,
    }
}

/// Those of the records that are there already.
async fn written(tx: &impl Connection, changes: &[(CanWrite<DeviceRef>, SettingWrite)]) -> Result<HashSet<SettingId>> {
    let ids = changes.iter().map(|(_, write)| write.id);
    let rows = all(tx, Sql::new("SELECT id FROM settings WHERE id").among(Dialect::of(tx), ids)).await?;
    rows.iter().map(|row| row.id("id")).collect()
}

/// Finds which of the records are replaced by others of them. The first of each setting, which replace what was there.
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

/// Notes in the records in force what replaces them.
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
