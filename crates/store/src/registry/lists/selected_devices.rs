//! Lists devices of a part of the tree that pass filters, in an order: a page of them, or all.

use std::sync::Arc;

use isobar_model::access::{CanList, Scope};
use isobar_model::device::Device;
use isobar_model::ids::DeviceId;
use isobar_model::page::{ListRequest, Page, PageRequest};

use super::device_filters::{DeviceSelection, Lookup, ReadyFilters};
use super::devices::{SMALL_SHARE, all_within, extent, read_within};
use super::listings::{DEVICE_LAST_ACTIVE, DEVICES};
use super::order::{Order, TableAlias};
use super::page_bytes::METADATA;
use super::page_window::PageWindow;
use super::{Extent, count, devices, in_order, limit_offset, page_of, within};
use crate::error::{Result, StoreError};
use crate::registry::Registry;
use crate::registry::nouns::devices::read;
use crate::registry::sql::{Connection, Dialect, Sql, one};
use crate::telemetry::FilterTest;

/// Bytes of devices' metadata that are read together.
const DEVICES_BYTES_AT_ONCE: usize = 1 << 20;
/// Devices whose metadata is compared together.
const METADATA_AT_ONCE: usize = 256;
/// Bytes of metadata that are compared on the thread that read them; more are compared on a thread that may block.
const METADATA_HERE_BYTES_MAX: usize = 64 << 10;
/// Separator between the metadata of devices that are read as one text: JSON contains it only escaped.
const SEPARATOR: &str = "\u{1e}";
/// Costs of one row, in microseconds, measured on SQLite with 100,000 devices in orders similar to that of the table.
/// In turn: a row passed along an index and looked up in its table; a row looked up and sorted; a row put into a set by
/// an index of its own; a row passed along another index and looked up in that set.
const LOOKED_UP_ROW_COST: f64 = 1.5;
const FOUND_ROW_COST: f64 = 5.0;
const SET_ROW_COST: f64 = 0.5;
const PROBED_ROW_COST: f64 = 0.5;
/// Share of all devices: if more pass, SQLite reads all devices in the order of the table, because rows that an index
/// finds are scattered in it.
const MANY_SHARE: u64 = 8;

impl Registry {
    /// Lists a page of the devices of a part of the tree that pass the filters, at one moment. The unwritten state in
    /// `selection` decides if devices pass, but is not in the answer.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`] if their metadata takes more than [`crate::telemetry::PAGE_BYTES_MAX`].
    pub async fn devices_selected(
        &self,
        permit: &CanList,
        request: &ListRequest,
        selection: &DeviceSelection,
    ) -> Result<Page<Device>> {
        let tx = self.db.snapshot().await?;
        DEVICES.allow_after(&tx, permit.scope(), request).await?;
        let (ids, total) = page(&tx, permit.scope(), request, selection).await?;
        METADATA.are_a_page(&tx, &ids).await?;
        let devices = read(&tx, &ids).await?;
        Ok(page_of(request, (&ids, devices, total), |device| device.id))
    }

    /// Finds the ids of all devices of a part of the tree that pass the filters, in order, at one moment; the page of
    /// the request is ignored. [`Registry::devices_of`] reads the devices.
    pub async fn device_ids_selected(
        &self,
        permit: &CanList,
        request: &ListRequest,
        selection: &DeviceSelection,
    ) -> Result<Vec<DeviceId>> {
        let request = ListRequest { page: PageRequest::new(1, u32::MAX), ..request.clone() };
        let tx = self.db.snapshot().await?;
        let (ids, _) = page(&tx, permit.scope(), &request, selection).await?;
        Ok(ids)
    }

    /// Reads devices by their ids, in the order of the ids, if they are in the part of the tree now: as many, from the
    /// first on, as may be in memory together. Also returns how many ids were read, at least one.
    pub async fn devices_of(&self, permit: &CanList, wanted: &[DeviceId]) -> Result<(Vec<Device>, usize)> {
        let tx = self.db.snapshot().await?;
        let together = METADATA.first_of(&tx, wanted, DEVICES_BYTES_AT_ONCE).await?;
        let wanted = wanted.get(..together).unwrap_or_default();
        let devices = read_within(&tx, permit.scope(), wanted).await?;
        Ok((in_order(wanted, devices, |device| device.id), together))
    }
}

