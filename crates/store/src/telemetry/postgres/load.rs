//! Loads the state of a device.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use isobar_model::time::Timestamp;
use sqlx::postgres::PgRow;

use super::connections::{ReadColumn as _, failed};
use super::memory::{DeviceMemory, Head, HistoryEnd, SeriesMemory};
use sqlx::PgPool;

use crate::error::Result;

/// Loads a device. The head is read first: if the rest is newer, the next commit conflicts.
pub async fn device(pool: &PgPool, device: i64) -> Result<DeviceMemory> {
    let mut connection = pool.acquire().await.map_err(failed)?;
    let head = "SELECT last_commit, device_events, cloud_events, device_order, cloud_order, queued, revision \
                FROM telemetry.head WHERE device = $1";
    let head = sqlx::query(head).bind(device).fetch_optional(&mut *connection).await.map_err(failed)?;
    let Some(head) = head else { return Ok(DeviceMemory::default()) };
    let head = read_head(&head)?;
    let series = "SELECT element, series, created, count, floor, bytes, ord, last FROM telemetry.last WHERE device = $1 \
                  ORDER BY element";
    let series = sqlx::query(series).bind(device).fetch_all(&mut *connection).await.map_err(failed)?;
    let states = sqlx::query("SELECT element, state FROM telemetry.state WHERE device = $1 ORDER BY element");
    let states = states.bind(device).fetch_all(&mut *connection).await.map_err(failed)?;
    let queue = sqlx::query("SELECT n FROM telemetry.queue WHERE device = $1 ORDER BY n");
    let queue = queue.bind(device).fetch_all(&mut *connection).await.map_err(failed)?;
    Ok(DeviceMemory {
        head,
        series: series.iter().map(read_series).collect::<Result<_>>()?,
        states: states.iter().map(read_state).collect::<Result<_>>()?,
        queue: queue.iter().map(|row| row.count(0)).collect::<Result<VecDeque<_>>>()?,
    })
}

fn read_head(row: &PgRow) -> Result<Head> {
    Ok(Head {
        last_commit: row.column(0)?,
        ends: [
            HistoryEnd { next: row.count(1)?, order: row.order(3)? },
            HistoryEnd { next: row.count(2)?, order: row.order(4)? },
        ],
        queued: row.count(5)?,
        revision: row.count(6)?,
    })
}

/// Reads a series.
pub fn read_series(row: &PgRow) -> Result<SeriesMemory> {
    Ok(SeriesMemory {
        element: row.name(0)?,
        number: row.column(1)?,
        created: Timestamp::from_millis(row.column(2)?),
        count: row.count(3)?,
        floor: row.count(4)?,
        bytes: row.count(5)?,
        order: row.order(6)?,
        last: Bytes::copy_from_slice(row.column(7)?),
    })
}

fn read_state(row: &PgRow) -> Result<(Arc<str>, Bytes)> {
    Ok((row.name(0)?, Bytes::copy_from_slice(row.column(1)?)))
}
