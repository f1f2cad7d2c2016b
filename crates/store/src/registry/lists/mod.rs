//! Implements the parts that all lists share: the part of the tree, the search, the order and the page.
//!
//! A page is found in two steps: first the ids in order, from indexes if there are any, then the rows of those ids. No
//! list computes anything for rows that it does not show.

mod alarms;
mod device_filters;
mod device_locations;
mod device_summary;
mod devices;
mod listings;
mod order;
mod page_bytes;
mod page_window;
mod selected_devices;
mod subtree_devices;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::str::FromStr;

use isobar_model::access::{Lineage, Scope};
use isobar_model::ids::OrganizationId;
use isobar_model::page::{ListRequest, Page, PageRequest};
use uuid::Uuid;

pub use alarms::{AlarmField, AlarmFilter};
pub use device_filters::{DeviceField, DeviceFilter, DeviceSelection, UnwrittenDevices};
pub use device_summary::{ActiveDevices, DeviceSummary, ProjectDevices};
pub use listings::sortable;
pub(crate) use listings::{API_KEYS, Listing, ORGANIZATIONS, PROJECTS, SETTING_HISTORY, USERS, urgency};
use order::{Order, TableAlias};
pub(crate) use page_bytes::{METADATA_AND_SETTINGS, SETTING_VALUES, is_a_page};
use page_window::PageWindow;

use super::sql::{Connection, Dialect, Row, Sql, all, one};
use crate::error::{Result, StoreError};

/// Rows that are read at a time when their results stay in memory.
const LIST_ROWS_AT_ONCE: usize = 500;

/// Cost of one row passed in an index, and (next constant) of one row collected and sorted: in microseconds, measured
/// on SQLite with 100,000 devices and 10,000 users.
const INDEX_ROW_COST: f64 = 0.1;
const SORTED_ROW_COST: f64 = 1.0;

/// Number of rows of a list, and of all rows of its table.
pub(crate) struct Extent {
    within: u64,
    everywhere: u64,
}

impl Extent {
    async fn read(connection: &impl Connection, query: Sql) -> Result<Self> {
        let Some(row) = one(connection, query).await? else { return Ok(Self { within: 0, everywhere: 0 }) };
        Ok(Self { within: row.count("within")?, everywhere: row.count("everywhere")? })
    }

    /// Returns true if the page is found sooner along an index over the rows of the whole tree, skipping rows outside
    /// the list, than by collecting the list and sorting it.
    fn index_is_cheaper(&self, window: &PageWindow) -> bool {
        let passed = window.rows_passed() as f64 * self.everywhere as f64 / self.within as f64;
        passed * INDEX_ROW_COST <= self.within as f64 * SORTED_ROW_COST
    }

    /// Builds the condition that excludes rows outside the part of the tree; always true if the part is everything.
    fn outside_left_out(&self, dialect: Dialect, scope: &Scope, organization: &str) -> Sql {
        if self.within == self.everywhere {
            return Sql::new("1 = 1");
        }
        let organization = dialect.unindexed(organization);
        Sql::new(format!("{organization} IN (SELECT o.id FROM organizations o WHERE ")).then(within(scope)).text(")")
    }
}

impl Listing {
    fn order(&self, request: &ListRequest) -> Result<Order> {
        Order::of(self.fields, self.default, &request.sort)
    }

    /// Finds the ids of a page, in order, and counts the whole list.
    pub(crate) async fn page<T: FromStr>(
        &self,
        connection: &impl Connection,
        condition: Sql,
        request: &ListRequest,
    ) -> Result<(Vec<T>, u64)> {
        let order = self.order(request)?;
        let gathered = self.gathered(Dialect::of(connection), condition, request);
        let total = count(connection, gathered.clone()).await?;
        let Some(window) = PageWindow::of(request.page, total) else { return Ok((Vec::new(), total)) };
        Ok((window.ids(connection, self.relation, gathered, &order).await?, total))
    }

