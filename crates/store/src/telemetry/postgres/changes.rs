//! Changes of devices outside of their runs: series are removed, values and history dropped, devices forgotten.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use isobar_model::access::CanWrite;
use isobar_model::ids::DeviceRef;
use isobar_model::retention::Kept;
use isobar_model::time::Timestamp;

use super::connections::{ReadColumn as _, failed};
use super::{PgCore, values};
use crate::error::{Result, StoreError};
use crate::postgres::begun;
use crate::telemetry::TURNS_MAX;
use crate::telemetry::clock_trust::believed;
use crate::telemetry::dropping::{is_worth_dropping, share_of_bytes};
use crate::telemetry::time_order::{TimeOrder, moment};

/// Rows that one statement deletes.
const DELETED_AT_ONCE: i64 = 10_000;

impl PgCore {
    /// Removes a series, or all; returns false if there is none.
    pub async fn delete_series(&self, permit: &CanWrite<DeviceRef>, element: Option<&str>) -> Result<bool> {
        for _ in 0..TURNS_MAX {
            let mut turn = self.turn(permit).await?;
            let is_there = turn.device().series.iter().any(|it| element.is_none_or(|element| *it.element == *element));
            if !is_there {
                // Another process may have made it: this conflicts if it has changed anything.
                match turn.change(|_, _| {})?.durable.wait().await {
                    Err(StoreError::Conflict) => continue,
                    outcome => return outcome.map(|()| false),
                }
            }
            let mut committed = turn.change(|memory, writes| memory.remove_series(element, writes))?;
            drop(turn);
            match committed.durable.wait().await {
                Err(StoreError::Conflict) => {}
                outcome => {
                    self.garbage_came.notify_one();
                    return outcome.map(|()| true);
                }
            }
        }
        Err(StoreError::Busy)
    }

    /// Drops values past retention; returns true if there were any worth dropping.
    pub async fn drop_past(
        &self,
        permit: &CanWrite<DeviceRef>,
        kept: &[(Arc<str>, Kept)],
        exactly: bool,
    ) -> Result<bool> {
        let device = self.key(permit.target().key)?;
        for _ in 0..TURNS_MAX {
            let mut floors = Vec::new();
            for (element, kept) in kept {
                let Some(series) = values::find(&self.reads.get(), device, element).await? else { continue };
                let first = series.first_kept(&self.reads.get(), kept).await?;
                let (dropped, of) = (first.saturating_sub(series.floor), series.count - series.floor);
                if dropped > 0 && (exactly || is_worth_dropping(dropped, of)) {
                    floors.push((series.number, first));
                }
            }
            if floors.is_empty() {
                return Ok(false);
            }
            let mut turn = self.turn(permit).await?;
            let mut committed = turn.change(|memory, writes| {
                for series in &mut memory.series {
                    let floor = floors.iter().find(|(number, _)| *number == series.number).map(|(_, floor)| *floor);
                    let Some(floor) = floor.filter(|floor| *floor > series.floor) else { continue };
                    let (dropped, of) = (floor - series.floor, series.count - series.floor);
                    series.bytes -= share_of_bytes(series.bytes, dropped, of);
                    series.floor = floor;
                    writes.series.push(series.clone());
                    writes.garbage.push((series.number, floor));
                }
            })?;
            drop(turn);
            match committed.durable.wait().await {
                Err(StoreError::Conflict) => {}
                outcome => {
                    self.garbage_came.notify_one();
                    return outcome.map(|()| true);
                }
            }
        }
        Err(StoreError::Busy)
    }

    /// Deletes all data of a device: its history in pieces, and the rest in one transaction. First its head becomes that of
    /// an empty device, with a commit of its own: runs of other processes by what they knew conflict.
    pub async fn forget_device(&self, permit: &CanWrite<DeviceRef>) -> Result<()> {
        let device = self.key(permit.target().key)?;
        let locked = self.devices.lock(device, None).await;
        self.devices.set(&locked, None);
        let empty = sqlx::query(
            "INSERT INTO telemetry.head AS h (device, seq, last_commit, device_events, cloud_events, device_order, \
                cloud_order, queued, revision, forgotten_at) VALUES ($1, 1, $2, 0, 0, $3, $3, 0, 1, now()) \
             ON CONFLICT (device) DO UPDATE SET seq = h.seq + 1, last_commit = excluded.last_commit, device_events = 0, \
                cloud_events = 0, device_order = excluded.device_order, cloud_order = excluded.cloud_order, queued = 0, \
                revision = h.revision + 1, forgotten_at = now()",
        );
        let empty = empty.bind(device).bind(self.numbers.next()).bind(TimeOrder::MIN.to_be_bytes());
        empty.execute(&self.changes.get()).await.map_err(failed)?;
        let events = "WITH batch AS (SELECT kind, ord FROM telemetry.event WHERE device = $1 AND kind IN (0, 1) LIMIT $2) \
                      DELETE FROM telemetry.event e USING batch b WHERE e.device = $1 AND e.kind = b.kind AND e.ord = b.ord";
        loop {
            let deleted = sqlx::query(events).bind(device).bind(DELETED_AT_ONCE).execute(&self.changes.get()).await;
            if deleted.map_err(failed)?.rows_affected() < DELETED_AT_ONCE as u64 {
                break;
            }
        }
        let mut tx = begun(&self.changes.get()).await.map_err(failed)?;
        for text in [
            "INSERT INTO telemetry.garbage (series, below) SELECT series, count FROM telemetry.last WHERE device = $1 \
             ON CONFLICT DO NOTHING",
            "DELETE FROM telemetry.last WHERE device = $1",
            "DELETE FROM telemetry.state WHERE device = $1",
            "DELETE FROM telemetry.queue WHERE device = $1",
            "DELETE FROM telemetry.key WHERE device = $1",
            "DELETE FROM telemetry.event WHERE device = $1 AND kind IN (0, 1)",
        ] {
            sqlx::query(text).bind(device).execute(&mut *tx).await.map_err(failed)?;
        }
        tx.commit().await.map_err(failed)?;
        self.garbage_came.notify_one();
        Ok(())
    }

