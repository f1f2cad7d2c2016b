//! The order of what a list holds in memory.

use std::cmp::Ordering;

use isobar_model::page::SortKey;

/// The order of two things by these keys, of which `by_field` tells that by one. Those that are alike stand as `otherwise`
/// says, in the direction of the last key.
pub(crate) fn by_fields(keys: &[SortKey], by_field: impl Fn(&str) -> Ordering, otherwise: Ordering) -> Ordering {
    let directed = |order: Ordering, descends: bool| if descends { order.reverse() } else { order };
    // A field that comes again decides nothing.
    let is_new = |(at, key): &(usize, &SortKey)| !keys.iter().take(*at).any(|before| before.field == key.field);
    let descends = || keys.iter().enumerate().rfind(is_new).is_some_and(|(_, key)| key.descending);
    let mut by_key = keys.iter().map(|key| directed(by_field(&key.field), key.descending));
    by_key.find(|order| order.is_ne()).unwrap_or_else(|| directed(otherwise, descends()))
}