    /// Finds the ids of a page of rows that belong to a part of the tree and meet a condition, and counts the whole
    /// list. Takes the cheaper of two ways: along an index in the order, skipping rows outside the part, or from the
    /// organizations of the part, sorting at the end.
    pub(crate) async fn page_within<T: FromStr>(
        &self,
        connection: &impl Connection,
        scope: &Scope,
        condition: Sql,
        request: &ListRequest,
    ) -> Result<(Vec<T>, u64)> {
        let order = self.order(request)?;
        let gathered = within(scope).text(" AND ").then(condition.clone());
        let Some(index) = order.indexed_in().filter(|_| request.ids.is_none()) else {
            return self.page(connection, gathered, request).await;
        };
        let dialect = Dialect::of(connection);
        let gathered = self.gathered(dialect, gathered, request);
        let extent = self.extent(connection, gathered.clone()).await?;
        let Some(window) = PageWindow::of(request.page, extent.within) else { return Ok((Vec::new(), extent.within)) };
        let ids = if extent.index_is_cheaper(&window) {
            let along = self.along(dialect, index, &extent, scope).text(" AND ").then(condition);
            window.ids(connection, index, along.then(self.narrowed(dialect, request)), &order).await?
        } else {
            window.ids(connection, self.relation, gathered, &order).await?
        };
        Ok((ids, extent.within))
    }

    /// Refuses a page that follows a row outside this part of the tree, whether that is elsewhere or nowhere.
    pub(crate) async fn allow_after(
        &self,
        connection: &impl Connection,
        scope: &Scope,
        request: &ListRequest,
    ) -> Result<()> {
        let Some(after) = request.page.after else { return Ok(()) };
        let TableAlias { table, alias } = self.relation;
        let joined = match self.organization {
            Some(organization) => format!(" JOIN organizations o ON o.id = {alias}.{organization}"),
            None => String::new(),
        };
        let query = Sql::new(format!("SELECT {alias}.id FROM {table} {alias}{joined} WHERE {alias}.id = ? AND "));
        let row = one(connection, query.bind(after.to_string().as_str()).then(within(scope))).await?;
        row.map(|_| ()).ok_or(StoreError::NotListed)
    }

    /// Builds `FROM` and `WHERE` of the rows that meet a condition and the request.
    fn gathered(&self, dialect: Dialect, condition: Sql, request: &ListRequest) -> Sql {
        let from = Sql::new(format!(" FROM {} {}{} WHERE ", self.relation.table, self.relation.alias, self.joined));
        from.then(condition).then(self.narrowed(dialect, request))
    }

    /// Builds `FROM` a table that has an index in the order of the list, and `WHERE` a row belongs to the part of the
    /// tree.
    fn along(&self, dialect: Dialect, index: TableAlias, extent: &Extent, scope: &Scope) -> Sql {
        let organization = format!("{}.{}", index.alias, self.organization.unwrap_or("id"));
        Sql::new(format!(" FROM {} {} WHERE ", index.table, index.alias)).then(extent.outside_left_out(
            dialect,
            scope,
            &organization,
        ))
    }

    async fn extent(&self, connection: &impl Connection, gathered: Sql) -> Result<Extent> {
        let everywhere = format!("(SELECT count(*) FROM {})", self.relation.table);
        let query = Sql::new(format!("SELECT count(*) AS within, {everywhere} AS everywhere")).then(gathered);
        Extent::read(connection, query).await
    }

    /// Builds `AND` with the ids and the search of a request.
    fn narrowed(&self, dialect: Dialect, request: &ListRequest) -> Sql {
        let mut sql = Sql::default();
        if let Some(ids) = &request.ids {
            let id = format!(" AND {}.id", self.relation.alias);
            sql = sql.text(&id).among(dialect, ids.iter().map(|id| id.to_lowercase()));
        }
        if let (Some(column), Some(text)) = (self.search, &request.search) {
            sql = sql.text(" AND ").then(found(dialect, column, text));
        }
        sql
    }
}

/// Returns the page of these ids. One that follows an item was read with a row more, which is cut off; a list that is
/// sorted by creation names the item that the next page follows.
pub(crate) fn page_of<K: Copy + Hash + Eq + Into<Uuid>, T>(
    request: &ListRequest,
    (ids, items, total): (&[K], Vec<T>, u64),
    id: impl Fn(&T) -> K,
) -> Page<T> {
    let limit = request.page.limit as usize;
    let mut page = Page::new(in_order(ids, items, id), total, request.page);
    page.items.truncate(limit);
    if request.is_by_creation() {
        let has_next = match request.page.after {
            Some(_) => ids.len() > limit,
            None => request.page.offset().saturating_add(ids.len() as u64) < total,
        };
        page.next = Some(ids.iter().take(limit).next_back().filter(|_| has_next).map(|id| (*id).into()));
    }
    page
}

/// Counts the rows of a `FROM` clause.
pub(crate) async fn count(connection: &impl Connection, from: Sql) -> Result<u64> {
    let row = one(connection, Sql::new("SELECT count(*) AS total").then(from)).await?;
    row.map_or(Ok(0), |row| row.count("total"))
}

