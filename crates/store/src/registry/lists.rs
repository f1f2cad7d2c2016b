//! What all lists share: the part of the tree, the search, the order and the page.
//!
//! A page is found in two steps: first the ids in their order, from indexes where there are any, then the rows of
//! those ids. So no list computes anything for rows that it does not show.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::str::FromStr;

use isobar_model::access::Scope;
use isobar_model::ids::OrganizationId;
use isobar_model::page::{ListRequest, PageRequest, SortKey};
use sea_orm::ConnectionTrait;

use super::sql::{Dialect, Row, Sql, all, one};
use super::stretch::{Id, Stretch};
use crate::error::{Result, StoreError};

/// How a noun is listed.
pub(super) struct Listing {
    /// Its table.
    pub(super) table: &'static str,
    /// What its conditions and its order need besides, joined; the organizations that it belongs to are `o`.
    pub(super) joined: &'static str,
    /// The column of its id.
    pub(super) id: &'static str,
    /// The column that it is searched by, in lower case; none: it is not searched.
    pub(super) search: Option<&'static str>,
    /// Its fields that it can be ordered by, as the API calls them, and what stands for them in SQL.
    pub(super) sorts: &'static [(&'static str, &'static str)],
    /// How it is walked along an order; none: it never is.
    pub(super) walk: Option<Walk>,
    /// The order when none is asked for.
    pub(super) order: &'static str,
}

/// What a walk along an order needs.
pub(super) struct Walk {
    /// The column of the organization that a row belongs to.
    pub(super) organization: &'static str,
    /// The sorted columns that have an index over the whole table: by the column, then by the id.
    pub(super) along: &'static [&'static str],
}

/// Rows that are read at a time, when the things that they make are kept.
const ROWS_AT_ONCE: usize = 500;

