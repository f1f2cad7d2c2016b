//! Device settings: each change is a record; the one that it replaces is kept and says by what and whom.

use isobar_model::access::{Actor, CanRead, CanWrite};
use isobar_model::ids::{DeviceId, DeviceRef, SettingId};
use isobar_model::json::RawJson;
use isobar_model::page::{ListRequest, Page};
use isobar_model::setting::SettingRecord;
use isobar_model::time::Timestamp;
use sea_orm::ConnectionTrait;

use super::lists::{Listing, in_order};
use super::sql::{Row, Sql, all, one, run};
use super::{Registry, db};
use crate::error::{Result, StoreError};

const LISTING: Listing = Listing {
    from: "settings s",
    id: "s.id",
    search: None,
    sorts: &[("changedAt", "s.changed_at"), ("createdAt", "s.created_at"), ("name", "s.name")],
    order: "-changedAt",
};

const SELECT: &str = "SELECT s.id, s.name, s.value, s.created_at, s.changed_at, s.changed_to, s.changed_by \
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
}

impl Registry {
    /// The records in force of a device, by name. What was never set has none.
    pub async fn settings_of(&self, pass: &CanRead<DeviceRef>) -> Result<Vec<SettingRecord>> {
        let query = Sql::new(SELECT).text("s.device_key = ? AND s.changed_at IS NULL ORDER BY s.name");
        let rows = all(&self.db.read, query.bind(pass.target().key)).await?;
        rows.iter().map(|row| setting(row, pass.target().id)).collect()
    }

    /// Changes a setting: makes a record, and notes in the one before it what replaced it.
    pub async fn setting_write(
        &self,
        pass: &CanWrite<DeviceRef>,
        write: SettingWrite,
        now: Timestamp,
    ) -> Result<SettingRecord> {
        let device = *pass.target();
        let tx = self.db.begin().await?;
        // Changes of one device come one after the other.
        let hold = Sql::new("SELECT key FROM devices WHERE key = ? AND id = ?").bind(device.key).bind(device.id);
        let held = one(&tx, hold.text(self.db.dialect.hold_for_change())).await?;
        held.ok_or(StoreError::Gone("device"))?;
        if let Some(written) = record(&tx, device, write.id).await? {
            return Ok(written);
        }
        let replace = Sql::new(
            "UPDATE settings SET changed_at = ?, changed_to = ?, changed_by = ? \
             WHERE device_key = ? AND name = ? AND changed_at IS NULL",
        )
        .bind(now)
        .bind(write.id)
        .bind(changer(pass.actor()))
        .bind(device.key)
        .bind(write.name.as_str());
        run(&tx, replace).await?;
        let insert = Sql::new("INSERT INTO settings (id, device_key, name, value, created_at) VALUES (?, ?, ?, ?, ?)")
            .bind(write.id)
            .bind(device.key)
            .bind(write.name.as_str())
            .bind(write.value)
            .bind(now);
        run(&tx, insert).await?;
        let written = record(&tx, device, write.id).await?.ok_or(StoreError::Gone("setting"))?;
        db::commit(tx).await?;
        Ok(written)
    }

    /// The replaced records of a device, newest first unless asked otherwise.
    pub async fn setting_history(
        &self,
        pass: &CanRead<DeviceRef>,
        request: &ListRequest,
    ) -> Result<Page<SettingRecord>> {
        let device = *pass.target();
        let tx = self.db.snapshot().await?;
        let condition = Sql::new("s.device_key = ? AND s.changed_at IS NOT NULL").bind(device.key);
        let (ids, total) = LISTING.page::<SettingId>(&tx, condition, request).await?;
        let rows = all(&tx, Sql::new(SELECT).text("s.id").among(self.db.dialect, &ids)).await?;
        let records = rows.iter().map(|row| setting(row, device.id)).collect::<Result<Vec<_>>>()?;
        db::commit(tx).await?;
        Ok(Page::new(in_order(&ids, records, |record| record.id), total, request.page))
    }
}

/// Who is noted as having changed something: Isobar itself is nobody.
fn changer(actor: Actor) -> Option<String> {
    match actor {
        Actor::User(user) => Some(user.to_string()),
        Actor::Device(device) => Some(device.to_string()),
        Actor::System(_) => None,
    }
}

async fn record(connection: &impl ConnectionTrait, device: DeviceRef, id: SettingId) -> Result<Option<SettingRecord>> {
    let query = Sql::new(SELECT).text("s.id = ? AND s.device_key = ?").bind(id).bind(device.key);
    one(connection, query).await?.map(|row| setting(&row, device.id)).transpose()
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
