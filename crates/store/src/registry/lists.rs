//! What all lists share: the part of the tree, the search, the order and the page.
//!
//! A page is found in two steps: first the ids in their order, from indexes where there are any, then the rows of
//! those ids. So no list computes anything for rows that it does not show.

use std::collections::HashMap;
use std::hash::Hash;
use std::str::FromStr;

use isobar_model::access::Scope;
use isobar_model::ids::OrganizationId;
use isobar_model::page::{ListRequest, PageRequest, SortKey};
use sea_orm::ConnectionTrait;

use super::sql::{Dialect, Row, Sql, all, one};
use crate::error::{Result, StoreError};

/// How a noun is listed.
pub(super) struct Listing {
    /// Tables, joined.
    pub(super) from: &'static str,
    /// The column of its id.
    pub(super) id: &'static str,
    /// The column that it is searched by, in lower case; none: it is not searched.
    pub(super) search: Option<&'static str>,
    /// Its fields that it can be ordered by, as the API calls them, and what stands for them in SQL.
    pub(super) sorts: &'static [(&'static str, &'static str)],
    /// The order when none is asked for.
    pub(super) order: &'static str,
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
    pub(super) async fn page<T: FromStr>(
        &self,
        connection: &impl ConnectionTrait,
        condition: Sql,
        request: &ListRequest,
    ) -> Result<(Vec<T>, u64)> {
        let dialect = Dialect::of(connection);
        let keys = self.keys(&request.sort)?;
        let matching =
            Sql::new(format!(" FROM {} WHERE ", self.from)).then(condition).then(self.narrowed(dialect, request));
        let counted = one(connection, Sql::new("SELECT count(*) AS total").then(matching.clone())).await?;
        let total = counted.map_or(Ok(0), |row| row.count("total"))?;
        if request.page.offset() >= total {
            return Ok((Vec::new(), total));
        }
        let query = Sql::new(format!("SELECT {} AS id", self.id))
            .then(matching)
            .text(&ordered(&keys, false))
            .then(window(request.page.limit, request.page.offset()));
        Ok((ids(&all(connection, query).await?)?, total))
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

/// `ORDER BY` the keys, or the very reverse.
pub(super) fn ordered(keys: &[(&str, bool)], reversed: bool) -> String {
    let parts: Vec<_> = keys
        .iter()
        .map(|(column, descending)| format!("{column}{}", if *descending != reversed { " DESC" } else { "" }))
        .collect();
    format!(" ORDER BY {}", parts.join(", "))
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

/// The things in the order of their ids. One that went away in between is left out.
pub(super) fn in_order<K: Hash + Eq, T>(ids: &[K], things: Vec<T>, id: impl Fn(&T) -> K) -> Vec<T> {
    let mut by_id: HashMap<K, T> = things.into_iter().map(|thing| (id(&thing), thing)).collect();
    ids.iter().filter_map(|wanted| by_id.remove(wanted)).collect()
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
