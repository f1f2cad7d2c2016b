//! The order of a list: the fields that it can be sorted by, and the `ORDER BY` of a request.
//!
//! Ties are broken by the id, in the direction of the last key: where that descends, so do the ids of rows that are alike.
//! An order by one field and its reverse are therefore the same index, read from one end or from the other, and a page near
//! the end of a list is read from there, whatever its order.

use isobar_model::page::SortKey;

use crate::error::{Result, StoreError};
use crate::registry::sql::Dialect;

/// A table and the name that it has in a statement. Each has its rows' ids in a column `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableAlias {
    pub(crate) table: &'static str,
    pub(crate) alias: &'static str,
}

/// A field that a list can be sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SortField {
    /// Its name in the API.
    pub(crate) name: &'static str,
    /// What stands for it in SQL.
    pub(crate) column: &'static str,
    /// The table that has an index by the column, then by the id, over all rows of the list.
    indexed_in: Option<TableAlias>,
}

impl SortField {
    pub(crate) const fn unindexed(name: &'static str, column: &'static str) -> Self {
        Self { name, column, indexed_in: None }
    }

    pub(crate) const fn indexed(name: &'static str, column: &'static str, indexed_in: TableAlias) -> Self {
        Self { name, column, indexed_in: Some(indexed_in) }
    }
}

/// The names of fields, as the API calls them.
pub(super) const fn names<const N: usize>(fields: &[SortField; N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut index = 0;
    while index < N {
        names[index] = fields[index].name;
        index += 1;
    }
    names
}

/// An order of a list: its fields, and whether each descends; then the id.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    keys: Vec<(SortField, bool)>,
    /// Whether the rows are sorted at the end, whatever index there is.
    is_sorted: bool,
}

impl Order {
    /// The order that is asked for, or else the one by `default`, a field of the list or `-` and a field. Only the fields'
    /// own columns become SQL.
    pub(super) fn of(fields: &[SortField], default: &str, asked: &[SortKey]) -> Result<Self> {
        let keys: Vec<_> = if asked.is_empty() {
            vec![default.strip_prefix('-').map_or((default, false), |name| (name, true))]
        } else {
            asked.iter().map(|key| (key.field.as_str(), key.descending)).collect()
        };
        let mut order: Vec<(SortField, bool)> = Vec::with_capacity(keys.len());
        for (name, descends) in keys {
            let Some(field) = fields.iter().find(|field| field.name == name) else {
                return Err(StoreError::unavailable(format!("a list has no field {name:?} to sort by")));
            };
            // A column that comes again decides nothing.
            if !order.iter().any(|(present, _)| present.column == field.column) {
                order.push((*field, descends));
            }
        }
        Ok(Self { keys: order, is_sorted: false })
    }

    /// The same order of rows that were found by something else: SQLite's planner would rather pass all rows along an index
    /// than sort the few.
    pub(super) fn sorted_at_the_end(&self) -> Self {
        Self { is_sorted: true, ..self.clone() }
    }

    /// Whether the list is sorted by this column, among others.
    pub(super) fn has(&self, column: &str) -> bool {
        self.keys.iter().any(|(field, _)| field.column == column)
    }

    /// The column that it begins with.
    pub(super) fn first_column(&self) -> &'static str {
        self.keys.first().map_or("", |(field, _)| field.column)
    }

    /// The table with an index in this order; none where there are several fields.
    pub(super) fn indexed_in(&self) -> Option<TableAlias> {
        match self.keys.as_slice() {
            [(field, _)] => field.indexed_in,
            _ => None,
        }
    }

    /// `ORDER BY`, or the very reverse; the id is that of this table.
    pub(super) fn clause(&self, dialect: Dialect, relation: TableAlias, reversed: bool) -> String {
        let way = |descends: bool| if descends != reversed { " DESC" } else { "" };
        let mut clause = " ORDER BY ".to_owned();
        for (field, descends) in &self.keys {
            let column = if self.is_sorted { dialect.unindexed(field.column) } else { field.column.to_owned() };
            clause.push_str(&format!("{column}{}, ", way(*descends)));
        }
        let descends = self.keys.last().is_some_and(|(_, descends)| *descends);
        clause + relation.alias + ".id" + way(descends)
    }
}
