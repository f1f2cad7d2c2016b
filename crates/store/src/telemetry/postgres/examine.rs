//! Examines a store for an operator: reads everything once, as of one moment, and follows references to other rows.

use isobar_model::ids::DeviceKey;
use isobar_model::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection};

use super::connections::{ReadColumn as _, failed};
use super::{PgCore, connections, migrations};
use crate::error::Result;
use crate::telemetry::examined::{FAULTS_NAMED_MAX, PARKED_NAMED_MAX};
use crate::telemetry::time_order::order_at;
use crate::telemetry::{Examined, LostDevices};

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 0";
/// The devices that have rows of any kind.
const KNOWN_DEVICES: &str = "SELECT device FROM telemetry.head WHERE forgotten_at IS NULL UNION SELECT device FROM telemetry.event \
    UNION SELECT device FROM telemetry.last UNION SELECT device FROM telemetry.state \
    UNION SELECT device FROM telemetry.queue UNION SELECT device FROM telemetry.outbox ORDER BY device";
const PARKED_ENTRIES: &str =
    "SELECT device, parked FROM telemetry.outbox WHERE parked IS NOT NULL ORDER BY number LIMIT $1";
/// Histories whose numbers have gaps, or do not end where the head says; $1 is the cutoff before which events are
/// forgotten.
const HISTORIES: &str = "WITH found AS (SELECT device, kind, count(*) AS events, min(n) AS first, max(n) AS last \
        FROM telemetry.event WHERE ord >= $1 GROUP BY device, kind), \
    ends AS (SELECT h.device, k.kind, k.next, k.newest FROM telemetry.head h CROSS JOIN LATERAL \
        (VALUES (0::smallint, h.device_events, h.device_order), (1::smallint, h.cloud_events, h.cloud_order)) \
        AS k(kind, next, newest)) \
    SELECT device, coalesce(found.events, 0), coalesce(found.last - found.first + 1, 0), coalesce(found.last + 1, 0), \
        coalesce(ends.next, 0) \
    FROM found FULL JOIN ends USING (device, kind) \
    WHERE found.events <> found.last - found.first + 1 \
        OR (found.events IS NOT NULL AND found.last + 1 IS DISTINCT FROM ends.next) \
        OR (found.events IS NULL AND ends.next > 0 AND ends.newest >= $1) \
    ORDER BY device";
/// Series that lack values, or have more than they should; and values of no series.
const WRONG_SERIES: &str = "WITH found AS (SELECT v.series, count(*) FILTER (WHERE v.n >= coalesce(l.floor, 0)) AS kept, \
        max(v.n) + 1 AS ends FROM telemetry.value v LEFT JOIN telemetry.last l USING (series) GROUP BY v.series) \
    SELECT l.device, series, coalesce(found.kept, 0), l.count - l.floor, coalesce(found.ends, 0) \
    FROM telemetry.last l FULL JOIN found USING (series) \
    WHERE coalesce(found.kept, 0) IS DISTINCT FROM l.count - l.floor \
        AND NOT (l.series IS NULL AND series IN (SELECT series FROM telemetry.garbage)) \
        OR found.ends > l.count \
    ORDER BY series";
const SHARED_SERIES: &str = "SELECT min(device), max(device), series FROM telemetry.last GROUP BY series \
    HAVING count(*) > 1 ORDER BY series";
const QUEUES: &str = "SELECT q.device, max(q.n), coalesce(max(h.queued), 0) FROM telemetry.queue q \
    LEFT JOIN telemetry.head h USING (device) GROUP BY q.device HAVING max(q.n) >= coalesce(max(h.queued), 0) \
    ORDER BY q.device";
/// The devices that registries are recorded to have lost.
pub const LOST_RANGES: &str = "SELECT after, up_to FROM telemetry.lost_devices ORDER BY after";
/// Devices whose other rows have no head.
const HEADLESS: &str = "SELECT device FROM (SELECT device FROM telemetry.last UNION SELECT device FROM telemetry.state) d \
    WHERE NOT EXISTS (SELECT FROM telemetry.head h WHERE h.device = d.device) ORDER BY device";

/// Examines the store in a database, without changing it.
pub async fn database(address: &str) -> Result<Examined> {
    let pool = connections::to_read(address).await?;
    migrations::must_be_there(&pool).await?;
    let mut connection = pool.acquire().await.map_err(failed)?;
    let examined = everything(&mut connection).await;
    drop(connection);
    pool.close().await;
    examined
}

impl PgCore {
    /// Examines the store while it is in use.
    pub async fn examine(&self) -> Result<Examined> {
        let mut connection = self.reads.get().acquire().await.map_err(failed)?;
        let examined = everything(&mut connection).await;
        if examined.is_err() {
            // Its transaction may be open.
            connection.close_on_drop();
        }
        examined
    }
}

