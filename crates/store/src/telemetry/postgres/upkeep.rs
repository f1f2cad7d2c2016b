//! The port for operators, as this adapter carries it out.

use async_trait::async_trait;
use isobar_model::ids::DeviceKey;
use isobar_model::time::Timestamp;
use isobar_quota::FairQueue;

use super::connections::{self, ReadColumn as _, failed};
use super::{PostgresTelemetry, examine, migrations};
use crate::error::Result;
use crate::telemetry::{Examined, LostDevices, Upkeep};

#[async_trait]
impl Upkeep for PostgresTelemetry {
    async fn examine(&self) -> Result<Examined> {
        self.core.examine().await
    }

    async fn greatest_device(&self) -> Result<DeviceKey> {
        let query = sqlx::query(
            "SELECT greatest((SELECT max(device) FROM telemetry.head) & $1, (SELECT max(device) FROM telemetry.outbox) & $1, \
             (SELECT max(up_to) FROM telemetry.lost_devices), 0)",
        );
        let query = query.bind(DeviceKey(u64::MAX).dense() as i64);
        Ok(DeviceKey(query.fetch_one(&self.core.reads.get()).await.map_err(failed)?.count(0)?))
    }

    async fn devices_lost(&self) -> Result<Vec<LostDevices>> {
        let rows = sqlx::query(examine::LOST_RANGES).fetch_all(&self.core.reads.get()).await.map_err(failed)?;
        rows.iter().map(examine::read_lost).collect()
    }

    async fn note_lost_devices(&self, devices: LostDevices) -> Result<()> {
        let note = sqlx::query(
            "INSERT INTO telemetry.lost_devices AS l (after, up_to) VALUES ($1, $2) \
             ON CONFLICT (after) DO UPDATE SET up_to = greatest(l.up_to, excluded.up_to)",
        );
        let note = note.bind(devices.after.0 as i64).bind(devices.up_to.0 as i64);
        note.execute(&self.core.changes.get()).await.map(drop).map_err(failed)
    }

    async fn forget_lost_devices(&self, found: Vec<LostDevices>) -> Result<()> {
        let after: Vec<i64> = found.iter().map(|devices| devices.after.0 as i64).collect();
        let query = sqlx::query("DELETE FROM telemetry.lost_devices WHERE after = ANY($1)").bind(after);
        query.execute(&self.core.changes.get()).await.map(drop).map_err(failed)
    }

    fn scans(&self) -> &FairQueue {
        &self.parts.scans
    }
}

/// Examines the store in a database that no process may serve, without changing anything.
pub async fn examine_database(address: &str) -> Result<Examined> {
    examine::database(address).await
}

/// Returns the devices that the registry has lost, of a database that no process serves.
pub async fn lost_devices(address: &str) -> Result<Vec<LostDevices>> {
    let pool = connections::to_read(address).await?;
    migrations::must_be_there(&pool).await?;
    let rows = sqlx::query(examine::LOST_RANGES).fetch_all(&pool).await.map_err(failed)?;
    pool.close().await;
    rows.iter().map(examine::read_lost).collect()
}

/// Treats the devices that the registry has lost as deleted, in a database that no process serves.
pub async fn give_up_lost_devices(address: &str) -> Result<()> {
    let pool = connections::to_change(address).await?;
    migrations::must_be_there(&pool).await?;
    sqlx::query("DELETE FROM telemetry.lost_devices").execute(&pool).await.map_err(failed)?;
    pool.close().await;
    Ok(())
}

/// Returns the moment up to which the clock is trusted in a database that no process serves, if one is noted.
pub async fn seen(address: &str) -> Result<Option<Timestamp>> {
    let pool = connections::to_read(address).await?;
    migrations::must_be_there(&pool).await?;
    let row = sqlx::query("SELECT max(millis) FROM telemetry.moment WHERE name = 'seen'").fetch_one(&pool).await;
    let millis: Option<i64> = row.map_err(failed)?.column(0)?;
    pool.close().await;
    Ok(millis.map(Timestamp::from_millis))
}

/// Makes the store in a database that no process serves trust the clock.
pub async fn believe(address: &str, now: Timestamp) -> Result<()> {
    let pool = connections::to_change(address).await?;
    migrations::must_be_there(&pool).await?;
    let note = sqlx::query(
        "INSERT INTO telemetry.moment (name, millis) VALUES ('seen', $1) \
         ON CONFLICT (name) DO UPDATE SET millis = excluded.millis",
    );
    note.bind(now.millis()).execute(&pool).await.map_err(failed)?;
    pool.close().await;
    Ok(())
}
