//! The device list: the one list that may be long. It is found in one of two ways, whichever costs less: along the
//! order, leaving out what is not in the part of the tree, or from the organizations of that part, sorting at the end.

use isobar_model::access::{CanList, Scope};
use isobar_model::device::Device;
use isobar_model::ids::DeviceId;
use isobar_model::page::{ListRequest, Page, PageRequest};
use sea_orm::ConnectionTrait;

use super::devices::read;
use super::lists::{Listing, found, ids, in_order, ordered, window, within};
use super::sql::{Dialect, Sql, all, one};
use super::{Registry, db};
use crate::error::Result;

const LISTING: Listing = Listing {
    from: "devices d JOIN organizations o ON o.id = d.organization_id JOIN device_activity a ON a.key = d.key \
           JOIN device_search s ON s.key = d.key",
    id: "d.id",
    search: Some("s.search"),
    sorts: &[
        ("name", "d.name"),
        ("description", "coalesce(d.description, '')"),
        ("createdAt", "d.created_at"),
        ("updatedAt", "d.updated_at"),
        ("lastActive", LAST_ACTIVE),
        ("statusInt", "d.status"),
    ],
    order: "name",
};

const LAST_ACTIVE: &str = "a.last_active";

/// What one step along an order costs, as against one device gathered and sorted: in microseconds, measured on SQLite
/// with 100,000 devices.
const WALK_STEP: f64 = 0.1;
const GATHER_STEP: f64 = 1.0;
/// A search that finds no more devices than this takes them all at once.
const FOUND_AT_ONCE_MAX: u32 = 500;
/// A part of the tree with less than this share of all devices is searched device by device.
const SMALL_SHARE: u64 = 8;

/// A search that finds more than this share of all devices is walked along the order: it soon fills a page.
const DENSE_SHARE: u64 = 4;

