//! Sums up the bytes that devices store, by organization, and records how full organizations are.
//!
//! The telemetry store has the current figure of each device; this module stores the figure of the last count. A figure
//! is always written as a total, never as a difference, so a missed update is corrected by the next count.

use std::collections::BTreeMap;

use isobar_model::access::Lineage;
use isobar_model::ids::{DeviceKey, DeviceRef, OrganizationId};
use isobar_model::limits::Fill;
use isobar_model::time::Timestamp;

use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::{Connection, Row, Sql, all, one, run};

/// Resource that a limit of an organization counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Used {
    /// Number of devices.
    Devices,
    /// Megabytes of stored data.
    Data,
}

impl Used {
    /// Returns the name in the registry.
    pub const fn name(self) -> &'static str {
        match self {
            Used::Devices => "devices",
            Used::Data => "data",
        }
    }
}

/// Organization with a limit, and the usage of its subtree.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitedOrganization {
    /// Identifier.
    pub id: OrganizationId,
    /// Name.
    pub name: String,
    /// Number of devices in its subtree.
    pub device_count: u64,
    /// Device limit; 0: unlimited.
    pub device_count_limit: f64,
    /// Bytes stored by its subtree.
    pub bytes_stored: u64,
    /// Limit of stored data in megabytes; 0: unlimited.
    pub data_usage_mb_limit: f64,
    /// Recorded fill level of devices.
    pub devices: Alert,
    /// Recorded fill level of data.
    pub data: Alert,
}

/// Recorded fill level of an organization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Fill level.
    pub fill: Fill,
    /// Moment at which it was reached, which identifies the crossing.
    pub since: Timestamp,
    /// True if the administrators were notified.
    pub told: bool,
}

impl Registry {
    /// Records the bytes that devices store. Skips devices that were removed.
    pub async fn usage_write(&self, counted: &[(DeviceKey, u64)]) -> Result<()> {
        if counted.is_empty() {
            return Ok(());
        }
        let dialect = self.db.dialect;
        let pairs =
            |sql: &str| Sql::new(sql).amounts(dialect, counted.iter().map(|(key, bytes)| (key.0.into(), *bytes)));
        let tx = self.db.begin().await?;
        // The lock keeps devices from moving to another organization in between.
        let held = pairs("SELECT d.key, o.lineage, t.amount FROM ")
            .text(
                " AS t JOIN devices d ON d.key = CAST(t.item AS BIGINT) \
                 JOIN organizations o ON o.id = d.organization_id ORDER BY d.key",
            )
            .text(dialect.either("", " FOR NO KEY UPDATE OF d"));
        let devices = all(&tx, held).await?;
        let known =
            pairs("SELECT u.key, u.bytes FROM ").text(" AS t JOIN device_usage u ON u.key = CAST(t.item AS BIGINT)");
        let mut before = BTreeMap::new();
        for row in all(&tx, known).await? {
            before.insert(row.key("key")?, row.number("bytes")?);
        }
        // Go by lineage, the order in which organizations are locked.
        let mut more: BTreeMap<String, i64> = BTreeMap::new();
        let mut present = Vec::with_capacity(devices.len());
        for row in &devices {
            let (key, bytes) = (row.key("key")?, row.number("amount")?);
            *more.entry(row.text("lineage")?).or_default() += bytes - before.get(&key).copied().unwrap_or(0);
            present.push((key, bytes));
        }
        let upsert = Sql::new("INSERT INTO device_usage (key, bytes) SELECT CAST(t.item AS BIGINT), t.amount FROM ")
            .amounts(dialect, present.iter().map(|(key, bytes)| (key.0.into(), bytes.unsigned_abs())))
            .text(" AS t WHERE 1 = 1 ON CONFLICT (key) DO UPDATE SET bytes = excluded.bytes");
        run(&tx, upsert).await?;
        for (lineage, more) in more.into_iter().filter(|(_, more)| *more != 0) {
            let own = Lineage::parse(&lineage).ok_or_else(|| StoreError::Damaged(format!("lineage {lineage}")))?.own();
            add(&tx, own, more).await?;
        }
        tx.commit().await
    }

    /// Lists at most `limit` devices with a number above `after`, by number.
    pub async fn devices_after(&self, after: DeviceKey, limit: u32) -> Result<Vec<DeviceRef>> {
        let query = Sql::new("SELECT key, id FROM devices WHERE key > ? ORDER BY key LIMIT ?")
            .bind(after)
            .bind(i64::from(limit));
        let rows = all(&self.db.read, query).await?;
        rows.iter().map(|row| Ok(DeviceRef { id: row.id("id")?, key: row.key("key")? })).collect()
    }