async fn page(
    connection: &impl Connection,
    scope: &Scope,
    request: &ListRequest,
    selection: &DeviceSelection,
) -> Result<(Vec<DeviceId>, u64)> {
    if selection.filters.is_empty() {
        return devices::page(connection, scope, request).await;
    }
    let order = DEVICES.order(request)?;
    let extent = extent(connection, scope).await?;
    if extent.within == 0 {
        return Ok((Vec::new(), 0));
    }
    let mut filters = ReadyFilters::of(connection, scope, selection).await?;
    look_at_metadata(connection, scope, &extent, &mut filters).await?;
    if request.ids.is_some() || request.search.is_some() {
        let condition = within(scope).text(" AND ").then(filters.condition(Lookup::Any));
        return DEVICES.page(connection, condition, request).await;
    }
    let total = match &filters.passing {
        Some(passing) if filters.decided.is_empty() => passing.len() as u64,
        _ => count(connection, counted(&filters, scope, &extent)).await?,
    };
    if total == extent.within {
        // Filters that every device passes exclude none.
        return Ok((all_within(connection, scope, &extent, &order, request.page).await?, total));
    }
    let Some(window) = PageWindow::of(request.page, total) else { return Ok((Vec::new(), total)) };
    let ids = match index_for(filters.dialect, &order, &extent, total, &window) {
        Some((index, lookup)) => {
            let along = along(&filters, scope, &extent, index, lookup);
            window.ids(connection, index, along, &order).await?
        }
        None => {
            let gathered = gathered(&filters, scope, &extent, Some(&order), lookup_of(&extent, total));
            window.ids(connection, DEVICES.relation, gathered, &order.sorted_at_the_end()).await?
        }
    };
    Ok((ids, total))
}

/// Chooses the index along which a page is found, and the way to apply the filters to its rows; `None` if collecting
/// all that pass is faster.
fn index_for(
    dialect: Dialect,
    order: &Order,
    extent: &Extent,
    total: u64,
    window: &PageWindow,
) -> Option<(TableAlias, Lookup<'static>)> {
    let (index, column) = (order.indexed_in()?, order.first_column());
    let passed = window.rows_passed() as f64 * extent.everywhere as f64 / total as f64;
    // A set holds the devices that pass in the whole tree.
    let in_set = total as f64 * extent.everywhere as f64 / extent.within as f64;
    let (gathered, looked_up) = (total as f64 * FOUND_ROW_COST, passed * LOOKED_UP_ROW_COST);
    let in_sets = in_set * SET_ROW_COST + passed * PROBED_ROW_COST;
    if dialect.reads_scattered_rows_dearly() && in_sets < looked_up.min(gathered) {
        let key = if index.alias == "a" { "a.key" } else { "d.key" };
        return Some((index, Lookup::InSets { order: column, key }));
    }
    (looked_up <= gathered).then_some((index, Lookup::Along(column)))
}

/// Selects devices along an index in the order of the list, each tested in its table, or in sets of devices that pass.
pub(super) fn along(
    filters: &ReadyFilters<'_>,
    scope: &Scope,
    extent: &Extent,
    index: TableAlias,
    lookup: Lookup<'_>,
) -> Sql {
    let TableAlias { table, alias } = index;
    let other = match (lookup, alias) {
        (Lookup::InSets { .. }, _) => " WHERE ",
        (_, "d") if filters.needs_activity() => " CROSS JOIN device_activity a WHERE a.key = d.key AND ",
        (_, "d") => " WHERE ",
        _ => " CROSS JOIN devices d WHERE d.key = a.key AND ",
    };
    Sql::new(format!(" FROM {table} {alias}{other}"))
        .then(extent.outside_left_out(filters.dialect, scope, &format!("{alias}.organization_id")))
        .text(" AND ")
        .then(filters.condition(lookup))
}

/// Selects devices by whichever start visits few: the organizations of a small part of the tree, or else the rows that
/// `lookup` finds; to be sorted at the end (`None`: unsorted).
pub(super) fn gathered(
    filters: &ReadyFilters<'_>,
    scope: &Scope,
    extent: &Extent,
    order: Option<&Order>,
    lookup: Lookup<'_>,
) -> Sql {
    let activity = filters.needs_activity() || order.is_some_and(|order| order.has(DEVICE_LAST_ACTIVE));
    from(filters.dialect, scope, extent, activity).then(filters.condition(lookup))
}

/// Selects the devices that pass, only to be counted: if the filters compare activity only, its index alone is read.
pub(super) fn counted(filters: &ReadyFilters<'_>, scope: &Scope, extent: &Extent) -> Sql {
    if !filters.is_of_activity_alone() || is_small(extent) {
        return gathered(filters, scope, extent, None, lookup_in(extent));
    }
    Sql::new(" FROM device_activity a WHERE ")
        .then(extent.outside_left_out(filters.dialect, scope, "a.organization_id"))
        .text(" AND ")
        .then(filters.condition(Lookup::Any))
}