/// The keys of an order, and whether each descends.
type Keys = [(&'static str, bool)];

/// How many devices lie in the part of the tree, and everywhere.
struct Extent {
    within: u64,
    everywhere: u64,
}

impl Registry {
    /// The devices of a part of the tree.
    pub async fn device_list(&self, pass: &CanList, request: &ListRequest) -> Result<Page<Device>> {
        let tx = self.db.snapshot().await?;
        let (ids, total) = page(&tx, pass.scope(), request).await?;
        let devices = read(&tx, &ids).await?;
        db::commit(tx).await?;
        Ok(Page::new(in_order(&ids, devices, |device| device.id), total, request.page))
    }
}

async fn page(connection: &impl ConnectionTrait, scope: &Scope, request: &ListRequest) -> Result<(Vec<DeviceId>, u64)> {
    if request.ids.is_some() {
        return LISTING.page(connection, within(scope), request).await;
    }
    let keys = LISTING.keys(&request.sort)?;
    let extent = extent(connection, scope).await?;
    if extent.within == 0 {
        return Ok((Vec::new(), 0));
    }
    match &request.search {
        Some(text) => search(connection, scope, &extent, &keys, text, request.page).await,
        None => Ok((all_within(connection, scope, &extent, &keys, request.page).await?, extent.within)),
    }
}

/// A page of all devices of the part of the tree.
async fn all_within(
    connection: &impl ConnectionTrait,
    scope: &Scope,
    extent: &Extent,
    keys: &Keys,
    page: PageRequest,
) -> Result<Vec<DeviceId>> {
    if walking_is_cheaper(keys, extent, page) {
        let condition = outside_left_out(connection, scope, extent, "d");
        return walk(connection, keys, "", condition, extent.within, page).await;
    }
    gather(connection, keys, scope, None, extent.within, page).await
}

/// Organizations know how many devices they have: nothing is counted but them.
async fn extent(connection: &impl ConnectionTrait, scope: &Scope) -> Result<Extent> {
    let query = Sql::new(
        "SELECT CAST(coalesce(sum(o.device_count), 0) AS BIGINT) AS within, \
         (SELECT CAST(coalesce(sum(device_count), 0) AS BIGINT) FROM organizations) AS everywhere \
         FROM organizations o WHERE ",
    )
    .then(within(scope));
    let Some(row) = one(connection, query).await? else { return Ok(Extent { within: 0, everywhere: 0 }) };
    Ok(Extent { within: row.count("within")?, everywhere: row.count("everywhere")? })
}

/// A walk passes devices that it leaves out, up to the page; from whichever end is nearer. Only a single key has an
/// index to walk along.
fn walking_is_cheaper(keys: &Keys, extent: &Extent, page: PageRequest) -> bool {
    let last = page.offset().saturating_add(u64::from(page.limit)).min(extent.within);
    let steps = last.min(extent.within.saturating_sub(page.offset()));
    let passed = steps as f64 * extent.everywhere as f64 / extent.within as f64;
    keys.len() == 2 && passed * WALK_STEP <= extent.within as f64 * GATHER_STEP
}

/// The condition that leaves out what is not in the part of the tree; none where that is everything.
fn outside_left_out(connection: &impl ConnectionTrait, scope: &Scope, extent: &Extent, table: &str) -> Sql {
    if extent.within == extent.everywhere {
        return Sql::new("1 = 1");
    }
    let organization = Dialect::of(connection).unindexed(&format!("{table}.organization_id"));
    Sql::new(format!("{organization} IN (SELECT o.id FROM organizations o WHERE ")).then(within(scope)).text(")")
}

/// Along the index of the order, from the end that is nearer to the page.
async fn walk(
    connection: &impl ConnectionTrait,
    keys: &Keys,
    joined: &str,
    condition: Sql,
    total: u64,
    page: PageRequest,
) -> Result<Vec<DeviceId>> {
    let Some(left) = total.checked_sub(page.offset()).filter(|left| *left > 0) else { return Ok(Vec::new()) };
    let size = left.min(u64::from(page.limit));
    let backwards = page.offset() > total / 2;
    // The order by activity has its index beside the devices; that table has their ids too.
    let (table, keys): (_, Vec<_>) = if keys.iter().any(|(column, _)| *column == LAST_ACTIVE) {
        let there = |column: &'static str| if column == LAST_ACTIVE { "d.last_active" } else { column };
        ("device_activity", keys.iter().map(|(column, down)| (there(column), *down)).collect())
    } else {
        ("devices", keys.to_vec())
    };
    let query = Sql::new(format!("SELECT d.id AS id FROM {table} d {joined} WHERE "))
        .then(condition)
        .text(&ordered(&keys, backwards))
        .then(window(size as u32, if backwards { left - size } else { page.offset() }));
    let mut found = ids(&all(connection, query).await?)?;
    if backwards {
        found.reverse();
    }
    Ok(found)
}

/// From the organizations to their devices, sorted at the end.
async fn gather(
    connection: &impl ConnectionTrait,
    keys: &Keys,
    scope: &Scope,
    search: Option<&str>,
    total: u64,
    page: PageRequest,
) -> Result<Vec<DeviceId>> {
    if page.offset() >= total {
        return Ok(Vec::new());
    }
    let query = Sql::new("SELECT d.id AS id")
        .then(gathered(connection, keys, scope, search))
        .text(&ordered(keys, false))
        .then(window(page.limit, page.offset()));
    ids(&all(connection, query).await?)
}

/// `CROSS JOIN` keeps SQLite to this order of the tables; PostgreSQL takes it as any other join.
fn gathered(connection: &impl ConnectionTrait, keys: &Keys, scope: &Scope, search: Option<&str>) -> Sql {
    let activity = keys.iter().any(|(column, _)| *column == LAST_ACTIVE);
    let mut sql = Sql::new(" FROM organizations o CROSS JOIN devices d");
    if activity {
        sql = sql.text(" CROSS JOIN device_activity a");
    }
    if search.is_some() {
        sql = sql.text(" CROSS JOIN device_search s");
    }
    sql = sql.text(" WHERE d.organization_id = o.id AND ").then(within(scope));
    if activity {
        sql = sql.text(" AND a.key = d.key");
    }
    if let Some(text) = search {
        sql = sql.text(" AND s.key = d.key AND ").then(found(Dialect::of(connection), "s.search", text));
    }
    sql
}

async fn search(
    connection: &impl ConnectionTrait,
    scope: &Scope,
    extent: &Extent,
    keys: &Keys,
    text: &str,
    page: PageRequest,
) -> Result<(Vec<DeviceId>, u64)> {
    if extent.within * SMALL_SHARE <= extent.everywhere {
        let total = count(connection, gathered(connection, &[], scope, Some(text))).await?;
        return Ok((gather(connection, keys, scope, Some(text), total, page).await?, total));
    }
    let matching = found(Dialect::of(connection), "s.search", text)
        .text(" AND ")
        .then(outside_left_out(connection, scope, extent, "s"));
    let few = Sql::new("SELECT d.id AS id FROM device_search s CROSS JOIN devices d WHERE d.key = s.key AND ")
        .then(matching.clone())
        .then(window(FOUND_AT_ONCE_MAX + 1, 0));
    let few: Vec<DeviceId> = ids(&all(connection, few).await?)?;
    if few.len() <= FOUND_AT_ONCE_MAX as usize {
        let total = few.len() as u64;
        return Ok((sorted(connection, keys, &few, page).await?, total));
    }
    let total = count(connection, Sql::new(" FROM device_search s WHERE ").then(matching.clone())).await?;
    if total == extent.within {
        // What finds everything leaves nothing out.
        return Ok((all_within(connection, scope, extent, keys, page).await?, total));
    }
    let ids = if keys.len() == 2 && total * DENSE_SHARE > extent.everywhere {
        let condition = Sql::new("s.key = d.key AND ").then(matching);
        walk(connection, keys, "CROSS JOIN device_search s", condition, total, page).await?
    } else if page.offset() < total {
        let query = Sql::new(
            "SELECT d.id AS id FROM device_search s CROSS JOIN devices d CROSS JOIN device_activity a \
             WHERE s.key = d.key AND a.key = d.key AND ",
        )
        .then(matching)
        .text(&ordered(keys, false))
        .then(window(page.limit, page.offset()));
        ids(&all(connection, query).await?)?
    } else {
        Vec::new()
    };
    Ok((ids, total))
}

async fn count(connection: &impl ConnectionTrait, from: Sql) -> Result<u64> {
    let row = one(connection, Sql::new("SELECT count(*) AS total").then(from)).await?;
    row.map_or(Ok(0), |row| row.count("total"))
}

/// A page of devices that are known already.
async fn sorted(
    connection: &impl ConnectionTrait,
    keys: &Keys,
    among: &[DeviceId],
    page: PageRequest,
) -> Result<Vec<DeviceId>> {
    let query = Sql::new("SELECT d.id AS id FROM devices d JOIN device_activity a ON a.key = d.key WHERE d.id")
        .among(Dialect::of(connection), among)
        .text(&ordered(keys, false))
        .then(window(page.limit, page.offset()));
    ids(&all(connection, query).await?)
}
