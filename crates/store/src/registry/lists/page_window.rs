//! Locates a page in its list, and builds the statement that reads its ids.

use std::str::FromStr;

use isobar_model::page::PageRequest;
use uuid::Uuid;

use super::order::{Order, TableAlias};
use super::{ids, limit_offset};
use crate::error::Result;
use crate::registry::sql::{Connection, Dialect, Sql, all};

/// Position of a page in its list, counted from the nearer end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageWindow {
    size: u32,
    skipped: u64,
    from_end: bool,
    after: Option<Uuid>,
}

impl PageWindow {
    /// Locates a page in a list of this length; `None` if it lies past the end. One that follows an item is read with
    /// one row more, by which it is known if another page follows.
    pub(crate) fn of(page: PageRequest, total: u64) -> Option<Self> {
        if page.after.is_some() {
            let window = Self { size: page.limit.saturating_add(1), skipped: 0, from_end: false, after: page.after };
            return (total > 0).then_some(window);
        }
        let left = total.checked_sub(page.offset()).filter(|left| *left > 0)?;
        let size = page.limit.min(u32::try_from(left).unwrap_or(u32::MAX));
        let after = left - u64::from(size);
        let from_end = after < page.offset();
        Some(Self { size, skipped: after.min(page.offset()), from_end, after: None })
    }

    /// Returns how many rows lie between the nearer end of the list and the far end of the page.
    pub(crate) fn rows_passed(&self) -> u64 {
        self.skipped.saturating_add(u64::from(self.size))
    }

    /// Builds the statement that reads the ids of the page, from the nearer end. `from` is `FROM` and `WHERE` of the
    /// whole list; the ids are those of `relation`.
    pub(crate) fn statement(&self, dialect: Dialect, relation: TableAlias, from: Sql, order: &Order) -> Sql {
        let from = match self.after {
            Some(after) => from.then(order.after(dialect, relation, after)),
            None => from,
        };
        Sql::new(format!("SELECT {}.id AS id", relation.alias))
            .then(from)
            .text(&order.clause(dialect, relation, self.from_end))
            .then(limit_offset(self.size, self.skipped))
    }

    /// Reads the ids of the page, in the order of the list.
    pub(crate) async fn ids<T: FromStr>(
        &self,
        connection: &impl Connection,
        relation: TableAlias,
        from: Sql,
        order: &Order,
    ) -> Result<Vec<T>> {
        let mut found = ids(&all(connection, self.statement(Dialect::of(connection), relation, from, order)).await?)?;
        if self.from_end {
            found.reverse();
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Checks that a page is the same part of its list from whichever end it is counted.
        #[test]
        fn a_page_is_the_same_from_either_end(total in 0_u64..300, page in 1_u64..40, limit in 1_u32..60) {
            let list: Vec<u64> = (0..total).collect();
            let wanted: Vec<u64> =
                list.chunks(limit as usize).nth(page as usize - 1).map(<[u64]>::to_vec).unwrap_or_default();
            let found = PageWindow::of(PageRequest::new(page, limit), total).map(|window| {
                let mut way = list.clone();
                if window.from_end {
                    way.reverse();
                }
                let mut found: Vec<u64> =
                    way.into_iter().skip(window.skipped as usize).take(window.size as usize).collect();
                if window.from_end {
                    found.reverse();
                }
                // The window counts from the nearer end.
                assert!(window.rows_passed() <= total.div_ceil(2) + u64::from(limit));
                found
            });
            prop_assert_eq!(found.unwrap_or_default(), wanted);
        }
    }
}
