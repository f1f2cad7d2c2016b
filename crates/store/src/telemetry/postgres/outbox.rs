//! Stores the outbox: work that runs have deferred, by number, until it is done.

use bytes::Bytes;
use isobar_model::ids::DeviceKey;

use super::PgCore;
use super::connections::{ReadColumn as _, failed};
use crate::error::Result;
use crate::telemetry::OutboxEntry;

impl PgCore {
    /// Lists entries after a number.
    pub async fn entries(&self, after: u64, limit: usize) -> Result<Vec<OutboxEntry>> {
        let query = sqlx::query(
            "SELECT number, device, work, parked FROM telemetry.outbox WHERE number > $1 ORDER BY number LIMIT $2",
        );
        let query = query.bind(i64::try_from(after).unwrap_or(i64::MAX)).bind(i64::try_from(limit).unwrap_or(i64::MAX));
        query.fetch_all(&self.reads.get()).await.map_err(failed)?.iter().map(read_entry).collect()
    }

    /// Lists the entries of a device.
    pub async fn entries_of(&self, device: DeviceKey) -> Result<Vec<OutboxEntry>> {
        let query =
            sqlx::query("SELECT number, device, work, parked FROM telemetry.outbox WHERE device = $1 ORDER BY number");
        query
            .bind(self.key(device)?)
            .fetch_all(&self.reads.get())
            .await
            .map_err(failed)?
            .iter()
            .map(read_entry)
            .collect()
    }

    /// Removes entries whose work is done. Those that another process has taken over stay until it has done the work again:
    /// what it writes must not come after the findings of later runs, which wait for these entries.
    pub async fn entries_done(&self, done: &[(DeviceKey, u64)]) -> Result<()> {
        self.committer.must_be_open()?;
        if done.is_empty() {
            return Ok(());
        }
        let numbers: Vec<i64> = done.iter().map(|(_, number)| *number as i64).collect();
        // Locked in the order in which groups write them.
        let query = sqlx::query(
            "DELETE FROM telemetry.outbox WHERE number IN \
             (SELECT number FROM telemetry.outbox WHERE number = ANY($1) AND owner = $2 ORDER BY number FOR UPDATE)",
        );
        let query = query.bind(numbers).bind(i64::from(self.numbers.process()));
        query.execute(&self.changes.get()).await.map(drop).map_err(failed)
    }

    /// Records why an entry cannot be done.
    pub async fn park(&self, number: u64, why: &str) -> Result<()> {
        let query = sqlx::query("UPDATE telemetry.outbox SET parked = $2 WHERE number = $1");
        let query = query.bind(number as i64).bind(why.replace('\0', "\u{fffd}"));
        query.execute(&self.changes.get()).await.map(drop).map_err(failed)
    }
}

/// Reads an entry.
pub fn read_entry(row: &sqlx::postgres::PgRow) -> Result<OutboxEntry> {
    Ok(OutboxEntry {
        number: row.count(0)?,
        device: DeviceKey(row.count(1)?),
        work: Bytes::copy_from_slice(row.column(2)?),
        parked: row.column::<Option<&str>>(3)?.map(Into::into),
    })
}
