//! Orders a list: the fields by which it can be sorted, and the `ORDER BY` of a request.
//!
//! The id breaks ties, in the direction of the last key: if that descends, the ids of equal rows descend too. An order
//! by one field and its reverse therefore use the same index, read from one end or the other, and a page near the end
//! of a list is read from there in any order.

use isobar_model::page::SortKey;
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::registry::sql::{Dialect, Sql};

/// Table and its alias in a statement. Each table has the ids of its rows in a column `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableAlias {
    pub(crate) table: &'static str,
    pub(crate) alias: &'static str,
}

/// Field by which a list can be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SortField {
    /// Name in the API.
    pub(crate) name: &'static str,
    /// SQL expression of the field.
    pub(crate) column: &'static str,
    /// Table that has an index by the column, then by the id, over all rows of the list.
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

/// Returns the API names of fields.
pub(super) const fn names<const N: usize>(fields: &[SortField; N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut index = 0;
    while index < N {
        names[index] = fields[index].name;
        index += 1;
    }
    names
}

/// Order of a list: its fields, with true for each that descends; then the id.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    keys: Vec<(SortField, bool)>,
    /// True if the rows are sorted at the end, regardless of any index.
    is_sorted: bool,
}

impl Order {
    /// Builds the requested order, or the one by `default`, a field of the list or `-` and a field. Only the fields'
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
            // A column that is named again decides nothing.
            if !order.iter().any(|(present, _)| present.column == field.column) {
                order.push((*field, descends));
            }
        }
        Ok(Self { keys: order, is_sorted: false })
    }

    /// Returns the same order for rows that were found in another way: SQLite's planner would otherwise pass all rows
    /// along an index instead of sorting the few.
    pub(super) fn sorted_at_the_end(&self) -> Self {
        Self { is_sorted: true, ..self.clone() }
    }

    /// Returns true if this column is one of the order's.
    pub(super) fn has(&self, column: &str) -> bool {
        self.keys.iter().any(|(field, _)| field.column == column)
    }

    /// Returns the first column of the order.
    pub(super) fn first_column(&self) -> &'static str {
        self.keys.first().map_or("", |(field, _)| field.column)
    }

    /// Returns the table with an index in this order, or `None` for several fields.
    pub(super) fn indexed_in(&self) -> Option<TableAlias> {
        match self.keys.as_slice() {
            [(field, _)] => field.indexed_in,
            _ => None,
        }
    }

    /// Builds `AND` with the condition that a row follows one of the same table, in an order by one field.
    pub(super) fn after(&self, dialect: Dialect, relation: TableAlias, after: Uuid) -> Sql {
        let TableAlias { table, alias } = relation;
        let column = self.first_column();
        let own = column.strip_prefix(alias).and_then(|own| own.strip_prefix('.')).unwrap_or(column);
        let column = if self.is_sorted { dialect.unindexed(column) } else { column.to_owned() };
        let way = if self.keys.last().is_some_and(|(_, descends)| *descends) { "<" } else { ">" };
        let (begin, id) = (format!("(SELECT f.{own} FROM {table} f WHERE f.id = ?)"), after.to_string());
        Sql::new(format!(" AND ({column}, {alias}.id) {way} ({begin}, ?)")).bind(id.as_str()).bind(id.as_str())
    }

    /// Builds `ORDER BY`, or its exact reverse, with the id of this table.
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
