//! The device list: the longest of all. It is found along its order or from the organizations, as other lists are; but
//! nothing is counted for it, and what is searched is a table of its own.

use isobar_model::access::{CanList, Scope};
use isobar_model::device::Device;
use isobar_model::ids::DeviceId;
use isobar_model::page::{ListRequest, Page, PageRequest};
use sea_orm::ConnectionTrait;

use super::devices::read;
use super::lists::{Extent, Keys, Listing, count, found, ids, in_order, window, within};
use super::sql::{Dialect, Sql, all, one};
use super::stretch::Stretch;
use super::{Registry, db};
use crate::error::Result;

const LISTING: Listing = Listing {
    table: "devices d",
    joined: " JOIN organizations o ON o.id = d.organization_id JOIN device_activity a ON a.key = d.key \
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
    // It has a way of its own, below.
    walk: None,
    order: "name",
};

const LAST_ACTIVE: &str = "a.last_active";

/// The columns with an index for either way, because very many devices are alike in them.
const EITHER_WAY: &[&str] = &["coalesce(d.description, '')", LAST_ACTIVE, "d.status"];

/// A search that finds no more devices than this takes them all at once.
const FOUND_AT_ONCE_MAX: u32 = 500;
/// A part of the tree with less than this share of all devices is searched device by device.
const SMALL_SHARE: u64 = 8;

/// A search that finds more than this share of all devices is walked along the order: it soon fills a page.
const DENSE_SHARE: u64 = 4;

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
    let Some(stretch) = Stretch::of(page, extent.within) else { return Ok(Vec::new()) };
    if extent.walking_is_cheaper(keys, &stretch) {
        let condition = extent.outside_left_out(Dialect::of(connection), scope, "d.organization_id");
        return walk(connection, keys, "", condition, stretch).await;
    }
    gather(connection, keys, scope, None, stretch).await
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

/// Along the index of the order.
async fn walk(
    connection: &impl ConnectionTrait,
    keys: &Keys,
    joined: &str,
    condition: Sql,
    stretch: Stretch,
) -> Result<Vec<DeviceId>> {
    let has_either = keys.iter().any(|(column, _)| EITHER_WAY.contains(column));
    // The order by activity has its index beside the devices; that table has their ids too.
    let (table, keys): (_, Vec<_>) = if keys.iter().any(|(column, _)| *column == LAST_ACTIVE) {
        let there = |column: &'static str| if column == LAST_ACTIVE { "d.last_active" } else { column };
        ("device_activity", keys.iter().map(|(column, down)| (there(column), *down)).collect())
    } else {
        ("devices", keys.to_vec())
    };
    let from = Sql::new(format!(" FROM {table} d {joined} WHERE ")).then(condition);
    if has_either {
        return stretch.ids(connection, from, &keys).await;
    }
    stretch.walk(connection, from, &keys).await
}

/// From the organizations to their devices, sorted at the end.
async fn gather(
    connection: &impl ConnectionTrait,
    keys: &Keys,
    scope: &Scope,
    search: Option<&str>,
    stretch: Stretch,
) -> Result<Vec<DeviceId>> {
    stretch.ids(connection, gathered(connection, keys, scope, search), keys).await
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
        let Some(stretch) = Stretch::of(page, total) else { return Ok((Vec::new(), total)) };
        return Ok((gather(connection, keys, scope, Some(text), stretch).await?, total));
    }
    let dialect = Dialect::of(connection);
    let matching = found(dialect, "s.search", text).text(" AND ").then(extent.outside_left_out(
        dialect,
        scope,
        "s.organization_id",
    ));
    let few = Sql::new("SELECT d.id AS id FROM device_search s CROSS JOIN devices d WHERE d.key = s.key AND ")
        .then(matching.clone())
        .then(window(FOUND_AT_ONCE_MAX + 1, 0));
    let few: Vec<DeviceId> = ids(&all(connection, few).await?)?;
    if few.len() <= FOUND_AT_ONCE_MAX as usize {
        let total = few.len() as u64;
        let Some(stretch) = Stretch::of(page, total) else { return Ok((Vec::new(), total)) };
        return Ok((sorted(connection, keys, &few, stretch).await?, total));
    }
    let total = count(connection, Sql::new(" FROM device_search s WHERE ").then(matching.clone())).await?;
    if total == extent.within {
        // What finds everything leaves nothing out.
        return Ok((all_within(connection, scope, extent, keys, page).await?, total));
    }
    let Some(stretch) = Stretch::of(page, total) else { return Ok((Vec::new(), total)) };
    let ids = if keys.len() == 2 && total * DENSE_SHARE > extent.everywhere {
        let condition = Sql::new("s.key = d.key AND ").then(matching);
        walk(connection, keys, "CROSS JOIN device_search s", condition, stretch).await?
    } else {
        let query = Sql::new(
            " FROM device_search s CROSS JOIN devices d CROSS JOIN device_activity a \
             WHERE s.key = d.key AND a.key = d.key AND ",
        );
        stretch.ids(connection, query.then(matching), keys).await?
    };
    Ok((ids, total))
}

/// A page of devices that are known already.
async fn sorted(
    connection: &impl ConnectionTrait,
    keys: &Keys,
    among: &[DeviceId],
    stretch: Stretch,
) -> Result<Vec<DeviceId>> {
    let from = Sql::new(" FROM devices d JOIN device_activity a ON a.key = d.key WHERE d.id")
        .among(Dialect::of(connection), among);
    stretch.ids(connection, from, keys).await
}