/// Builds the `LIMIT` and `OFFSET` of a page.
pub(crate) fn limit_offset(limit: u32, offset: u64) -> Sql {
    Sql::new(" LIMIT ? OFFSET ?").bind(i64::from(limit)).bind(offset)
}

/// Builds the condition that a column in lower case contains a text, without wildcards and regardless of case.
pub(crate) fn found(dialect: Dialect, column: &str, text: &str) -> Sql {
    Sql::new(format!("{}({column}, ?) > 0", dialect.position())).bind(folded(text))
}

/// Folds the case of a text. Rust folds for both dialects: theirs differ beyond ASCII. Folding goes letter by letter,
/// so that a part of a text folds to a part of the folded text.
pub(crate) fn folded(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

/// Builds the search text of a row: its fields, separated so that no search spans two of them.
pub(crate) fn searched<'a>(fields: impl IntoIterator<Item = &'a str>) -> String {
    let fields: Vec<_> = fields.into_iter().filter(|field| !field.is_empty()).collect();
    folded(&fields.join("\u{1f}"))
}

/// Reads the ids in an answer.
pub(crate) fn ids<T: FromStr>(rows: &[Row]) -> Result<Vec<T>> {
    rows.iter().map(|row| row.id("id")).collect()
}

/// Reads the rows with these ids, unordered; `select` ends where the ids follow. Reads in batches, so that a long list
/// is never in memory both as rows and as values.
pub(crate) async fn read_by_id<K: Display, T>(
    connection: &impl Connection,
    select: &str,
    ids: &[K],
    read: impl Fn(&Row) -> Result<T>,
) -> Result<Vec<T>> {
    let mut things = Vec::with_capacity(ids.len());
    for ids in ids.chunks(LIST_ROWS_AT_ONCE) {
        let rows = all(connection, Sql::new(select).among(Dialect::of(connection), ids)).await?;
        for row in &rows {
            things.push(read(row)?);
        }
    }
    Ok(things)
}

/// Sorts values by the order of their ids.
pub(crate) fn in_order<K: Hash + Eq, T>(ids: &[K], mut things: Vec<T>, id: impl Fn(&T) -> K) -> Vec<T> {
    let places: HashMap<&K, usize> = ids.iter().zip(0..).collect();
    things.sort_unstable_by_key(|thing| places.get(&id(thing)).copied());
    things
}

/// Builds the request of a list from a page alone.
pub(crate) fn request_of(page: PageRequest) -> ListRequest {
    ListRequest { page, ..ListRequest::default() }
}

/// Builds the condition that an organization `o` belongs to a part of the tree.
pub(crate) fn within(scope: &Scope) -> Sql {
    match scope {
        Scope::Everything => Sql::new("1 = 1"),
        Scope::Beneath { base, levels } => beneath(base, *levels),
        Scope::UsableIn { base, levels } => {
            let above = base.ids().iter().filter(|id| **id != base.own());
            let part = Sql::new("(").then(beneath(base, *levels));
            above.fold(part, |part, id| part.text(" OR o.id = ?").bind(*id)).text(")")
        }
    }
}

/// Builds the condition that an organization `o` is this one, or within this many generations of it.
fn beneath(base: &Lineage, levels: Option<u32>) -> Sql {
    if let Some(0 | 1) = levels {
        return Sql::new("o.id = ?").bind(base.own());
    }
    let lineage = base.to_string();
    let beneath = Sql::new("o.lineage >= ? AND o.lineage < ?").bind(lineage.as_str()).bind(end_of(&lineage));
    match levels {
        None => beneath,
        Some(levels) => {
            let deepest = base.level() as i64 + i64::from(levels) - 1;
            beneath.text(" AND o.level <= ?").bind(deepest)
        }
    }
}

/// Returns the end of a subtree's range of lineages: each lineage in it continues with digits, `-`, a to f and `/`, all
/// below `~`.
pub(crate) fn end_of(lineage: &str) -> String {
    format!("{lineage}~")
}

/// Reads the names of organizations, by one query for a whole page.
pub(crate) async fn names_of(
    connection: &impl Connection,
    wanted: impl IntoIterator<Item = OrganizationId>,
) -> Result<HashMap<OrganizationId, String>> {
    let mut wanted: Vec<_> = wanted.into_iter().collect();
    wanted.sort_unstable();
    wanted.dedup();
    let query = Sql::new("SELECT id, name FROM organizations WHERE id").among(Dialect::of(connection), wanted);
    all(connection, query).await?.iter().map(|row| Ok((row.id("id")?, row.text("name")?))).collect()
}
