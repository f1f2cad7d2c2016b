//! The parts of history: a table for each day, made before its first event is written, and dropped past retention.

use std::collections::BTreeSet;

use isobar_model::time::Timestamp;
use parking_lot::Mutex;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};

use super::connections::{ReadColumn as _, failed};
use super::group::GroupFailure;
use crate::error::{Result, StoreError};
use crate::telemetry::time_order::{TimeOrder, moment, order_at};

/// Milliseconds of a part.
const PART_MILLIS: i64 = 86_400_000;
/// Settings of a drop: while it waits for a reader, events of all devices wait behind it.
const TO_DROP: &str = "SET LOCAL lock_timeout = '200ms'";
/// Lock that keeps two processes from making or dropping the same part at once.
const PARTITION_LOCK: i64 = 0x0069_736f_6261_7212;

/// Days whose parts are known to be there, by their number since 1970.
#[derive(Debug, Default)]
pub struct Partitions(Mutex<BTreeSet<i64>>);

fn day_of(order: TimeOrder) -> i64 {
    moment(order).millis().div_euclid(PART_MILLIS)
}

/// Returns the bounds of a day as the database writes them.
fn bounds(day: i64) -> (String, String) {
    let bound = |day: i64| format!("'\\x{:032x}'", order_at(Timestamp::from_millis(day.saturating_mul(PART_MILLIS))));
    (bound(day), bound(day.saturating_add(1)))
}

fn table(day: i64) -> String {
    format!("event_{day}")
}

impl Partitions {
    /// Returns the days of these positions whose parts are not known.
    pub fn missing(&self, orders: impl Iterator<Item = TimeOrder>) -> BTreeSet<i64> {
        let known = self.0.lock();
        orders.map(day_of).filter(|day| !known.contains(day)).collect()
    }

    /// Makes the parts of these days, unless others have.
    pub async fn make(
        &self,
        connection: &mut PgConnection,
        days: BTreeSet<i64>,
    ) -> std::result::Result<(), GroupFailure> {
        for day in days {
            make_part(connection, day).await.map_err(|error| match error {
                error @ sqlx::Error::Database(_) => GroupFailure::Statement(failed(error)),
                error => GroupFailure::Unknown(failed(error)),
            })?;
            self.0.lock().insert(day);
        }
        Ok(())
    }

    /// Drops the parts that end before a moment. One that somebody reads for long is left for a later call.
    pub async fn drop_before(&self, pool: &PgPool, cutoff: Timestamp) -> Result<()> {
        let end = cutoff.millis().div_euclid(PART_MILLIS);
        for day in days(pool).await?.into_iter().filter(|day| *day < end) {
            self.0.lock().remove(&day);
            let drop = format!("BEGIN; {TO_DROP}; DROP TABLE IF EXISTS telemetry.{}; COMMIT", table(day));
            let mut connection = pool.acquire().await.map_err(failed)?;
            match sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut *connection).await.map_err(failed) {
                Ok(_) => {}
                Err(error) => {
                    // Its transaction may be open.
                    connection.close_on_drop();
                    match error {
                        StoreError::Busy => tracing::info!(day, "a day of history is read, will drop it later"),
                        error => return Err(error),
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the days of all parts.
async fn days(pool: &PgPool) -> Result<Vec<i64>> {
    let parts = "SELECT substr(c.relname, 7)::bigint FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
                 WHERE i.inhparent = 'telemetry.event'::regclass ORDER BY 1";
    let rows = sqlx::query(parts).fetch_all(pool).await.map_err(failed)?;
    rows.iter().map(|row| row.column(0)).collect()
}

/// Makes a part by itself, and attaches it: readers and writers of the others do not wait for that.
async fn make_part(connection: &mut PgConnection, day: i64) -> std::result::Result<(), sqlx::Error> {
    let mut tx = connection.begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(PARTITION_LOCK).execute(&mut *tx).await?;
    let name = table(day);
    let found = sqlx::query("SELECT 1 FROM pg_class WHERE oid = to_regclass($1)");
    if found.bind(format!("telemetry.{name}")).fetch_optional(&mut *tx).await?.is_none() {
        let (from, to) = bounds(day);
        let make = format!(
            "CREATE TABLE telemetry.{name} (LIKE telemetry.event INCLUDING DEFAULTS); \
             ALTER TABLE telemetry.event ATTACH PARTITION telemetry.{name} FOR VALUES FROM ({from}) TO ({to})"
        );
        sqlx::raw_sql(AssertSqlSafe(make)).execute(&mut *tx).await?;
    }
    tx.commit().await
}
