//! Where a page lies in its list, and how its ids are found there.

use std::str::FromStr;

use isobar_model::page::PageRequest;
use sea_orm::{ConnectionTrait, Value};

use super::lists::{Keys, count, ids, window};
use super::sql::{Bound, Row, Sql, all};
use crate::error::Result;

/// Where a page lies in its list, counted from the end that is nearer to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    size: u32,
    skipped: u64,
    backwards: bool,
}

/// An id of what is listed.
pub(super) trait Id: FromStr + Copy + Bound {}

impl<T: FromStr + Copy + Bound> Id for T {}

impl Stretch {
    /// A page of a list of so many; none: it lies past the end.
    pub(super) fn of(page: PageRequest, total: u64) -> Option<Self> {
        let left = total.checked_sub(page.offset()).filter(|left| *left > 0)?;
        let size = page.limit.min(u32::try_from(left).unwrap_or(u32::MAX));
        let after = left - u64::from(size);
        let backwards = after < page.offset();
        Some(Self { size, skipped: after.min(page.offset()), backwards })
    }

    /// How many of the list lie between its nearer end and the far end of the page.
    pub(super) fn steps(&self) -> u64 {
        self.skipped.saturating_add(u64::from(self.size))
    }

    /// The ids of a page, in order. `from` is `FROM` and `WHERE` of the whole list.
    pub(super) async fn ids<T: Id>(&self, connection: &impl ConnectionTrait, from: Sql, keys: &Keys) -> Result<Vec<T>> {
        let id = keys.last().map_or("id", |(id, _)| id);
        let query = Sql::new(format!("SELECT {id} AS id")).then(from).text(&ordered(keys, self.backwards));
        let mut found = ids(&all(connection, query.then(window(self.size, self.skipped))).await?)?;
        if self.backwards {
            found.reverse();
        }
        Ok(found)
    }

    /// The same along an index by one key and the id. That serves an order in which both go the same way; in any other
    /// the database would sort all that it passes. So it is walked as it is, and those that are alike in the key are
    /// turned round afterwards.
    pub(super) async fn walk<T: Id>(
        &self,
        connection: &impl ConnectionTrait,
        from: Sql,
        keys: &Keys,
    ) -> Result<Vec<T>> {
        match keys {
            [key, id] if key.1 != id.1 => self.turned(connection, from, (key.0, key.1 != self.backwards), id.0).await,
            _ => self.ids(connection, from, keys).await,
        }
    }

    /// `way` is the column of the key and whether the walk descends; the id goes the other way.
    async fn turned<T: Id>(
        &self,
        connection: &impl ConnectionTrait,
        from: Sql,
        way: (&'static str, bool),
        id: &'static str,
    ) -> Result<Vec<T>> {
        let (key, down) = way;
        // One more at either end tells whether what is alike there goes on outside of the page.
        let ahead = u32::from(self.skipped > 0);
        let query = Sql::new(format!("SELECT {id} AS id, {key} AS value"))
            .then(from.clone())
            .text(&ordered(&[way, (id, down)], false))
            .then(window(self.size.saturating_add(1 + ahead), self.skipped - u64::from(ahead)));
        let met: Vec<Met<T>> = all(connection, query).await?.iter().map(Met::read).collect::<Result<_>>()?;
        let (before, page) = met.split_at(met.len().min(ahead as usize));
        let (page, after) = page.split_at(page.len().min(self.size as usize));
        let mut found = Vec::with_capacity(page.len());
        for alike in page.chunk_by(|a, b| a.value == b.value) {
            let [first, ..] = alike else { continue };
            let go_on = |outside: &[Met<T>]| outside.iter().any(|other| other.value == first.value);
            if !go_on(before) && !go_on(after) {
                found.extend(alike.iter().rev().map(|thing| thing.id));
                continue;
            }
            let those = from.clone().text(&format!(" AND {key} = ")).again(first.value.clone());
            let mut skipped = 0;
            if go_on(before) {
                let earlier = those.clone().text(&format!(" AND {id} {} ?", if down { '>' } else { '<' }));
                skipped = count(connection, earlier.bind(first.id)).await?;
            }
            let query = Sql::new(format!("SELECT {id} AS id")).then(those).text(&ordered(&[(id, !down)], false));
            let size = u32::try_from(alike.len()).unwrap_or(self.size);
            found.extend(ids::<T>(&all(connection, query.then(window(size, skipped))).await?)?);
        }
        if self.backwards {
            found.reverse();
        }
        Ok(found)
    }
}

/// What was met on a walk.
struct Met<T> {
    id: T,
    value: Value,
}

impl<T: Id> Met<T> {
    fn read(row: &Row) -> Result<Self> {
        Ok(Self { id: row.id("id")?, value: row.value("value")? })
    }
}

/// `ORDER BY` the keys, or the very reverse.
fn ordered(keys: &Keys, reversed: bool) -> String {
    let parts: Vec<_> = keys
        .iter()
        .map(|(column, descending)| format!("{column}{}", if *descending != reversed { " DESC" } else { "" }))
        .collect();
    format!(" ORDER BY {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// From whichever end it is counted, a page is the same part of its list.
        #[test]
        fn a_page_is_the_same_from_either_end(total in 0_u64..300, page in 1_u64..40, limit in 1_u32..60) {
            let list: Vec<u64> = (0..total).collect();
            let wanted: Vec<u64> =
                list.chunks(limit as usize).nth(page as usize - 1).map(<[u64]>::to_vec).unwrap_or_default();
            let found = Stretch::of(PageRequest { page, limit }, total).map(|stretch| {
                let mut way = list.clone();
                if stretch.backwards {
                    way.reverse();
                }
                let mut found: Vec<u64> =
                    way.into_iter().skip(stretch.skipped as usize).take(stretch.size as usize).collect();
                if stretch.backwards {
                    found.reverse();
                }
                // It is the nearer end.
                assert!(stretch.steps() <= total.div_ceil(2) + u64::from(limit));
                found
            });
            prop_assert_eq!(found.unwrap_or_default(), wanted);
        }
    }
}