/// Chooses the look-up in a part of the tree: in a small one, devices are looked up by their organization only.
pub(super) fn lookup_in(extent: &Extent) -> Lookup<'static> {
    if is_small(extent) { Lookup::Along("") } else { Lookup::Any }
}

/// Chooses the look-up as [`lookup_in`] does, if this many devices pass.
fn lookup_of(extent: &Extent, total: u64) -> Lookup<'static> {
    if total * MANY_SHARE > extent.everywhere { Lookup::Along("") } else { lookup_in(extent) }
}

/// Chooses the look-up of all devices that pass; counts them up to the limit of many to find out if they are many.
pub(super) async fn lookup_of_all(
    connection: &impl Connection,
    filters: &ReadyFilters<'_>,
    scope: &Scope,
    extent: &Extent,
) -> Result<Lookup<'static>> {
    if is_small(extent) {
        return Ok(lookup_in(extent));
    }
    let many = u32::try_from(extent.everywhere / MANY_SHARE + 1).unwrap_or(u32::MAX);
    let passing = Sql::new(" FROM (SELECT 1 AS passes").then(counted(filters, scope, extent));
    let passing = count(connection, passing.then(limit_offset(many, 0)).text(") passing")).await?;
    Ok(lookup_of(extent, passing))
}

fn is_small(extent: &Extent) -> bool {
    extent.within * SMALL_SHARE <= extent.everywhere
}

/// Builds `FROM` the devices of the part of the tree and `WHERE`, up to a condition. `CROSS JOIN` fixes the order of
/// the tables for SQLite; PostgreSQL treats it as any other join.
pub(super) fn from(dialect: Dialect, scope: &Scope, extent: &Extent, activity: bool) -> Sql {
    if is_small(extent) {
        let (joined, on) = if activity { (" CROSS JOIN device_activity a", " AND a.key = d.key") } else { ("", "") };
        let devices = format!(" FROM organizations o CROSS JOIN devices d{joined} WHERE d.organization_id = o.id{on}");
        return Sql::new(devices).text(" AND ").then(within(scope)).text(" AND ");
    }
    let joined = if activity { " JOIN device_activity a ON a.key = d.key" } else { "" };
    Sql::new(format!(" FROM devices d{joined} WHERE "))
        .then(extent.outside_left_out(dialect, scope, "d.organization_id"))
        .text(" AND ")
}

/// Finds the devices that also pass the filters on metadata, and restricts the condition to them.
pub(super) async fn look_at_metadata(
    connection: &impl Connection,
    scope: &Scope,
    extent: &Extent,
    filters: &mut ReadyFilters<'_>,
) -> Result<()> {
    if filters.meta.is_empty() {
        return Ok(());
    }
    // Read one row, regardless of their number: reading rows costs more than finding them.
    let from = from(filters.dialect, scope, extent, filters.needs_activity());
    let keys = Sql::new("SELECT string_agg(CAST(d.key AS TEXT), ',') AS keys")
        .then(from)
        .then(filters.condition_of_written(lookup_in(extent)));
    let keys = one(connection, keys).await?.map_or(Ok(None), |row| row.text_if("keys"))?.unwrap_or_default();
    let mut keys: Vec<i64> = keys.split(',').filter_map(|key| key.parse().ok()).collect();
    keys.sort_unstable();
    let mut passing = Vec::new();
    for keys in keys.chunks(METADATA_AT_ONCE) {
        let metadata = Sql::new("SELECT string_agg(CAST(d.key AS TEXT) || ' ' || d.meta, ?) AS metadata")
            .bind(SEPARATOR)
            .text(" FROM devices d WHERE d.key")
            .among_numbers(filters.dialect, keys);
        let metadata = one(connection, metadata).await?.map_or(Ok(None), |row| row.text_if("metadata"))?;
        passing.extend(passing_of(metadata.unwrap_or_default(), &filters.meta).await?);
    }
    filters.passing = Some(passing);
    Ok(())
}

/// Returns those of the devices whose metadata passes.
async fn passing_of(metadata: String, tests: &Arc<[FilterTest]>) -> Result<Vec<i64>> {
    let tests = Arc::clone(tests);
    let is_long = metadata.len() > METADATA_HERE_BYTES_MAX;
    let look = move || -> Vec<i64> {
        let devices = metadata.split(SEPARATOR).filter_map(|device| device.split_once(' '));
        let passing = devices.filter(|(_, meta)| tests.iter().all(|test| test.holds_for_json(meta)));
        passing.filter_map(|(key, _)| key.parse().ok()).collect()
    };
    if is_long { tokio::task::spawn_blocking(look).await.map_err(StoreError::unavailable) } else { Ok(look()) }
}
