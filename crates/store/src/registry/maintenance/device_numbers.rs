//! Assigns the numbers by which telemetry addresses devices. No number may be assigned twice, even after the registry
//! was restored: a registry set back to an earlier moment while in use does not know its last numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use isobar_model::ids::DeviceKey;

use super::device_places::{DevicePlaces, ranges};
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::sql::{Connection, Dialect, Sql, all, one, run};

/// SQL expression for PostgreSQL's sequence of these numbers.
pub(crate) const SEQUENCE: &str = "CAST(pg_get_serial_sequence('devices', 'key') AS regclass)";

/// Numbers by which the telemetry store addresses devices.
#[derive(Clone, Debug, Default)]
pub struct DeviceNumbers {
    /// Numbers of the existing devices, in order.
    pub present: Vec<DeviceKey>,
    /// Greatest number ever assigned, without its database, or 0.
    pub last_given: u64,
}

/// Greatest number that this process knows to be assigned, without its database. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct GivenNumbers(Arc<AtomicU64>);

/// Numbers that a transaction draws.
pub(crate) struct DrawnNumbers {
    /// Greatest assigned number known when the transaction began: numbers drawn by it must be greater.
    given: u64,
    drawn: u64,
    places: DevicePlaces,
}

impl GivenNumbers {
    /// Begins to draw numbers, for a transaction that begins afterwards and places devices like this.
    pub(crate) fn begin(&self, places: &DevicePlaces) -> DrawnNumbers {
        DrawnNumbers { given: self.0.load(Ordering::Acquire), drawn: 0, places: places.clone() }
    }

    /// Records the numbers of a committed transaction as assigned.
    pub(crate) fn end(&self, numbers: &DrawnNumbers) {
        self.know(numbers.drawn);
    }

    fn know(&self, given: u64) {
        self.0.fetch_max(given, Ordering::AcqRel);
    }
}

impl DrawnNumbers {
    /// Returns the telemetry databases of the next devices, in their order; `None` if all are in the first one.
    pub(crate) fn places(&self, devices: usize) -> Option<Vec<u16>> {
        self.places.next(devices)
    }

    /// Accepts numbers that were drawn.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if one was assigned before.
    pub(crate) fn take(&mut self, keys: &[DeviceKey]) -> Result<()> {
        if let Some(again) = keys.iter().map(|key| key.dense()).find(|number| *number <= self.given) {
            return Err(StoreError::Damaged(format!(
                "the registry gives out device number {} a second time ({} was given out before): it has gone back to \
                 an earlier state; start isobar anew",
                again, self.given
            )));
        }
        self.drawn = keys.iter().map(|key| key.dense()).fold(self.drawn, u64::max);
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
        let last_given = present.iter().map(|key| key.dense()).fold(drawn, u64::max);
        Ok(DeviceNumbers { present, last_given })
    }

    /// Returns true if a device has a number greater than `after` and at most `up_to`, in any database.
    pub async fn has_device_within(&self, after: DeviceKey, up_to: DeviceKey) -> Result<bool> {
        let query = format!(
            "SELECT 1 AS present FROM {} p WHERE EXISTS \
             (SELECT 1 FROM devices d WHERE d.key > p.low + ? AND d.key <= p.low + ?) LIMIT 1",
            ranges(self.db.dialect)
        );
        let query = Sql::new(query).bind(DeviceKey(after.dense())).bind(DeviceKey(up_to.dense()));
        Ok(one(&self.db.read, query).await?.is_some())
    }

    /// Returns the greatest number that the registry knows to be assigned, without its database, or 0.
    pub async fn device_number_given(&self) -> Result<DeviceKey> {
        let newest = format!(
            "SELECT CAST(coalesce(max((SELECT max(d.key) FROM devices d WHERE d.key >= p.low AND d.key < p.high) - p.low), 0) \
             AS BIGINT) AS newest FROM {} p",
            ranges(self.db.dialect)
        );
        let newest = one(&self.db.read, Sql::new(newest)).await?.map_or(Ok(0), |row| row.count("newest"))?;
        Ok(DeviceKey(newest.max(self.device_number_drawn().await?)))
    }

    /// Raises the sequence, so that every number assigned from now on is greater than this one. The change is durable
    /// when this returns; other processes may assign numbers meanwhile. This process assigns only greater numbers even
    /// if the registry is set back later.
    pub async fn device_numbers_raise(&self, given: DeviceKey) -> Result<()> {
        let given = DeviceKey(given.dense());
        if self.device_number_drawn().await? < given.0 {
            let tx = self.db.begin().await?;
            raise(&tx, given).await?;
            tx.commit().await?;
        }
        self.given.know(given.0);
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
