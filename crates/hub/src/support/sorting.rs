//! Sorts lists in memory.

use std::cmp::Ordering;

use isobar_model::page::SortKey;

/// Compares two items by these keys, with `by_field` as the comparison by one field. Equal items are ordered by
/// `otherwise`, in the direction of the last key.
pub(crate) fn by_fields(keys: &[SortKey], by_field: impl Fn(&str) -> Ordering, otherwise: Ordering) -> Ordering {
    let directed = |order: Ordering, descends: bool| if descends { order.reverse() } else { order };
    // A repeated field decides nothing.
    let is_new = |(at, key): &(usize, &SortKey)| !keys.iter().take(*at).any(|before| before.field == key.field);
    let descends = || keys.iter().enumerate().rfind(is_new).is_some_and(|(_, key)| key.descending);
    let mut by_key = keys.iter().map(|key| directed(by_field(&key.field), key.descending));
    by_key.find(|order| order.is_ne()).unwrap_or_else(|| directed(otherwise, descends()))
}
