//! The devices on a map. A column keeps where each is shown, and an index knows those that are shown at all.

use isobar_model::access::CanList;
use isobar_model::device::{Location, PlacedDevice};
use isobar_model::page::{Page, PageRequest};
use isobar_model::status::Status;

use super::{count, limit_offset, within};
use crate::error::Result;
use crate::registry::Registry;
use crate::registry::sql::{Row, Sql, all};

/// `CROSS JOIN` keeps SQLite to this order of the tables; PostgreSQL takes it as any other join.
const PLACED: &str = " FROM organizations o CROSS JOIN devices d \
    WHERE d.organization_id = o.id AND d.place_latitude IS NOT NULL AND ";

impl Registry {
    /// The devices of a part of the tree that have coordinates, in the order in which they were made.
    pub async fn device_places(&self, permit: &CanList, request: PageRequest) -> Result<Page<PlacedDevice>> {
        let tx = self.db.snapshot().await?;
        let total = count(&tx, Sql::new(PLACED).then(within(permit.scope()))).await?;
        let rows = if request.offset() < total {
            // The keys first, from the index alone: only the page's rows are read.
            let page = Sql::new(
                "SELECT d.id, d.name, d.organization_id, d.place_latitude, d.place_longitude, d.status FROM \
                 (SELECT d.key AS key",
            )
            .text(PLACED)
            .then(within(permit.scope()))
            .text(" ORDER BY d.key")
            .then(limit_offset(request.limit, request.offset()))
            .text(") p CROSS JOIN devices d WHERE d.key = p.key ORDER BY d.key");
            all(&tx, page).await?
        } else {
            Vec::new()
        };
        Ok(Page::new(rows.iter().map(placed).collect::<Result<_>>()?, total, request))
    }
}

fn placed(row: &Row) -> Result<PlacedDevice> {
    Ok(PlacedDevice {
        id: row.id("id")?,
        name: row.text("name")?,
        organization: row.id("organization_id")?,
        location: Location { latitude: row.float("place_latitude")?, longitude: row.float("place_longitude")? },
        status: row.named("status", Status::numbered)?,
    })
}
