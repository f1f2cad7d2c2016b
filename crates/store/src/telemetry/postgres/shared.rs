//! Standings of devices, work that other processes have left, and the list of processes that have the store open.

use std::time::Duration;

use async_trait::async_trait;
use isobar_model::ids::DeviceKey;
use isobar_model::time::Clock;

use super::connections::{ReadColumn as _, failed};
use super::outbox::read_entry;
use super::{PgCore, PostgresTelemetry};
use crate::error::Result;
use crate::telemetry::{OutboxEntry, SharedTelemetry, Standing};

/// Pause between two renewals of the row of this process.
const NODE_RENEWED: Duration = Duration::from_secs(1);
/// Standings of devices, and their oldest pending work, in the order in which they are asked for.
const STANDINGS: &str = "SELECT coalesce(h.revision, 0), \
        (SELECT min(o.revision) FROM telemetry.outbox o WHERE o.device = g.device AND o.parked IS NULL) \
    FROM unnest($1::bigint[]) WITH ORDINALITY AS g(device, place) LEFT JOIN telemetry.head h USING (device) ORDER BY place";
/// The next numbers in the queues of devices, in the order in which they are asked for.
const QUEUE_ENDS: &str = "SELECT coalesce(h.queued, 0) FROM unnest($1::bigint[]) WITH ORDINALITY AS g(device, place) \
    LEFT JOIN telemetry.head h USING (device) ORDER BY place";
/// Work of processes that were not seen for five seconds before this one ($1) was last seen, and then work of this process
/// that came fifteen seconds ago. Its parked work is known to it.
const LEFT: &str = "WITH alive AS (SELECT n.process FROM telemetry.node n, telemetry.node own \
        WHERE own.process = $1 AND n.seen > own.seen - interval '5 seconds') \
    SELECT device FROM telemetry.outbox \
    WHERE (owner <> $1 AND EXISTS (SELECT FROM alive) AND owner NOT IN (SELECT process FROM alive)) \
        OR (owner = $1 AND parked IS NULL AND came < clock_timestamp() - interval '15 seconds') \
    GROUP BY device ORDER BY bool_and(owner = $1) LIMIT $2";
/// Takes the entries of a device, which is at this revision ($3).
const TAKE: &str = "UPDATE telemetry.outbox SET owner = $2, came = clock_timestamp() WHERE number IN \
    (SELECT number FROM telemetry.outbox WHERE device = $1 \
        AND $3 = coalesce((SELECT h.revision FROM telemetry.head h WHERE h.device = $1), 0) \
    ORDER BY number FOR UPDATE) \
    RETURNING number, device, work, parked";

#[async_trait]
impl SharedTelemetry for PostgresTelemetry {
    async fn standings(&self, devices: &[DeviceKey]) -> Result<Vec<Option<Standing>>> {
        let devices = self.keys(devices)?;
        let rows = sqlx::query(STANDINGS).bind(devices).fetch_all(&self.core.reads.get()).await.map_err(failed)?;
        let standing = |row: &sqlx::postgres::PgRow| {
            let pending = row.column::<Option<i64>>(1)?.map(i64::unsigned_abs);
            Ok(Some(Standing { revision: row.count(0)?, pending }))
        };
        rows.iter().map(standing).collect()
    }

    async fn queue_ends(&self, devices: &[DeviceKey]) -> Result<Vec<Option<u64>>> {
        let devices = self.keys(devices)?;
        let rows = sqlx::query(QUEUE_ENDS).bind(devices).fetch_all(&self.core.reads.get()).await.map_err(failed)?;
        rows.iter().map(|row| row.count(0).map(Some)).collect()
    }

    async fn left_work(&self, limit: usize) -> Result<Vec<DeviceKey>> {
        let query = sqlx::query(LEFT).bind(i64::from(self.core.numbers.process()));
        let query = query.bind(i64::try_from(limit).unwrap_or(i64::MAX));
        let rows = query.fetch_all(&self.core.reads.get()).await.map_err(failed)?;
        rows.iter().map(|row| row.count(0).map(DeviceKey)).collect()
    }

    async fn outbox_of(&self, device: DeviceKey) -> Result<Vec<OutboxEntry>> {
        self.core.entries_of(device).await
    }

    async fn outbox_take(&self, device: DeviceKey, revision: u64) -> Result<Vec<OutboxEntry>> {
        let query = sqlx::query(TAKE).bind(self.key(device)?).bind(i64::from(self.core.numbers.process()));
        let rows = query.bind(revision as i64).fetch_all(&self.core.changes.get()).await.map_err(failed)?;
        let mut entries = rows.iter().map(read_entry).collect::<Result<Vec<_>>>()?;
        entries.sort_unstable_by_key(|entry| entry.number);
        Ok(entries)
    }
}

impl PostgresTelemetry {
    fn keys(&self, devices: &[DeviceKey]) -> Result<Vec<i64>> {
        devices.iter().map(|device| self.key(*device)).collect()
    }
}

impl PgCore {
    /// Renews the row of this process from time to time, until it is cancelled.
    pub async fn renew_node(&self) {
        loop {
            if let Err(error) = self.live.away().ask(self.renew_node_once()).await
                && !self.live.away().is_away()
            {
                tracing::warn!(%error, "cannot tell other processes that this one serves, will retry");
            }
            Clock::System.sleep(NODE_RENEWED).await;
        }
    }

    /// Notes that this process serves; forgets processes that ended an hour ago.
    pub async fn renew_node_once(&self) -> Result<()> {
        let renew = sqlx::query(
            "WITH ended AS (DELETE FROM telemetry.node WHERE seen < clock_timestamp() - interval '1 hour') \
             INSERT INTO telemetry.node AS n (process) VALUES ($1) ON CONFLICT (process) DO UPDATE SET seen = clock_timestamp()",
        );
        renew.bind(i64::from(self.numbers.process())).execute(&self.changes.get()).await.map(drop).map_err(failed)
    }

    /// Forgets all other processes: this one serves alone.
    pub async fn outlive_nodes(&self) -> Result<()> {
        let others = sqlx::query("DELETE FROM telemetry.node WHERE process <> $1");
        others.bind(i64::from(self.numbers.process())).execute(&self.changes.get()).await.map(drop).map_err(failed)
    }

    /// Notes that this process serves no more.
    pub async fn leave_nodes(&self) -> Result<()> {
        let leave = sqlx::query("DELETE FROM telemetry.node WHERE process = $1");
        leave.bind(i64::from(self.numbers.process())).execute(&self.changes.get()).await.map(drop).map_err(failed)
    }
}
