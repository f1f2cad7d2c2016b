//! Assigns the numbers by which telemetry addresses devices. No number may be assigned twice, even after the registry
//! was restored: a registry set back to an earlier moment while in use does not know its last numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use isobar_model::ids::DeviceKey;

use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::{Connection, Dialect, Sql, all, one, run};

/// SQL expression for PostgreSQL's sequence of these numbers.
const SEQUENCE: &str = "CAST(pg_get_serial_sequence('devices', 'key') AS regclass)";

/// Numbers by which the telemetry store addresses devices.
#[derive(Clone, Debug, Default)]
pub struct DeviceNumbers {
    /// Numbers of the existing devices, in order.
    pub present: Vec<DeviceKey>,
    /// Greatest number ever assigned, or 0.
    pub last_given: u64,
}

/// Greatest number that this process knows to be assigned. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct GivenNumbers(Arc<AtomicU64>);

/// Numbers that a transaction draws.
pub(crate) struct DrawnNumbers {
    /// Greatest assigned number known when the transaction began: numbers drawn by it must be greater.
    given: u64,
    drawn: u64,
}

impl GivenNumbers {
    /// Begins to draw numbers, for a transaction that begins afterwards.
    pub(crate) fn begin(&self) -> DrawnNumbers {
        DrawnNumbers { given: self.0.load(Ordering::Acquire), drawn: 0 }
    }

    /// Records the numbers of a committed transaction as assigned.
    pub(crate) fn end(&self, numbers: &DrawnNumbers) {
        self.0.fetch_max(numbers.drawn, Ordering::AcqRel);
    }
}

impl DrawnNumbers {
    /// Accepts numbers that were drawn.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if one was assigned before.
    pub(crate) fn take(&mut self, keys: &[DeviceKey]) -> Result<()> {
        if let Some(again) = keys.iter().find(|key| key.0 <= self.given) {
            return Err(StoreError::Damaged(format!(
                "the registry gives out device number {} a second time ({} was given out before): it has gone back to \
                 an earlier state; start isobar anew",
                again.0, self.given
            )));
        }
        self.drawn = keys.iter().map(|key| key.0).fold(self.drawn, u64::max);
        Ok(())
    }
}

impl Registry {
    /// Reads the numbers of all devices.
    pub async fn device_numbers(&self) -> Result<DeviceNumbers> {
        let snapshot = self.db.snapshot().await?;
        let rows = all(&snapshot, Sql::new("SELECT key FROM devices ORDER BY key")).await?;
        let present: Vec<DeviceKey> = rows.iter().map(|row| row.key("key")).collect::<Result<_>>()?;
        let sequence = one(&snapshot, Sql::new(drawn_last(self.db.dialect))).await?;
        let drawn = sequence.map_or(Ok(0), |row| row.count("drawn"))?;
        let last_given = present.last().map_or(drawn, |key| key.0.max(drawn));
        Ok(DeviceNumbers { present, last_given })
    }

    /// Returns true if a device has a number greater than `after` and at most `up_to`.
    pub async fn has_device_within(&self, after: DeviceKey, up_to: DeviceKey) -> Result<bool> {
        let query = Sql::new("SELECT 1 AS present FROM devices WHERE key > ? AND key <= ? LIMIT 1");
        Ok(one(&self.db.read, query.bind(after).bind(up_to)).await?.is_some())
    }

    /// Returns the greatest number that the registry knows to be assigned, or 0.
    pub async fn device_number_given(&self) -> Result<DeviceKey> {
        let newest = one(&self.db.read, Sql::new("SELECT coalesce(max(key), 0) AS newest FROM devices")).await?;
        let newest = newest.map_or(Ok(0), |row| row.count("newest"))?;
        Ok(DeviceKey(newest.max(self.device_number_drawn().await?)))
    }

    /// Raises the sequence, so that every number assigned from now on is greater than this one. The change is durable
    /// when this returns; other processes may assign numbers meanwhile. This process assigns only greater numbers even
    /// if the registry is set back later.
    pub async fn device_numbers_raise(&self, given: DeviceKey) -> Result<()> {
        if self.device_number_drawn().await? < given.0 {
            let tx = self.db.begin().await?;
            raise(&tx, given).await?;
            tx.commit().await?;
        }
        self.given.end(&DrawnNumbers { given: 0, drawn: given.0 });
        Ok(())
    }

    async fn device_number_drawn(&self) -> Result<u64> {
        let row = one(&self.db.read, Sql::new(drawn_last(self.db.dialect))).await?;
        row.map_or(Ok(0), |row| row.count("drawn"))
    }
}

/// Builds the query for the last number drawn.
fn drawn_last(dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => {
            "SELECT coalesce(max(seq), 0) AS drawn FROM sqlite_sequence WHERE name = 'devices'".to_owned()
        }
        Dialect::Postgres => {
            format!("SELECT CAST(coalesce(pg_sequence_last_value({SEQUENCE}), 0) AS BIGINT) AS drawn")
        }
    }
}

/// Raises the sequence that numbers are drawn from; never lowers it.
async fn raise(tx: &impl Connection, given: DeviceKey) -> Result<()> {
    if Dialect::of(tx) == Dialect::Postgres {
        // No process may draw a number meanwhile: setval would undo it.
        run(tx, Sql::new("LOCK TABLE devices IN SHARE ROW EXCLUSIVE MODE")).await?;
        let raise = format!(
            "SELECT setval({SEQUENCE}, CAST(? AS BIGINT)) AS drawn WHERE coalesce(pg_sequence_last_value({SEQUENCE}), 0) < ?"
        );
        return one(tx, Sql::new(raise).bind(given).bind(given)).await.map(|_| ());
    }
    let raised =
        run(tx, Sql::new("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'devices'").bind(given)).await?;
    if raised == 0 {
        // The row of the table appears with the first device.
        run(tx, Sql::new("INSERT INTO sqlite_sequence (name, seq) VALUES ('devices', ?)").bind(given)).await?;
    }
    Ok(())
}