    /// Drops history past retention, and expired idempotency keys, as far as the clock is trusted.
    pub async fn retain_history(&self, now: Timestamp, running: Duration, history_seconds: i64) -> Result<Timestamp> {
        let seen = self.seen().await?.unwrap_or(now);
        let believed = believed(seen, running, now);
        let cutoff = believed.plus_seconds(-history_seconds);
        let note = sqlx::query(
            "INSERT INTO telemetry.moment AS m (name, millis) VALUES ('seen', $1), ('cutoff', $2) \
             ON CONFLICT (name) DO UPDATE SET millis = greatest(m.millis, excluded.millis)",
        );
        let note = note.bind(seen.max(believed).millis()).bind(cutoff.millis());
        note.execute(&self.changes.get()).await.map_err(failed)?;
        self.cutoff.fetch_max(self.noted("cutoff").await?.unwrap_or(cutoff).millis(), Ordering::AcqRel);
        let keys = sqlx::query("DELETE FROM telemetry.key WHERE expires <= $1").bind(believed.millis());
        keys.execute(&self.changes.get()).await.map_err(failed)?;
        let heads = sqlx::query(
            "DELETE FROM telemetry.head WHERE forgotten_at < now() - interval '1 day' AND device_events = 0 \
             AND cloud_events = 0 AND queued = 0",
        );
        heads.execute(&self.changes.get()).await.map_err(failed)?;
        self.partitions
            .drop_before(&self.changes.get(), Timestamp::from_millis(self.cutoff.load(Ordering::Acquire)))
            .await?;
        self.garbage_came.notify_one();
        Ok(believed)
    }

    /// Returns the moment up to which the clock is trusted; if none is noted, that of the newest event.
    async fn seen(&self) -> Result<Option<Timestamp>> {
        if let Some(seen) = self.noted("seen").await? {
            return Ok(Some(seen));
        }
        let newest = self.live.newest();
        Ok((!newest.0.is_nil()).then(|| moment(newest.0.as_u128())))
    }

    /// Returns a moment that the store remembers.
    pub async fn noted(&self, name: &str) -> Result<Option<Timestamp>> {
        let row = sqlx::query("SELECT millis FROM telemetry.moment WHERE name = $1").bind(name);
        let row = row.fetch_optional(&self.changes.get()).await.map_err(failed)?;
        row.map(|row| row.column(0).map(Timestamp::from_millis)).transpose()
    }

    /// Deletes values that nobody sees any more, for ever.
    pub async fn collect_garbage(&self) {
        loop {
            self.garbage_came.notified().await;
            if let Err(error) = self.reads.away().ask(self.collect_once()).await {
                tracing::warn!(%error, "cannot delete dropped values, will retry when others are dropped");
            }
        }
    }

    async fn collect_once(&self) -> Result<()> {
        let found = sqlx::query("SELECT series, below FROM telemetry.garbage").fetch_all(&self.changes.get()).await;
        for row in found.map_err(failed)? {
            let (series, below): (i64, i64) = (row.column(0)?, row.column(1)?);
            let some = "DELETE FROM telemetry.value WHERE series = $1 AND n < $2 AND n < \
                        (SELECT n FROM telemetry.value WHERE series = $1 ORDER BY n LIMIT 1) + $3";
            loop {
                let some = sqlx::query(some).bind(series).bind(below).bind(DELETED_AT_ONCE);
                if some.execute(&self.changes.get()).await.map_err(failed)?.rows_affected() == 0 {
                    break;
                }
            }
            let done = sqlx::query("DELETE FROM telemetry.garbage WHERE series = $1 AND below = $2");
            done.bind(series).bind(below).execute(&self.changes.get()).await.map_err(failed)?;
        }
        Ok(())
    }
}