async fn everything(connection: &mut PgConnection) -> Result<Examined> {
    sqlx::raw_sql(BEGIN).execute(&mut *connection).await.map_err(failed)?;
    let mut report = Examined {
        events: count(connection, "SELECT count(*) FROM telemetry.event").await?,
        outbox: count(connection, "SELECT count(*) FROM telemetry.outbox").await?,
        parked_found: count(connection, "SELECT count(*) FROM telemetry.outbox WHERE parked IS NOT NULL").await?,
        ..Examined::default()
    };
    let kept = "SELECT coalesce(sum(count - floor), 0)::bigint FROM telemetry.last";
    report.values = count(connection, kept).await?;
    for row in rows(connection, KNOWN_DEVICES).await? {
        report.devices.push(DeviceKey(row.count(0)?));
    }
    let parked =
        sqlx::query(PARKED_ENTRIES).bind(PARKED_NAMED_MAX as i64).fetch_all(&mut *connection).await.map_err(failed)?;
    for row in parked {
        report.parked.push((DeviceKey(row.count(0)?), row.column::<&str>(1)?.to_owned()));
    }
    report.lost = rows(connection, LOST_RANGES).await?.iter().map(read_lost).collect::<Result<_>>()?;
    find_faults(connection, &mut report).await?;
    sqlx::raw_sql("COMMIT").execute(connection).await.map_err(failed)?;
    Ok(report)
}

/// Reads a row of lost devices.
pub fn read_lost(row: &PgRow) -> Result<LostDevices> {
    Ok(LostDevices { after: DeviceKey(row.count(0)?), up_to: DeviceKey(row.count(1)?) })
}

async fn find_faults(connection: &mut PgConnection, report: &mut Examined) -> Result<()> {
    let cutoff = "SELECT coalesce(max(millis), 0) FROM telemetry.moment WHERE name = 'cutoff'";
    let cutoff = sqlx::query(cutoff).fetch_one(&mut *connection).await.map_err(failed)?.column(0)?;
    let cutoff = order_at(Timestamp::from_millis(cutoff)).to_be_bytes();
    let histories = sqlx::query(HISTORIES).bind(&cutoff[..]).fetch_all(&mut *connection).await.map_err(failed)?;
    add(report, &histories, |row| {
        let (device, events, numbers) = (row.count(0)?, row.count(1)?, row.count(2)?);
        let (ends, next) = (row.count(3)?, row.count(4)?);
        Ok(if events == numbers {
            format!("device {device}: its history ends before event {ends}, and should before event {next}")
        } else {
            format!("device {device}: its history has {events} of {numbers} events")
        })
    })?;
    add(report, &rows(connection, WRONG_SERIES).await?, |row| {
        let (series, found) = (row.count(1)?, row.count(2)?);
        let Some(device) = row.column::<Option<i64>>(0)? else {
            return Ok(format!("series {series} has values, but no device has the series"));
        };
        let (expected, ends) = (row.count(3)?, row.count(4)?);
        Ok(format!(
            "device {device}: series {series} has {found} of {expected} values, of which the last comes before {ends}"
        ))
    })?;
    add(report, &rows(connection, SHARED_SERIES).await?, |row| {
        Ok(format!("devices {} and {} share the series {}", row.count(0)?, row.count(1)?, row.count(2)?))
    })?;
    add(report, &rows(connection, QUEUES).await?, |row| {
        let (device, newest, next) = (row.count(0)?, row.count(1)?, row.count(2)?);
        Ok(format!("device {device}: its queue has event {newest}, and the next one would be {next}"))
    })?;
    add(report, &rows(connection, HEADLESS).await?, |row| {
        Ok(format!("device {}: it has values or states, but no head", row.count(0)?))
    })
}

/// Adds a fault for each row.
fn add(report: &mut Examined, rows: &[PgRow], fault: impl Fn(&PgRow) -> Result<String>) -> Result<()> {
    report.faults_found += rows.len() as u64;
    let room = FAULTS_NAMED_MAX.saturating_sub(report.faults.len());
    for row in rows.iter().take(room) {
        report.faults.push(fault(row)?);
    }
    Ok(())
}

async fn rows(connection: &mut PgConnection, text: &'static str) -> Result<Vec<PgRow>> {
    sqlx::query(AssertSqlSafe(text)).fetch_all(connection).await.map_err(failed)
}

async fn count(connection: &mut PgConnection, text: &'static str) -> Result<u64> {
    sqlx::query(AssertSqlSafe(text)).fetch_one(connection).await.map_err(failed)?.count(0)
}