    /// Records that all figures are right, because nothing is stored any more.
    pub async fn usage_counted(&self) -> Result<()> {
        self.db.write.run(Sql::new("INSERT INTO usage_counted (counted) VALUES (1) ON CONFLICT DO NOTHING")).await?;
        Ok(())
    }

    /// Returns true if all figures are right; from here on they may not be.
    pub async fn usage_begin(&self) -> Result<bool> {
        Ok(self.db.write.run(Sql::new("DELETE FROM usage_counted")).await? > 0)
    }

    /// Lists all organizations that have a limit.
    pub async fn organizations_limited(&self) -> Result<Vec<LimitedOrganization>> {
        let sum = |column: &str| {
            format!(
                "(SELECT CAST(coalesce(sum(s.{column}), 0) AS BIGINT) FROM organizations s \
                 WHERE s.lineage >= o.lineage AND s.lineage < o.lineage || '~')"
            )
        };
        let query = Sql::new(format!(
            "SELECT o.id, o.name, o.device_count_limit, o.data_usage_mb_limit, {} AS devices, {} AS bytes, \
             coalesce(a.fill, 0) AS devices_fill, coalesce(a.since, 0) AS devices_since, \
             coalesce(a.told, 1) AS devices_told, coalesce(b.fill, 0) AS data_fill, coalesce(b.since, 0) AS data_since, \
             coalesce(b.told, 1) AS data_told FROM organizations o \
             LEFT JOIN organization_alerts a ON a.organization_id = o.id AND a.used = ? \
             LEFT JOIN organization_alerts b ON b.organization_id = o.id AND b.used = ? \
             WHERE o.device_count_limit > 0 OR o.data_usage_mb_limit > 0",
            sum("device_count"),
            sum("bytes_stored"),
        ));
        let query = query.bind(Used::Devices.name()).bind(Used::Data.name());
        all(&self.db.read, query).await?.iter().map(limited).collect()
    }

    /// Records the fill level of an organization. Returns false if it is no more as it was `before`: another process has
    /// recorded one, or the organization was deleted.
    pub async fn organization_alert_set(
        &self,
        id: OrganizationId,
        used: Used,
        before: Alert,
        alert: Alert,
    ) -> Result<bool> {
        let upsert = Sql::new(
            "INSERT INTO organization_alerts (organization_id, used, fill, since, told) VALUES (?, ?, ?, ?, ?) \
             ON CONFLICT (organization_id, used) DO UPDATE SET fill = excluded.fill, since = excluded.since, \
             told = excluded.told WHERE organization_alerts.fill = ? AND organization_alerts.since = ?",
        )
        .bind(id)
        .bind(used.name())
        .bind(alert.fill.number())
        .bind(alert.since)
        .bind(alert.told)
        .bind(before.fill.number())
        .bind(before.since);
        match self.db.write.run(upsert).await {
            Ok(changed) => Ok(changed > 0),
            // The organization was deleted in the meantime: there is no user to notify.
            Err(StoreError::Gone(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn limited(row: &Row) -> Result<LimitedOrganization> {
    let alert = |used: &str| {
        Ok::<_, StoreError>(Alert {
            fill: row.named(&format!("{used}_fill"), Fill::numbered)?,
            since: row.time(&format!("{used}_since"))?,
            told: row.truth(&format!("{used}_told"))?,
        })
    };
    Ok(LimitedOrganization {
        id: row.id("id")?,
        name: row.text("name")?,
        device_count: row.count("devices")?,
        device_count_limit: row.float("device_count_limit")?,
        bytes_stored: row.count("bytes")?,
        data_usage_mb_limit: row.float("data_usage_mb_limit")?,
        devices: alert(Used::Devices.name())?,
        data: alert(Used::Data.name())?,
    })
}

/// Moves the stored bytes of a locked device from one organization to another; the device's own figure stays.
pub(crate) async fn hand_over(
    tx: &impl Connection,
    device: DeviceKey,
    from: OrganizationId,
    to: Option<OrganizationId>,
) -> Result<()> {
    let known = one(tx, Sql::new("SELECT bytes FROM device_usage WHERE key = ?").bind(device)).await?;
    let bytes = known.map_or(Ok(0), |row| row.number("bytes"))?;
    if bytes == 0 {
        return Ok(());
    }
    add(tx, from, -bytes).await?;
    match to {
        Some(to) => add(tx, to, bytes).await,
        None => Ok(()),
    }
}

async fn add(tx: &impl Connection, id: OrganizationId, more: i64) -> Result<()> {
    let update = Sql::new("UPDATE organizations SET bytes_stored = bytes_stored + ? WHERE id = ?").bind(more).bind(id);
    run(tx, update).await.map(|_| ())
}