/// The keys of an order, and whether each descends; the last is the id.
pub(super) type Keys = [(&'static str, bool)];

/// What one step along an order costs, as against one row gathered and sorted: in microseconds, measured on SQLite
/// with 100,000 devices and 10,000 users.
const WALK_STEP: f64 = 0.1;
const GATHER_STEP: f64 = 1.0;

/// How many things a list has, and how many of them there are everywhere.
pub(super) struct Extent {
    pub(super) within: u64,
    pub(super) everywhere: u64,
}

impl Extent {
    /// A walk passes things that it leaves out, up to the page. Only a single key has an index to walk along.
    pub(super) fn walking_is_cheaper(&self, keys: &Keys, stretch: &Stretch) -> bool {
        let passed = stretch.steps() as f64 * self.everywhere as f64 / self.within as f64;
        keys.len() == 2 && passed * WALK_STEP <= self.within as f64 * GATHER_STEP
    }

    /// The condition of a walk that leaves out what is not in the part of the tree; none where that is everything.
    pub(super) fn outside_left_out(&self, dialect: Dialect, scope: &Scope, organization: &str) -> Sql {
        if self.within == self.everywhere {
            return Sql::new("1 = 1");
        }
        let organization = dialect.unindexed(organization);
        Sql::new(format!("{organization} IN (SELECT o.id FROM organizations o WHERE ")).then(within(scope)).text(")")
    }
}

impl Listing {
    /// The keys of an order and the way of each. Only names of the table above become SQL.
    pub(super) fn keys(&self, sort: &[SortKey]) -> Result<Vec<(&'static str, bool)>> {
        if sort.is_empty() {
            let (field, descending) = self.order.strip_prefix('-').map_or((self.order, false), |field| (field, true));
            let mut keys = self.keys(&[SortKey { field: field.to_owned(), descending }])?;
            // What is listed newest first stays so among things of one millisecond: ids grow.
            keys.last_mut().into_iter().for_each(|id| id.1 = descending);
            return Ok(keys);
        }
        let mut keys = Vec::with_capacity(sort.len() + 1);
        for key in sort {
            let known = self.sorts.iter().find(|(field, _)| *field == key.field);
            let Some((_, column)) = known else {
                return Err(StoreError::unavailable(format!("a list has no field {:?} to sort by", key.field)));
            };
            // A column that comes again decides nothing any more.
            if !keys.iter().any(|(present, _)| present == column) {
                keys.push((*column, key.descending));
            }
        }
        keys.push((self.id, false));
        Ok(keys)
    }

    /// The ids of a page, in order, and how many there are in the whole list.
    pub(super) async fn page<T: Id>(
        &self,
        connection: &impl ConnectionTrait,
        condition: Sql,
        request: &ListRequest,
    ) -> Result<(Vec<T>, u64)> {
        let keys = self.keys(&request.sort)?;
        let matching = self.matching(connection, condition, request);
        let total = count(connection, matching.clone()).await?;
        let Some(stretch) = Stretch::of(request.page, total) else { return Ok((Vec::new(), total)) };
        Ok((stretch.ids(connection, matching, &keys).await?, total))
    }

    /// The same for what belongs to a part of the tree, and meets a condition besides. It is found in one of two ways,
    /// whichever costs less: along the order, leaving out what lies elsewhere, or from the organizations of that part,
    /// sorting at the end.
    pub(super) async fn page_within<T: Id>(
        &self,
        connection: &impl ConnectionTrait,
        scope: &Scope,
        condition: Sql,
        request: &ListRequest,
    ) -> Result<(Vec<T>, u64)> {
        let gathered = within(scope).text(" AND ").then(condition.clone());
        let keys = self.keys(&request.sort)?;
        let first = keys.first().map(|(column, _)| column);
        let walk = self.walk.as_ref().filter(|walk| first.is_some_and(|column| walk.along.contains(column)));
        let Some(walk) = walk.filter(|_| request.ids.is_none()) else {
            return self.page(connection, gathered, request).await;
        };
        let gathered = self.matching(connection, gathered, request);
        let extent = self.extent(connection, gathered.clone()).await?;
        let Some(stretch) = Stretch::of(request.page, extent.within) else { return Ok((Vec::new(), extent.within)) };
        let ids = if extent.walking_is_cheaper(&keys, &stretch) {
            let dialect = Dialect::of(connection);
            let inside = extent.outside_left_out(dialect, scope, walk.organization).text(" AND ").then(condition);
            let from = Sql::new(format!(" FROM {} WHERE ", self.table));
            stretch.walk(connection, from.then(inside).then(self.narrowed(dialect, request)), &keys).await?
        } else {
            stretch.ids(connection, gathered, &keys).await?
        };
        Ok((ids, extent.within))
    }

    /// `FROM` and `WHERE` of what meets a condition and the request.
    fn matching(&self, connection: &impl ConnectionTrait, condition: Sql, request: &ListRequest) -> Sql {
        let from = Sql::new(format!(" FROM {}{} WHERE ", self.table, self.joined));
        from.then(condition).then(self.narrowed(Dialect::of(connection), request))
    }

    async fn extent(&self, connection: &impl ConnectionTrait, matching: Sql) -> Result<Extent> {
        let everywhere = format!("(SELECT count(*) FROM {})", self.table);
        let query = Sql::new(format!("SELECT count(*) AS within, {everywhere} AS everywhere")).then(matching);
        let Some(row) = one(connection, query).await? else { return Ok(Extent { within: 0, everywhere: 0 }) };
        Ok(Extent { within: row.count("within")?, everywhere: row.count("everywhere")? })
    }

    /// `AND` the ids and the search that a list is asked for.
    fn narrowed(&self, dialect: Dialect, request: &ListRequest) -> Sql {
        let mut sql = Sql::default();
        if let Some(ids) = &request.ids {
            sql = sql.text(" AND ").text(self.id).among(dialect, ids.iter().map(|id| id.to_lowercase()));
        }
        if let (Some(column), Some(text)) = (self.search, &request.search) {
            sql = sql.text(" AND ").then(found(dialect, column, text));
        }
        sql
    }
}

/// How many rows there are of `FROM` and so on.
pub(super) async fn count(connection: &impl ConnectionTrait, from: Sql) -> Result<u64> {
    let row = one(connection, Sql::new("SELECT count(*) AS total").then(from)).await?;
    row.map_or(Ok(0), |row| row.count("total"))
}

/// The part of a list that is a page.
pub(super) fn window(limit: u32, offset: u64) -> Sql {
    Sql::new(" LIMIT ? OFFSET ?").bind(i64::from(limit)).bind(offset)
}

/// A search, without wildcards and without regard to case, in a column that is in lower case.
pub(super) fn found(dialect: Dialect, column: &str, text: &str) -> Sql {
    Sql::new(format!("{}({column}, ?) > 0", dialect.position())).bind(folded(text))
}

/// A text without regard to case. Rust folds for both dialects: theirs differ beyond ASCII. Letter by letter, so that
/// a part of a text folds to a part of the folded text.
pub(super) fn folded(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

/// What a row is searched by: its fields, kept apart so that no search spans two of them.
pub(super) fn searched<'a>(fields: impl IntoIterator<Item = &'a str>) -> String {
    let fields: Vec<_> = fields.into_iter().filter(|field| !field.is_empty()).collect();
    folded(&fields.join("\u{1f}"))
}

/// The ids that an answer holds.
pub(super) fn ids<T: FromStr>(rows: &[Row]) -> Result<Vec<T>> {
    rows.iter().map(|row| row.id("id")).collect()
}

/// The things of these ids, in no order: `select` ends where the ids go. Row by row and some at a time, so that a long
/// list never lies in memory as rows and as things.
pub(super) async fn read_by_id<K: Display, T>(
    connection: &impl ConnectionTrait,
    select: &str,
    ids: &[K],
    read: impl Fn(&Row) -> Result<T>,
) -> Result<Vec<T>> {
    let mut things = Vec::with_capacity(ids.len());
    for ids in ids.chunks(ROWS_AT_ONCE) {
        let rows = all(connection, Sql::new(select).among(Dialect::of(connection), ids)).await?;
        for row in &rows {
            things.push(read(row)?);
        }
    }
    Ok(things)
}

/// The things in the order of their ids.
pub(super) fn in_order<K: Hash + Eq, T>(ids: &[K], mut things: Vec<T>, id: impl Fn(&T) -> K) -> Vec<T> {
    let places: HashMap<&K, usize> = ids.iter().zip(0..).collect();
    things.sort_unstable_by_key(|thing| places.get(&id(thing)).copied());
    things
}

/// The list of a page whose request is at hand already.
pub(super) fn request_of(page: PageRequest) -> ListRequest {
    ListRequest { page, ..ListRequest::default() }
}

/// The condition that an organization `o` lies in a part of the tree.
pub(super) fn within(scope: &Scope) -> Sql {
    match scope {
        Scope::Everything => Sql::new("1 = 1"),
        Scope::Beneath { base, levels: Some(0 | 1) } => Sql::new("o.id = ?").bind(base.own()),
        Scope::Beneath { base, levels } => {
            let lineage = base.to_string();
            let beneath = Sql::new("o.lineage >= ? AND o.lineage < ?").bind(lineage.as_str()).bind(end_of(&lineage));
            match levels {
                None => beneath,
                Some(levels) => {
                    let deepest = base.level() as i64 + i64::from(*levels) - 1;
                    beneath.text(" AND o.level <= ?").bind(deepest)
                }
            }
        }
    }
}

/// Where the range of a subtree ends: every lineage in it goes on with digits, `-`, a to f and `/`, all below `~`.
pub(super) fn end_of(lineage: &str) -> String {
    format!("{lineage}~")
}

/// The names of organizations, asked for once for a whole page.
pub(super) async fn names_of(
    connection: &impl ConnectionTrait,
    wanted: impl IntoIterator<Item = OrganizationId>,
) -> Result<HashMap<OrganizationId, String>> {
    let mut wanted: Vec<_> = wanted.into_iter().collect();
    wanted.sort_unstable();
    wanted.dedup();
    let query = Sql::new("SELECT id, name FROM organizations WHERE id").among(Dialect::of(connection), wanted);
    all(connection, query).await?.iter().map(|row| Ok((row.id("id")?, row.text("name")?))).collect()
}
