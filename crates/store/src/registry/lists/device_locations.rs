//! Lists the devices on a map. A column holds the place at which each is shown, and an index covers the devices that
//! have a place.

use std::fmt::Write as _;

use isobar_model::access::CanList;
use isobar_model::alarm::AlarmSeverity;
use isobar_model::device::{Location, PlacedDevice};
use isobar_model::map::{DeviceCluster, MapBox};
use isobar_model::page::{Page, PageRequest};
use isobar_model::status::Status;

use super::{count, limit_offset, within};
use crate::error::Result;
use crate::registry::Registry;
use crate::registry::sql::{Dialect, Row, Sql, all};

/// `CROSS JOIN` fixes this order of the tables for SQLite; PostgreSQL treats it as any other join.
const PLACED: &str = " FROM organizations o CROSS JOIN devices d \
    WHERE d.organization_id = o.id AND d.place_latitude IS NOT NULL AND ";

/// Highest severity of a device's active alarms.
const WORST_ALARM: &str =
    "(SELECT max(l.severity) FROM alarms l WHERE l.device_key = d.key AND l.state = 0) AS alarm_severity";

/// Steps of a degree to which the mean of places is rounded: about a metre.
const MEAN_STEPS: f64 = 100_000.0;

impl Registry {
    /// Lists the devices of a part of the tree that have coordinates within a box, in the order of their creation.
    pub async fn device_places(
        &self,
        permit: &CanList,
        asked: &MapBox,
        request: PageRequest,
    ) -> Result<Page<PlacedDevice>> {
        let tx = self.db.snapshot().await?;
        let total = count(&tx, Sql::new(PLACED).then(within(permit.scope())).then(inside(asked))).await?;
        let rows = if request.offset() < total {
            // Find the keys first, from the index alone: then only the page's rows are read.
            let page = Sql::new(format!(
                "SELECT d.id, d.name, d.organization_id, d.place_latitude, d.place_longitude, d.status, {WORST_ALARM} \
                 FROM (SELECT d.key AS key"
            ))
            .text(PLACED)
            .then(within(permit.scope()))
            .then(inside(asked))
            .text(" ORDER BY d.key")
            .then(limit_offset(request.limit, request.offset()))
            .text(") p CROSS JOIN devices d WHERE d.key = p.key ORDER BY d.key");
            all(&tx, page).await?
        } else {
            Vec::new()
        };
        Ok(Page::new(rows.iter().map(placed).collect::<Result<_>>()?, total, request))
    }

    /// Groups the devices of a part of the tree within a box by the cells of a grid. Cells are this many degrees wide
    /// and begin at the south pole and the date line; the answer goes from south to north, then from west to east.
    pub async fn device_clusters(&self, permit: &CanList, within: &MapBox, cell: f64) -> Result<Vec<DeviceCluster>> {
        let tx = self.db.snapshot().await?;
        let rows = all(&tx, clusters(Dialect::of(&tx), permit, within, cell)).await?;
        rows.iter().map(cluster).collect()
    }
}

/// Selects the cells that hold devices, in one pass over the index of devices with a place, with a look-up of active
/// alarms for each; then the device of each cell that holds exactly one.
fn clusters(dialect: Dialect, permit: &CanList, asked: &MapBox, cell: f64) -> Sql {
    let mut select = String::from(
        "SELECT c.*, e.id, e.name FROM (SELECT count(*) AS devices, avg(d.place_latitude) AS latitude, \
         avg(d.place_longitude) AS longitude, min(d.place_latitude) AS south, min(d.place_longitude) AS west, \
         max(d.place_latitude) AS north, max(d.place_longitude) AS east, min(d.key) AS first_key, \
         max(d.alarm_severity) AS alarm_severity, count(d.alarm_severity) AS alarm_devices",
    );
    for status in Status::ALL.into_iter().map(Status::number) {
        // Writing to a string cannot fail.
        let _ = write!(select, ", count(CASE WHEN d.status = {status} THEN 1 END) AS status_{status}");
    }
    let index = |column: &str, from: f64| {
        let position = format!("(d.{column} + {from}) / CAST(? AS DOUBLE PRECISION)");
        let whole = match dialect {
            // No value is below 0 here, so the cast cuts off the fraction.
            Dialect::Sqlite => format!("CAST({position} AS INTEGER)"),
            Dialect::Postgres => format!("CAST(floor({position}) AS BIGINT)"),
        };
        Sql::new(whole).bind(cell)
    };
    Sql::new(select)
        .text(", ")
        .then(index("place_latitude", 90.0))
        .text(" AS cell_row, ")
        .then(index("place_longitude", 180.0))
        .text(" AS cell_column FROM (SELECT d.key, d.place_latitude, d.place_longitude, d.status, ")
        .text(WORST_ALARM)
        .text(PLACED)
        .then(within(permit.scope()))
        .then(inside(asked))
        // A subquery with a limit is not merged into the outer query, which would look up alarms twice.
        .then(limit_offset(u32::MAX, 0))
        .text(
            ") d GROUP BY cell_row, cell_column) c LEFT JOIN devices e ON e.key = c.first_key AND c.devices = 1 \
             ORDER BY c.cell_row, c.cell_column",
        )
}

/// Builds `AND` with the condition that a place lies within a box; empty for the whole map, which an index alone
/// counts.
fn inside(asked: &MapBox) -> Sql {
    if *asked == MapBox::WORLD {
        return Sql::default();
    }
    let joined = if asked.crosses_date_line() { "OR" } else { "AND" };
    Sql::new(" AND d.place_latitude >= ? AND d.place_latitude <= ?")
        .bind(asked.south)
        .bind(asked.north)
        .text(&format!(" AND (d.place_longitude >= ? {joined} d.place_longitude <= ?)"))
        .bind(asked.west)
        .bind(asked.east)
}

fn cluster(row: &Row) -> Result<DeviceCluster> {
    let mut by_status = [0; Status::ALL.len()];
    for status in Status::ALL.into_iter().map(Status::number) {
        by_status[usize::from(status)] = row.count(&format!("status_{status}"))?;
    }
    let only = match row.count("devices")? {
        1 => Some((row.id("id")?, row.text("name")?)),
        _ => None,
    };
    let [south, west] = [row.float("south")?, row.float("west")?];
    let [north, east] = [row.float("north")?, row.float("east")?];
    // A rounded mean may lie outside the bounds. Damaged values have no order, and are read unchanged.
    let mean = |name, from: f64, to: f64| -> Result<f64> {
        Ok(((row.float(name)? * MEAN_STEPS).round() / MEAN_STEPS).max(from).min(to))
    };
    let middle = Location { latitude: mean("latitude", south, north)?, longitude: mean("longitude", west, east)? };
    let severity = row.named_if("alarm_severity", AlarmSeverity::numbered)?;
    let alarms = severity.map(|severity| Result::Ok((severity, row.count("alarm_devices")?))).transpose()?;
    Ok(DeviceCluster { by_status, middle, bounds: MapBox { west, south, east, north }, only, alarms })
}

fn placed(row: &Row) -> Result<PlacedDevice> {
    Ok(PlacedDevice {
        id: row.id("id")?,
        name: row.text("name")?,
        organization: row.id("organization_id")?,
        location: Location { latitude: row.float("place_latitude")?, longitude: row.float("place_longitude")? },
        status: row.named("status", Status::numbered)?,
        alarm: row.named_if("alarm_severity", AlarmSeverity::numbered)?,
    })
}
