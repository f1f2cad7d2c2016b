//! Lists devices, in the longest of all lists. Pages are found along an index or from the organizations, as in other
//! lists; but totals come from stored counts, and searches read a table of their own.

use isobar_model::access::{CanList, Scope};
use isobar_model::device::Device;
use isobar_model::ids::DeviceId;
use isobar_model::page::{ListRequest, Page, PageRequest};

use super::device_filters::DeviceSelection;
use super::listings::{DEVICE_LAST_ACTIVE, DEVICES};
use super::order::{Order, TableAlias};
use super::page_window::PageWindow;
use super::{Extent, count, found, ids, limit_offset, within};
use crate::error::Result;
use crate::registry::Registry;
use crate::registry::nouns::devices::read;
use crate::registry::sql::{Connection, Dialect, Sql, all};

/// Number of devices up to which a search takes all that it finds at once.
const FOUND_AT_ONCE_MAX: u32 = 500;
/// Share of all devices: a part of the tree with less is searched device by device.
pub(super) const SMALL_SHARE: u64 = 8;
/// Share of all devices: a search that finds more follows the index of the order, because a page fills soon.
const DENSE_SHARE: u64 = 4;

impl Registry {
    /// Lists the devices of a part of the tree.
    pub async fn device_list(&self, permit: &CanList, request: &ListRequest) -> Result<Page<Device>> {
        self.devices_selected(permit, request, &DeviceSelection::default()).await
    }
}

pub(super) async fn page(
    connection: &impl Connection,
    scope: &Scope,
    request: &ListRequest,
) -> Result<(Vec<DeviceId>, u64)> {
    if request.ids.is_some() {
        return DEVICES.page(connection, within(scope), request).await;
    }
    let order = DEVICES.order(request)?;
    let extent = extent(connection, scope).await?;
    if extent.within == 0 {
        return Ok((Vec::new(), 0));
    }
    match &request.search {
        Some(text) => search(connection, scope, &extent, &order, text, request.page).await,
        None => Ok((all_within(connection, scope, &extent, &order, request.page).await?, extent.within)),
    }
}

/// Finds the page of all devices of the part of the tree.
pub(super) async fn all_within(
    connection: &impl Connection,
    scope: &Scope,
    extent: &Extent,
    order: &Order,
    page: PageRequest,
) -> Result<Vec<DeviceId>> {
    let Some(window) = PageWindow::of(page, extent.within) else { return Ok(Vec::new()) };
    let dialect = Dialect::of(connection);
    match order.indexed_in().filter(|_| extent.index_is_cheaper(&window)) {
        Some(index) => {
            let along = DEVICES.along(dialect, index, extent, scope);
            window.ids(connection, index, along, order).await
        }
        None => window.ids(connection, DEVICES.relation, gathered(dialect, Some(order), scope, None), order).await,
    }
}

/// Counts the devices by the counts that organizations store, without counting any.
pub(super) async fn extent(connection: &impl Connection, scope: &Scope) -> Result<Extent> {
    let query = Sql::new(
        "SELECT CAST(coalesce(sum(o.device_count), 0) AS BIGINT) AS within, \
         (SELECT CAST(coalesce(sum(device_count), 0) AS BIGINT) FROM organizations) AS everywhere \
         FROM organizations o WHERE ",
    )
    .then(within(scope));
    Extent::read(connection, query).await
}

/// Reads those of the devices that belong to the scope.
pub(super) async fn read_within(
    connection: &impl Connection,
    scope: &Scope,
    wanted: &[DeviceId],
) -> Result<Vec<Device>> {
    let here = Sql::new("SELECT d.id AS id FROM devices d JOIN organizations o ON o.id = d.organization_id WHERE d.id")
        .among(Dialect::of(connection), wanted)
        .text(" AND ")
        .then(within(scope));
    let here: Vec<DeviceId> = ids(&all(connection, here).await?)?;
    read(connection, &here).await
}

/// Selects devices by their organizations, to be sorted at the end (`None`: only counted). `CROSS JOIN` fixes this
/// order of the tables for SQLite; PostgreSQL treats it as any other join.
pub(super) fn gathered(dialect: Dialect, order: Option<&Order>, scope: &Scope, search: Option<&str>) -> Sql {
    let activity = order.is_some_and(|order| order.has(DEVICE_LAST_ACTIVE));
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
        sql = sql.text(" AND s.key = d.key AND ").then(found(dialect, "s.search", text));
    }
    sql
}

async fn search(
    connection: &impl Connection,
    scope: &Scope,
    extent: &Extent,
    order: &Order,
    text: &str,
    page: PageRequest,
) -> Result<(Vec<DeviceId>, u64)> {
    let dialect = Dialect::of(connection);
    if extent.within * SMALL_SHARE <= extent.everywhere {
        let total = count(connection, gathered(dialect, None, scope, Some(text))).await?;
        let Some(window) = PageWindow::of(page, total) else { return Ok((Vec::new(), total)) };
        let gathered = gathered(dialect, Some(order), scope, Some(text));
        return Ok((window.ids(connection, DEVICES.relation, gathered, order).await?, total));
    }
    let matching = found(dialect, "s.search", text).text(" AND ").then(extent.outside_left_out(
        dialect,
        scope,
        "s.organization_id",
    ));
    let few = Sql::new("SELECT d.id AS id FROM device_search s CROSS JOIN devices d WHERE d.key = s.key AND ")
        .then(matching.clone())
        .then(limit_offset(FOUND_AT_ONCE_MAX + 1, 0));
    let few: Vec<DeviceId> = ids(&all(connection, few).await?)?;
    if few.len() <= FOUND_AT_ONCE_MAX as usize {
        let total = few.len() as u64;
        let Some(window) = PageWindow::of(page, total) else { return Ok((Vec::new(), total)) };
        return Ok((window.ids(connection, DEVICES.relation, these(dialect, &few), order).await?, total));
    }
    let total = count(connection, Sql::new(" FROM device_search s WHERE ").then(matching.clone())).await?;
    if total == extent.within {
        // A search that finds every device excludes none.
        return Ok((all_within(connection, scope, extent, order, page).await?, total));
    }
    let Some(window) = PageWindow::of(page, total) else { return Ok((Vec::new(), total)) };
    let (relation, from) = match order.indexed_in().filter(|_| total * DENSE_SHARE > extent.everywhere) {
        Some(index) => (index, searched_along(index, matching)),
        None => (DEVICES.relation, searched(matching)),
    };
    Ok((window.ids(connection, relation, from, order).await?, total))
}

/// Selects devices along an index in the order of the list, and tests the search text of each.
pub(super) fn searched_along(index: TableAlias, matching: Sql) -> Sql {
    let TableAlias { table, alias } = index;
    Sql::new(format!(" FROM {table} {alias} CROSS JOIN device_search s WHERE s.key = {alias}.key AND ")).then(matching)
}

/// Selects devices from the table of search texts, to be sorted at the end.
pub(super) fn searched(matching: Sql) -> Sql {
    let from = " FROM device_search s CROSS JOIN devices d CROSS JOIN device_activity a \
                WHERE s.key = d.key AND a.key = d.key AND ";
    Sql::new(from).then(matching)
}

/// Selects devices by their ids.
fn these(dialect: Dialect, devices: &[DeviceId]) -> Sql {
    Sql::new(" FROM devices d JOIN device_activity a ON a.key = d.key WHERE d.id").among(dialect, devices)
}
